"""Recipes: small budgets reach known losses, the same cell is the same model, and bad cells are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from linnet.labs.icl import full, grow, recipes
from linnet.labs.icl.evaluate import TEST_SEED, evaluate_model
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.recipes import Cell, train_cell
from linnet.regress.model import ICLTransformer

U5 = Noise.parse("U5")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds in place of minutes: smaller pools and fewer steps of the same recipe."""
    for name, value in (("MORE", 1024), ("MANY", 4096), ("KEPT", 1024), ("FINALISTS", 2), ("POLISHED", 1)):
        monkeypatch.setattr(grow, name, value)
    monkeypatch.setattr(full, "steps", lambda layers: (350, 150))
    monkeypatch.setattr(full, "DRAWS", 1)
    monkeypatch.setattr(full, "BATCH", 512)


def chain(kind: str, noise: str, layers: int) -> list[ICLTransformer]:
    collected: list[ICLTransformer] = []
    for depth in range(1, layers + 1):
        collected.append(train_cell(Cell(kind, noise, depth), collected[-1] if collected else None).model)
    return collected


def test_diag_grows_to_its_known_losses() -> None:
    losses = [evaluate_model(model, U5, 10_000).sharp for model in chain("diag", "U5", 3)]
    assert losses[0] == pytest.approx(0.895, abs=0.03)  # the closed form; the paper prints .906
    assert losses[1] < 0.26  # the paper: .242
    assert losses[2] < 0.14  # the paper: .118


def test_gd_leaves_the_local_minimum_of_the_paper() -> None:
    model = chain("gd++", "U0", 2)[-1]
    assert evaluate_model(model, Noise.parse("U0"), 10_000).sharp < 0.31  # the paper's stays at .341
    assert model.q.shape == (2, 1, 1)


def test_full_trains_every_entry() -> None:
    trained = train_cell(Cell("full", "U5", 2))
    assert evaluate_model(trained.model, U5, 10_000).sharp < 0.35
    start, _ = full._start(Cell("full", "U5", 2), 0.1, 0)
    moved = (trained.model.p.detach() - start)[0, 0]
    assert bool((moved.abs() > 0).all())
    assert trained.model.config.made["recipe"] == "fast"
    assert trained.model.config.made["noise"] == "U5"


def test_full_without_noise_begins_at_gd() -> None:
    trained = train_cell(Cell("full", "U0", 2))
    assert trained.info["start"] == "gd++"
    assert evaluate_model(trained.model, Noise.parse("U0"), 10_000).sharp < 0.35
    off = trained.model.p.detach()[0, 0] - torch.diag(trained.model.p.detach()[0, 0].diagonal())
    assert float(off.abs().max()) > 0


def test_the_paper_recipe_is_adam_on_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "PAPER_STEPS", 300)
    monkeypatch.setattr(recipes, "PAPER_RATE", 3e-3)
    monkeypatch.setattr(recipes, "PAPER_BATCH", 256)
    shares: list[float] = []
    trained = train_cell(Cell("diag", "U5", 1, recipe="paper"), report=shares.append)
    assert trained.info == {"steps": 300, "skipped": 0}
    assert evaluate_model(trained.model, U5, 10_000).sharp == pytest.approx(0.895, abs=0.06)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_the_same_cell_is_the_same_model(kind: str) -> None:
    first, second = (train_cell(Cell(kind, "1,3", 2)).model for _ in range(2))
    assert torch.equal(first.p, second.p)
    assert torch.equal(first.q, second.q)
    other = train_cell(Cell(kind, "1,3", 2, seed=1)).model
    assert kind == "diag" or not torch.equal(first.p, other.p)


def test_heads_and_sizes_are_those_asked_for() -> None:
    model = train_cell(Cell("diag", "U2", 2, d=3, n=9, heads=2)).model
    assert model.p.shape == (2, 2, 2)
    assert evaluate_model(model, Noise.parse("U2"), 5_000).loss < 0.3
    assert train_cell(Cell("full", "U2", 1, d=2, n=9, heads=2)).model.p.shape == (1, 2, 3, 3)


def test_a_model_of_another_shape_is_no_start() -> None:
    model = train_cell(Cell("diag", "U5", 1)).model
    with pytest.raises(ValueError, match="diag with 3 layers cannot grow from diag with 1 layers"):
        train_cell(Cell("diag", "U5", 3), model)
    with pytest.raises(ValueError, match="gd\\+\\+ with 2 layers cannot grow from diag"):
        train_cell(Cell("gd++", "U5", 2), model)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "dia"}, "unknown kind of model 'dia'; did you mean 'diag'"),
        ({"recipe": "quick"}, "unknown recipe 'quick'"),
        ({"noise": "loud"}, "noise is 'loud'"),
        ({"noise": "=-1"}, "sigma is -1.0"),
        ({"layers": 0}, "layers is 0"),
        ({"n": 0}, "n is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_cells_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("+", "\\+")):
        replace(Cell("diag", "U5", 2), **changes)  # type: ignore[arg-type]


def test_no_stream_is_the_test_stream() -> None:
    seeds = {
        Cell("diag", noise, 2, seed=seed).stream(what) for noise in ("U1", "U5") for seed in range(20) for what in "ab"
    }
    assert len(seeds) == 80
    assert all(seed % 2 == 1 for seed in seeds)
    assert TEST_SEED % 2 == 0
    assert {grow.FEW_SEED, grow.MORE_SEED, grow.MANY_SEED}.isdisjoint({TEST_SEED})
