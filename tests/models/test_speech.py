"""Speech models: steps equal the parallel pass, padding changes nothing, the loss is torch's CTC, PER by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from linnet.layers import CAUSAL_ONLY, MIXERS
from linnet.models import ModelConfig, build, count_parameters, state_bytes
from linnet.models.ctc import edit_distance
from linnet.models.speech import BiLSTMModel, SpeechModel
from tests.models.heads import EXACT, again, learned, small, stepped

B, T, F, V = 3, 10, 5, 6
LENGTHS = torch.tensor([10, 7, 4])
READERS = ["elu", "rebased", "softmax", "bilstm"]


def speech(**fields: Any) -> Any:
    return small("speech", **{"input_dim": F, "vocab_size": V, "causal": False, **fields})


def batch(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1)
    features = torch.randn(B, T, F, generator=g, dtype=torch.float64).to(dtype)
    for row, length in enumerate(LENGTHS):
        features[row, length:] = 0
    targets = torch.tensor([[1, 1, 4], [5, 2, 0], [3, 0, 0]])
    return {"features": features, "lengths": LENGTHS, "targets": targets, "target_lengths": torch.tensor([3, 2, 1])}


@pytest.mark.parametrize("mixer", MIXERS)
def test_steps_equal_the_parallel_pass(mixer: str) -> None:
    model, features = speech(mixer=mixer, causal=True), batch()["features"]
    logits, final = model(features)
    outs, state = stepped(model, features)
    torch.testing.assert_close(outs, logits, **EXACT)
    torch.testing.assert_close(state, final, **EXACT)
    first, half = model(features[:, :4])
    rest, end = model(features[:, 4:], half)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), logits, **EXACT)
    torch.testing.assert_close(end.position, final.position)


@pytest.mark.parametrize(
    ("mixer", "causal"),
    [*((name, True) for name in MIXERS), *((name, False) for name in (*MIXERS, "bilstm") if name not in CAUSAL_ONLY)],
)
def test_padding_changes_nothing(mixer: str, causal: bool) -> None:
    model, given = speech(mixer=mixer, causal=causal, positions="sinusoidal"), batch()["features"]
    for row, length in enumerate(LENGTHS):
        given[row, length:] = 7.0
    logits, _ = model(given, lengths=LENGTHS)
    for row, length in enumerate(LENGTHS):
        alone, _ = model(given[row : row + 1, :length])
        torch.testing.assert_close(logits[row, :length], alone[0], **EXACT)


@pytest.mark.parametrize("mixer", READERS)
def test_both_directions_are_read(mixer: str) -> None:
    model, given = speech(mixer=mixer), batch()["features"][:1].requires_grad_()
    (grad,) = torch.autograd.grad(model(given)[0][0, 4].sum(), given)
    assert grad[0].abs().sum(-1).min() > 0
    assert model(given)[1] is None


@pytest.mark.parametrize("mixer", READERS)
def test_loss_and_error_rate(mixer: str) -> None:
    model, given = speech(mixer=mixer), batch()
    logp = model(given["features"], lengths=LENGTHS)[0].log_softmax(-1)
    want = sum(
        ctc_loss(logp[b], given["targets"][b, :n], LENGTHS[b], n, reduction="sum")
        for b, n in enumerate(given["target_lengths"])
    )
    total, n = model.loss(given)
    torch.testing.assert_close(total, want, **EXACT)
    assert n.item() == 6
    shown = model.metrics(given)
    assert shown["loss"][0].item() == pytest.approx(total.item())
    decoded = model.decode(given["features"], LENGTHS)
    rows = zip(decoded, given["targets"].tolist(), given["target_lengths"].tolist(), strict=True)
    assert shown["per"][0].item() == sum(edit_distance(hyp, ref[:size]) for hyp, ref, size in rows)
    assert shown["per"][1].item() == 6
    assert len(model.decode(given["features"], LENGTHS, beam=4)) == B


@pytest.mark.parametrize("mixer", ["elu", "bilstm"])
def test_utterances_are_learned_by_heart(mixer: str) -> None:
    torch.manual_seed(0)
    shape = {"d_model": 32, "n_layers": 2, "n_heads": 4, "input_dim": F, "vocab_size": V, "causal": False}
    model, given = build(ModelConfig(task="speech", mixer=mixer, positions="sinusoidal", **shape)), batch(torch.float32)
    assert learned(model, given, steps=150) < 0.1
    edits, symbols = model.eval().metrics(given)["per"]
    assert (edits.item(), symbols.item()) == (0, 6)


@pytest.mark.parametrize("mixer", ["elu", "bilstm"])
def test_to_a_folder_and_back(mixer: str, tmp_path: Path) -> None:
    model, given = speech(mixer=mixer), batch(torch.float32)
    other = again(model, tmp_path)
    assert type(other) is (BiLSTMModel if mixer == "bilstm" else SpeechModel)
    assert torch.equal(other(given["features"])[0], model(given["features"])[0])


def test_the_baseline_has_the_shape_of_the_paper() -> None:
    """Three layers of 320 both ways on 40 features: 4 gates, input and recurrent weights, two biases."""
    config = ModelConfig(
        task="speech", mixer="bilstm", d_model=320, n_layers=3, n_heads=1, input_dim=40, vocab_size=42, causal=False
    )
    layer = [2 * 4 * 320 * (width + 320 + 2) for width in (40, 640, 640)]
    assert count_parameters(config) == sum(layer) + 42 * 641
    assert state_bytes(config, 1000) == 3 * 2 * 2 * 320 * 4
    assert len(build(config).blocks) == 3


@pytest.mark.parametrize("mixer", ["elu", "bilstm"])
def test_bad_input_is_named(mixer: str) -> None:
    model, given = speech(mixer=mixer), batch()
    with pytest.raises(ValueError, match=r"the input is torch\.float64 \[3, 10, 4\]; .* input_dim is 5"):
        model(given["features"][..., :4])
    with pytest.raises(ValueError, match="row 1 has length 11; accepted: 1 to 10, the steps of the batch"):
        model.loss({**given, "lengths": torch.tensor([10, 11, 4])})
    with pytest.raises(ValueError, match=r"lengths are torch\.int64 \[2\]; accepted: integers \[3\]"):
        model.loss({**given, "lengths": torch.tensor([10, 4])})
    with pytest.raises(ValueError, match="row 2 has length 0; accepted: 1 to 10"):
        model.loss({**given, "lengths": torch.tensor([10, 7, 0])})
    repeated = torch.tensor([[1, 1, 4], [5, 5, 0], [3, 0, 0]])
    with pytest.raises(ValueError, match="row 1 has 2 frames, but its 2 symbols need 3"):
        model.loss({**given, "targets": repeated, "lengths": torch.tensor([10, 2, 4])})
    with pytest.raises(ValueError, match=r"token 6 at \[0, 1\] is outside the vocabulary of 6"):
        model.loss({**given, "targets": torch.tensor([[1, 6, 4], [5, 2, 0], [3, 0, 0]])})
    with pytest.raises(ValueError, match="input_dim is 0, but a 'speech' model reads numbers"):
        speech(mixer=mixer, input_dim=0)


def test_a_bidirectional_model_does_not_step() -> None:
    with pytest.raises(ValueError, match="a bidirectional layer needs the whole sequence"):
        speech().step(batch()["features"][:, 0])
