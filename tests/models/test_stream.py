"""Forecaster and Classifier: steps equal the parallel pass, padding changes nothing, losses and metrics by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.layers import MIXERS
from linnet.models import ModelConfig, build
from linnet.models.stream import Classifier, Forecaster
from tests.models.heads import EXACT, again, learned, small, stepped

B, T, C, HORIZON, OUT, CLASSES, SYMBOLS = 3, 9, 2, 4, 3, 5, 7
LENGTHS = torch.tensor([9, 6, 1])
LABELS = torch.tensor([4, 0, 2])


def forecaster(**fields: Any) -> Any:
    return small("forecast", **{"input_dim": C, "output_dim": OUT, "horizon": HORIZON, **fields})


def classifier(kind: str, **fields: Any) -> Any:
    source = {"input_dim": C} if kind == "values" else {"source_vocab_size": SYMBOLS}
    return small("classify", vocab_size=CLASSES, **source, **fields)


def values(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape or (B, T, C), generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def inputs(kind: str) -> Tensor:
    return values() if kind == "values" else torch.randint(SYMBOLS, (B, T), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_forecast_stepped_is_the_forecast_at_once(mixer: str) -> None:
    model = forecaster(mixer=mixer)
    whole, final = model(values())
    outs, state = stepped(model, values())
    torch.testing.assert_close(outs, whole, **EXACT)
    torch.testing.assert_close(state, final, **EXACT)
    assert whole.shape == (B, T, HORIZON, OUT)
    first, half = model(values()[:, :4])
    rest, _ = model(values()[:, 4:], half)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole, **EXACT)


@pytest.mark.parametrize("kind", ["values", "tokens"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_a_causal_classifier_answers_after_every_step(mixer: str, kind: str) -> None:
    model, given = classifier(kind, mixer=mixer), inputs(kind)
    outs, state = stepped(model, given)
    for t in range(T):
        logits, so_far = model(given[:, : t + 1])
        torch.testing.assert_close(outs[:, t], logits, **EXACT)
    torch.testing.assert_close(state, so_far, **EXACT)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["values", "tokens"])
@pytest.mark.parametrize("mixer", ["elu", "rebased", "softmax", "conv"])
def test_padding_changes_nothing(mixer: str, kind: str, causal: bool) -> None:
    model, given = classifier(kind, mixer=mixer, causal=causal, positions="learned"), inputs(kind)
    logits, _ = model(given, lengths=LENGTHS)
    alone = [model(given[b : b + 1, :n])[0][0] for b, n in enumerate(LENGTHS)]
    torch.testing.assert_close(logits, torch.stack(alone), **EXACT)


def test_pooling_is_the_last_step_or_the_mean() -> None:
    for causal in (True, False):
        model, given = classifier("values", causal=causal), values()
        h, _ = model.backbone(model.inputs(given), output_state=False)
        pooled = h[:, -1] if causal else h.mean(1)
        torch.testing.assert_close(model(given)[0], model.head(pooled), **EXACT)
        assert (model(given)[1] is None) == (not causal)


def test_loss_and_metrics_of_a_forecast() -> None:
    model = forecaster()
    targets = values(B, T, HORIZON, OUT)
    forecast = model(values())[0]
    total, n = model.loss({"values": values(), "targets": targets})
    torch.testing.assert_close(total, ((forecast - targets) ** 2).sum(), **EXACT)
    assert n.item() == B * T * HORIZON * OUT
    shown = model.metrics({"values": values(), "targets": targets})
    assert shown["mse"][0].item() == shown["loss"][0].item() == total.item()
    assert shown["mae"][0].item() == pytest.approx((forecast - targets).abs().sum().item())
    assert forecaster(output_dim=0)(values())[0].shape == (B, T, HORIZON, C)


@pytest.mark.parametrize("kind", ["values", "tokens"])
def test_loss_and_metrics_of_a_classifier(kind: str) -> None:
    model, given = classifier(kind, causal=False), inputs(kind)
    batch = {kind: given, "lengths": LENGTHS, "labels": LABELS}
    logits = model(given, lengths=LENGTHS)[0]
    total, n = model.loss(batch)
    torch.testing.assert_close(total, -sum(logits.log_softmax(-1)[b, LABELS[b]] for b in range(B)), **EXACT)
    assert n.item() == B
    shown = model.metrics({**batch, "labels": logits.argmax(-1)})
    assert shown["accuracy"][0].item() == shown["accuracy"][1].item() == B
    assert model.metrics({**batch, "labels": logits.argmin(-1)})["accuracy"][0].item() == 0
    assert model.loss({kind: given, "labels": LABELS})[0].isfinite()  # without lengths every step is real


def test_a_wave_is_learned() -> None:
    """The next two values of a sine follow from the last two."""
    torch.manual_seed(0)
    wave = torch.sin(torch.arange(66) * 0.7)
    targets = torch.stack([wave[1:65], wave[2:66]], dim=-1)[None, ..., None]
    shape = {"d_model": 32, "n_layers": 2, "n_heads": 4, "mixer": ("conv", "elu"), "input_dim": 1, "horizon": 2}
    model = build(ModelConfig(task="forecast", **shape))
    assert learned(model, {"values": wave[None, :64, None], "targets": targets}, steps=120) < 0.02


@pytest.mark.parametrize("causal", [True, False])
def test_labels_are_learned_by_heart(causal: bool) -> None:
    torch.manual_seed(0)
    shape = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": CLASSES, "source_vocab_size": SYMBOLS}
    model = build(ModelConfig(task="classify", causal=causal, **shape))
    batch = {"tokens": inputs("tokens"), "lengths": LENGTHS, "labels": LABELS}
    assert learned(model, batch) < 0.05
    assert model.eval().metrics(batch)["accuracy"][0].item() == B


def test_to_a_folder_and_back(tmp_path: Path) -> None:
    for model, kind in ((forecaster(), Forecaster), (classifier("values"), Classifier)):
        other = again(model, tmp_path / kind.__name__)
        assert type(other) is kind
        assert torch.equal(other(values().float())[0], model(values().float())[0])


def test_bad_input_is_named() -> None:
    model = forecaster()
    with pytest.raises(ValueError, match=r"the input is torch\.float64 \[3, 9, 1\]; .* input_dim is 2"):
        model(values()[..., :1])
    with pytest.raises(ValueError, match=r"targets have shape \[3, 9, 3, 4\]; accepted: \[3, 9, 4, 3\]"):
        model.loss({"values": values(), "targets": values(B, T, OUT, HORIZON)})
    with pytest.raises(ValueError, match="input_dim is 0, but a 'forecast' model reads numbers"):
        forecaster(input_dim=0)
    with pytest.raises(ValueError, match=r"token 7 at \[0, 1\] is outside the vocabulary of 7"):
        classifier("tokens")(torch.tensor([[0, 7]]))
    with pytest.raises(ValueError, match=r"token 5 at \[1\] is outside the vocabulary of 5"):
        classifier("values").loss({"values": values(), "labels": torch.tensor([0, 5, 1])})
    with pytest.raises(ValueError, match="row 0 has length 10; accepted: 1 to 9"):
        classifier("values")(values(), lengths=torch.tensor([10, 1, 1]))


def test_a_forecast_of_changes_adds_the_present_value() -> None:
    shape = {"task": "forecast", "d_model": 16, "n_layers": 1, "n_heads": 2}
    shape |= {"input_dim": 3, "output_dim": 2, "horizon": 4}
    plain = build(ModelConfig(**shape)).double()
    change = build(ModelConfig(**shape, output_channels=(2, 0))).double()
    change.load_state_dict(plain.state_dict())
    values = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(change(values)[0], plain(values)[0] + values[:, :, None, [2, 0]])
    torch.testing.assert_close(change.step(values[:, 0])[0], change(values)[0][:, 0])


@pytest.mark.parametrize("channels", [(0,), (0, 3), (0, -1)])
def test_channels_that_do_not_fit_are_named(channels: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"output_channels is .*; accepted: .*output_dim = 2 numbers from 0 to 2"):
        ModelConfig(task="forecast", input_dim=3, output_dim=2, output_channels=channels)
