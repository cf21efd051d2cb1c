"""What users of transformers expect of any model: the checks of its ModelTesterMixin and GenerationTesterMixin.

Those are not part of the installed package, so they are rewritten here for the classes of linnet: a table of small
checks, each a function of linnet.hf, transformers and a folder.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.hf.nets import HYBRID, N, left_padded, net, tokens

pytestmark = pytest.mark.slow
SHORT: dict[str, Any] = {"do_sample": False, "max_new_tokens": 4}
Check = Callable[[ModuleType, ModuleType, Path], None]


def model(hf: ModuleType, **fields: Any) -> Any:
    return hf.to_hf(net(torch.float32, **{**HYBRID, **fields}))


def logits(of: Any, given: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        out: Tensor = of(tokens() if given is None else given).logits
    return out


def same(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def saved_in_shards(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf, tie_embeddings=False)
    made.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    same(logits(hf.LinnetForCausalLM.from_pretrained(folder)), logits(made))


def other_sizes_are_refused_or_begin_anew(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf, tie_embeddings=False)
    made.save_pretrained(folder)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        hf.LinnetForCausalLM.from_pretrained(folder, vocab_size=N + 9)
    wide = hf.LinnetForCausalLM.from_pretrained(folder, vocab_size=N + 9, ignore_mismatched_sizes=True)
    same(wide.model.backbone.state_dict(), made.model.backbone.state_dict())
    for x in (wide.model.embed.weight, wide.model.head.weight):
        assert x.shape[0] == N + 9
        assert 0.2 < float(x.detach().std()) < 0.4  # init_std, not uninitialised memory


def loaded_in_every_dtype(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf)
    made.save_pretrained(folder)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        again = hf.LinnetForCausalLM.from_pretrained(folder, dtype=dtype)
        out = logits(again)
        assert again.dtype == out.dtype == dtype
        assert bool(out.isfinite().all())
        assert again.generate(tokens(), **SHORT).shape == (2, 13)
    same(logits(hf.LinnetForCausalLM.from_pretrained(folder, dtype="auto")), logits(made))


def a_seed_gives_the_weights(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    config = model(hf).config
    for kind in (hf.LinnetModel, hf.LinnetForCausalLM, hf.LinnetForSequenceClassification):
        states = []
        for _ in range(2):
            torch.manual_seed(4)
            states.append(kind(config).state_dict())
        same(*states)


def tied_weights_stay_tied(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf)
    made.save_pretrained(folder)
    again = hf.LinnetForCausalLM.from_pretrained(folder)
    assert again.config.tie_word_embeddings
    again.resize_token_embeddings(N + 2)
    again.model.embed.weight.data.zero_()
    assert float(logits(again).abs().max()) == 0


def resized_models_are_saved(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    given = tokens() % (N - 3)
    for kind in (hf.LinnetModel, hf.LinnetForCausalLM, hf.LinnetForSequenceClassification):
        made = kind(model(hf, tie_embeddings=False).config).eval()
        before = made(given)[0]
        made.resize_token_embeddings(N + 5)
        made.save_pretrained(folder / kind.__name__)
        again = kind.from_pretrained(folder / kind.__name__)
        assert again.config.vocab_size == N + 5
        same(again(given)[0], made(given)[0])
        if kind is not hf.LinnetForCausalLM:
            same(made(given)[0], before)
        made.resize_token_embeddings(N - 3)
        made(given)


def copies_and_pickles(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf)
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        same(logits(twin), logits(made))
    with torch.no_grad():
        cache = made(tokens()).past_key_values
        wanted = made(tokens(), past_key_values=cache.fork()).logits
        for twin in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
            same(made(tokens(), past_key_values=twin).logits, wanted)


def placed_by_a_device_map(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf)
    made.save_pretrained(folder)
    for where in ("cpu", {"model.embed": "cpu", "model.backbone": "cpu"}):
        again = hf.LinnetForCausalLM.from_pretrained(folder, device_map=where)
        same(logits(again), logits(made))


def tuples_hold_what_outputs_hold(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made, given = model(hf), tokens()
    for extra in ({}, {"labels": given}, {"output_hidden_states": True}, {"use_cache": False}):
        a, b = made(given, **extra), made(given, return_dict=False, **extra)
        assert isinstance(b, tuple)
        for x, y in zip(a.to_tuple(), b, strict=True):
            if isinstance(x, hf.LinnetCache):
                x, y = x.state, y.state
            same(x, y)


def hidden_states_keep_gradients(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf).train()
    out = made(tokens(), output_hidden_states=True)
    for x in out.hidden_states:
        x.retain_grad()
    out.logits.sum().backward()
    assert all(float(x.grad.abs().max()) > 0 for x in out.hidden_states)


def every_parameter_gets_a_gradient(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf).train()
    made(tokens(), labels=tokens()).loss.backward()
    assert [name for name, p in made.named_parameters() if p.grad is None] == []


def embeddings_instead_of_tokens(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    config, given = model(hf).config, tokens()
    for kind in (hf.LinnetModel, hf.LinnetForCausalLM, hf.LinnetForSequenceClassification):
        made = kind(config).eval()
        same(made(inputs_embeds=made.get_input_embeddings()(given))[0], made(given)[0])


def padding_on_either_side(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made, rows = model(hf), [tokens(1, length, seed=length)[0] for length in (3, 8)]
    left, mask = left_padded(rows, pad=0)
    right = torch.stack([torch.cat([rows[0], torch.zeros(5, dtype=torch.long)]), rows[1]])
    with torch.no_grad():
        a = made(left, attention_mask=mask).logits[0, 5:]
        b = made(right, attention_mask=mask.flip(1)).logits[0, :3]
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(a, logits(made, rows[0][None])[0], rtol=1e-4, atol=1e-5)


def samples_of_a_seed(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made, drawn = model(hf), []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(made.generate(tokens(), do_sample=True, num_return_sequences=3, max_new_tokens=4, top_k=5))
    assert drawn[0].shape == (6, 13)
    same(*drawn)


def ways_of_decoding(hf: ModuleType, transformers: ModuleType, folder: Path) -> None:
    made = model(hf)
    for how in (
        {"num_beams": 2, "do_sample": True},
        {"guidance_scale": 1.5},
        {"watermarking_config": transformers.WatermarkingConfig()},
        {"min_new_tokens": 3, "eos_token_id": 5},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    ):
        assert made.generate(tokens(), **{**SHORT, **how}).shape[0] == 2
    for how in (
        {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
        {"penalty_alpha": 0.6, "top_k": 4},
        {"num_beams": 3, "force_words_ids": [[1]]},
    ):
        with pytest.raises(ValueError, match="trust_remote_code"):  # transformers has moved them out of its package
            made.generate(tokens(), **{**SHORT, **how})


def exported_by_torch(hf: ModuleType, _: ModuleType, folder: Path) -> None:
    made = model(hf)
    program = torch.export.export(made, (tokens(),), {"use_cache": False, "return_dict": False}, strict=False)
    other = tokens(seed=3)
    torch.testing.assert_close(program.module()(other, use_cache=False, return_dict=False)[0], logits(made, other))


CHECKS: list[Check] = [
    saved_in_shards,
    other_sizes_are_refused_or_begin_anew,
    loaded_in_every_dtype,
    a_seed_gives_the_weights,
    tied_weights_stay_tied,
    resized_models_are_saved,
    copies_and_pickles,
    placed_by_a_device_map,
    tuples_hold_what_outputs_hold,
    hidden_states_keep_gradients,
    every_parameter_gets_a_gradient,
    embeddings_instead_of_tokens,
    padding_on_either_side,
    samples_of_a_seed,
    ways_of_decoding,
    exported_by_torch,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_as_any_model_of_transformers(hf: ModuleType, transformers: ModuleType, tmp_path: Path, check: Check) -> None:
    check(hf, transformers, tmp_path)
