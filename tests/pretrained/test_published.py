"""Published architectures: the logits of transformers in every form of ours, native decoding, and refusals by name."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.generate import Sampling, Session, open_engine
from linnet.models import LanguageModel, Model
from linnet.native.library import library
from linnet.pretrained import export_pretrained, load_pretrained
from linnet.pretrained.fields import COMMON
from tests.pretrained.published import CASES, VOCAB, logits_in_float64, make, write

GREEDY = Sampling(temperature=0)
CLOSE, EXACT = 1e-4, 1e-12  # of the largest logit, in float32 (measured: 1.6e-5) and in float64
LONG = torch.randint(0, VOCAB, (2, 70), generator=torch.Generator().manual_seed(2))  # more than a chunk of theirs, 64
TOKENS = LONG[:, :29]


def distance(found: Tensor, want: Tensor) -> float:
    return float((found - want).abs().max() / want.abs().max())


def stepped(model: LanguageModel, tokens: Tensor) -> Tensor:
    outs, state = [], None
    for token in tokens.unbind(1):
        out, state = model.step(token, state)
        outs.append(out)
    return torch.stack(outs, dim=1)


def greedy(logits_of: Any, tokens: Tensor, count: int) -> list[int]:
    """Continue a row by the most likely tokens, from a function of the whole sequence."""
    row = tokens
    for _ in range(count):
        row = torch.cat([row, logits_of(row[None])[0, -1].argmax()[None]])
    return row[len(tokens) :].tolist()


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest, transformers: ModuleType, tmp_path_factory: Any) -> tuple[Any, Any, Path, str]:
    """Their model, ours, the folder between them, and the name of the case."""
    theirs = make(transformers, request.param)
    folder = write(theirs, tmp_path_factory.mktemp("published") / "m")
    ours, tokenizer = load_pretrained(folder)
    assert tokenizer is None
    return theirs, ours, folder, request.param


def test_logits_are_those_of_transformers_in_every_form(pair: tuple[Any, Any, Path, str]) -> None:
    theirs, ours, _, _ = pair
    with torch.no_grad():
        want = theirs(TOKENS, use_cache=False).logits
        whole = ours(TOKENS)[0]
        assert distance(whole, want) < CLOSE
        assert distance(stepped(ours, TOKENS), want) < CLOSE
        first, state = ours(TOKENS[:, :13])
        assert distance(torch.cat([first, ours(TOKENS[:, 13:], state)[0]], dim=1), whole) < CLOSE


def test_logits_are_exact_in_float64(pair: tuple[Any, Any, Path, str]) -> None:
    theirs, ours, folder, _ = pair
    with torch.no_grad():
        found = deepcopy(ours).double()(LONG)[0]
    assert distance(found, logits_in_float64(theirs, folder, LONG)) < EXACT


def test_padding_is_left_out_as_theirs(pair: tuple[Any, Any, Path, str]) -> None:
    theirs, ours, _, _ = pair
    mask = torch.ones_like(TOKENS)
    mask[0, :9] = 0
    with torch.no_grad():
        found = ours(TOKENS, mask=mask.bool())[0]
        assert distance(found[0, 9:], ours(TOKENS[:1, 9:])[0][0]) < CLOSE
        biased = getattr(theirs.config, "use_bias", False) or getattr(theirs.config, "mamba_proj_bias", False)
        if not biased and theirs.config.model_type != "rwkv":  # transformers lets padding into these
            want = theirs(TOKENS, attention_mask=mask, use_cache=False).logits
            assert distance(found[mask.bool()], want[mask.bool()]) < CLOSE


def test_greedy_tokens_are_theirs_in_torch_in_native_code_and_after_a_restored_state(
    pair: tuple[Any, Any, Path, str], tmp_path: Path
) -> None:
    theirs, ours, _, _ = pair
    with torch.no_grad():
        want = greedy(lambda row: theirs(row, use_cache=False).logits, TOKENS[0, :9], 16)
    assert len(set(want)) > 2  # otherwise any model could guess them
    for backend in ("torch", *(("native",) if library() is not None else ())):
        session = Session(ours, engine=open_engine(ours, backend=backend))
        session.feed(TOKENS[0, :9])
        found = [session.sample(GREEDY) for _ in range(7)]
        session.save(tmp_path / backend)
        again = Session.load(tmp_path / backend, ours, engine=open_engine(ours, backend=backend))
        assert found + [again.sample(GREEDY) for _ in range(9)] == want


@pytest.mark.skipif(library() is None, reason="the native library is not built")
def test_the_native_decoder_has_their_logits(pair: tuple[Any, Any, Path, str]) -> None:
    theirs, ours, _, _ = pair
    engine = open_engine(ours, backend="native")
    rows = engine.add(rows=2)
    found = torch.stack([engine.step(token, rows) for token in TOKENS.unbind(1)], dim=1)
    with torch.no_grad():
        assert distance(found, theirs(TOKENS, use_cache=False).logits) < CLOSE


def test_a_loaded_model_is_saved_and_trained_as_any_other(pair: tuple[Any, Any, Path, str], tmp_path: Path) -> None:
    _, ours, _, _ = pair
    ours.save_pretrained(tmp_path / "ours")
    again = Model.from_pretrained(tmp_path / "ours")
    assert (again.fingerprint(), again.config) == (ours.fingerprint(), ours.config)
    assert isinstance(again, LanguageModel)
    total, _ = again.loss({"tokens": TOKENS[:, :-1], "targets": TOKENS[:, 1:]})
    total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in again.parameters())


def test_it_is_exported_as_it_came(pair: tuple[Any, Any, Path, str], transformers: ModuleType, tmp_path: Path) -> None:
    theirs, ours, folder, _ = pair
    name = theirs.config.model_type
    assert export_pretrained(ours, tmp_path / "out", name) == name
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    assert type(again) is type(theirs)
    with torch.no_grad():
        found, want = (model(TOKENS, use_cache=False).logits for model in (again, theirs))
    assert distance(found, want) < CLOSE  # chunk_size, which we do not keep, differs
    assert load_pretrained(tmp_path / "out")[0].fingerprint() == ours.fingerprint()
    if name == "granitemoehybrid":
        return  # its multipliers are in the weights now
    kept = theirs.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in again.state_dict().items())
    written, came = (json.loads((path / "config.json").read_text()) for path in (tmp_path / "out", folder))
    common = set(written) & set(came) - COMMON - {"rope_parameters", "num_experts"}
    assert len(common) > 8
    assert {name: written[name] for name in common} == {name: came[name] for name in common}
