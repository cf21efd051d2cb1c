"""The nats of a stepped engine equal `model.loss` for every head; rounded weights cost a little."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.errors import BackendError
from linnet.generate import open_engine
from linnet.generate.score import score
from linnet.models import Forecaster
from tests.generate.engines import KINDS, VOCAB, everywhere, language, opened, tokens
from tests.models.heads import small

B, T, LEVELS = 3, 24, 17
CLOSE = {torch.float64: 1e-10, torch.float32: 1e-5}  # relative
SQUARES = 1e-3  # float32 with features that are squares, relative
MOST = {"bfloat16": 0.002, "int8": 0.005}  # nats per value that rounding may cost these models; measured 0.0003, 0.0006


def text() -> tuple[Tensor, Tensor]:
    """Targets with a row that ends early, one without its beginning, and a last column that is not scored."""
    ids = tokens(B * (T + 1)).view(B, T + 1)
    targets = ids[:, 1:].clone()
    targets[0, 10:] = -100
    targets[1, :5] = -100
    targets[:, -1] = -100
    return ids[:, :-1], targets


def pixels() -> Tensor:
    return torch.randint(LEVELS, (B, T), generator=torch.Generator().manual_seed(1))


def image(head: str, dtype: torch.dtype) -> Any:
    return small("image", head=head, vocab_size=LEVELS, n_mixtures=3).to(dtype)


@everywhere
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_text_costs_what_the_loss_says(kind: str, backend: str, dtype: torch.dtype) -> None:
    model = language(kind, dtype)
    ids, targets = text()
    nats, count = score(opened(model, backend), ids, targets)
    total, n = model.loss({"tokens": ids, "targets": targets})
    assert count == int(n) == B * T - (T - 10) - 5 - 2
    rel = SQUARES if "rebased" in kind and dtype == torch.float32 else CLOSE[dtype]
    assert nats == pytest.approx(float(total), rel=rel)


@everywhere
@pytest.mark.parametrize("head", ["categorical", "mixture"])
def test_an_image_costs_what_the_loss_says(head: str, backend: str, dtype: torch.dtype) -> None:
    model = image(head, dtype)
    nats, count = score(opened(model, backend), pixels())
    metrics = model.metrics({"tokens": pixels()})
    assert count == B * T
    assert nats == pytest.approx(float(metrics["loss"][0]), rel=CLOSE[dtype])
    bits = nats / count / math.log(2)
    assert bits == pytest.approx(float(metrics["bits_per_dim"][0]) / count, rel=CLOSE[dtype])


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@pytest.mark.parametrize("head", ["text", "categorical", "mixture"])
def test_rounded_weights_cost_a_little(head: str, weights: str) -> None:
    model = language("elu", torch.float32) if head == "text" else image(head, torch.float32)
    given = text() if head == "text" else (pixels(),)
    try:
        engine = open_engine(model, weights=weights)
    except BackendError as error:
        pytest.skip(str(error))
    exact, count = score(open_engine(model), *given)
    rounded, _ = score(engine, *given)
    assert 0 < abs(rounded - exact) / count < MOST[weights]


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_other_rows_are_not_disturbed(backend: str) -> None:
    """Neither scored rows nor a call that fails change the other rows."""
    engine = opened(language("softmax", torch.float32), backend)
    mine = engine.add(rows=2)
    engine.step(tokens(2), mine)
    before = engine.state(mine)
    first = score(engine, *text())
    assert engine.rows == mine

    def enough(step: int, steps: int) -> None:
        assert steps == T - 1
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(engine, *text(), on_progress=enough)
    assert engine.rows == mine
    for was, now in zip(before.layers, engine.state(mine).layers, strict=True):
        for a, b in zip(was, now, strict=True):
            assert (a is b) if a is None or b is None else torch.equal(a, b)
    assert score(engine, *text()) == first


def test_nothing_to_score_is_nothing() -> None:
    engine = open_engine(language("elu", torch.float32))
    assert score(engine, text()[0], torch.full((B, T), -100)) == (0.0, 0)
    assert engine.rows == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids, targets: (ids, None), "targets are missing"),
        (lambda ids, targets: (ids, targets[:, 1:]), f"targets are of shape [{B}, {T - 1}]"),
        (lambda ids, targets: (ids[0], targets), f"tokens have shape [{T}]"),
        (lambda ids, targets: (ids[:, :0], targets[:, :0]), f"tokens have shape [{B}, 0]"),
        (lambda ids, targets: (ids + VOCAB, targets), "outside the vocabulary"),
        (lambda ids, targets: (ids, targets - 1), "outside the vocabulary"),
        (lambda ids, targets: (ids.float(), targets), "dtype torch.float32"),
    ],
)
def test_bad_tokens_are_one_sentence(change: Any, message: str) -> None:
    engine = open_engine(language("elu", torch.float32))
    with pytest.raises(ValueError, match=r"\S") as refused:
        score(engine, *change(*text()))
    assert message in str(refused.value)
    assert engine.rows == []


def test_images_are_their_own_targets() -> None:
    engine = open_engine(image("mixture", torch.float32))
    with pytest.raises(ValueError, match="leave them out"):
        score(engine, pixels(), pixels())
    with pytest.raises(ValueError, match="outside the vocabulary of 17"):
        score(engine, pixels() + 1)  # 17 is the start token, not a value


def test_a_forecast_has_no_nats() -> None:
    model = small("forecast", input_dim=2, horizon=1)
    assert isinstance(model, Forecaster)
    with pytest.raises(ValueError, match="a Forecaster has no tokens to score"):
        score(open_engine(model, backend="torch"), pixels())
