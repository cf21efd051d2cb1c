"""The in-context regression benchmark: its forms are the same step, its flops are counted, its rows are its times."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from linnet.labs.bench import icl
from linnet.labs.bench.icl import ICLSettings, by_sums, by_tokens, eager_step, native_steps, race, start, step_flops
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.regression import Regression
from tests.ops.rows import needs_library

TOLERANCE = 1e-10  # float64
LOSS = 1.0  # what the first losses of the forms may differ by: other sequences, deviation 0.15 at this batch
SMALL = ICLSettings(layers=2, batch=48, threads=(1,), rounds=3)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_the_eager_forms_are_the_model(kind: str) -> None:
    settings = replace(SMALL, model=kind, layers=3)
    model, batch = start(settings), Regression(Noise.parse("U5")).sample(7, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for x in (model.p, model.q):
            x.mul_(3.0)
        p, q = model.matrices()
        want = model(batch.x, batch.y, batch.query[:, None])[:, 0]
        assert float(want.abs().max()) > 1e-3
        for form in (by_tokens, by_sums):
            assert torch.allclose(form(p[:, 0], q[:, 0], batch), want, rtol=TOLERANCE, atol=0)


def test_flops_are_those_of_the_products() -> None:
    assert step_flops("full", 7, 2048) == (5 * 10 + 8.5) * 2 * 11**3 * 2048
    assert step_flops("diag", 2, 1) == 3.5 * 2 * 11**3


@needs_library
@pytest.mark.parametrize("kind", ["full", "diag"])
def test_every_form_agrees_with_float64(kind: str) -> None:
    errors = icl.gradient_errors(replace(SMALL, model=kind))
    assert set(errors) == set(icl.FORMS)
    assert 0 < max(errors.values()) < icl.TOLERANCE


@needs_library
def test_a_form_that_disagrees_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(icl, "by_sums", lambda p, q, batch: by_sums(p, q, batch) * 1.01)
    with pytest.raises(ValueError, match=r"the gradient of gram is off by .*: not timed"):
        race(SMALL, 1)


@needs_library
def test_all_steps_start_from_the_same_loss_and_learn() -> None:
    settings = replace(SMALL, batch=1024)
    native, tokens = native_steps(settings, 1), eager_step(by_tokens, settings)
    assert abs(native() - tokens()) < LOSS
    losses = [native() for _ in range(40)]
    assert losses[-1] < losses[0] - 0.5


@needs_library
def test_a_row_follows_from_its_times() -> None:
    before = torch.get_num_threads()
    row = race(SMALL, 1)
    torch.set_num_threads(before)
    native = row["forms"]["native"]
    assert list(row["forms"]) == ["native", "tokens", "gram"]
    assert native["slower"] == 1.0
    for entry in row["forms"].values():
        assert 0 < entry["min_s"] <= entry["median_s"]
        assert entry["slower"] == pytest.approx(entry["min_s"] / native["min_s"])
        assert entry["minutes"] == pytest.approx(200_000 * entry["min_s"] / 60)
        percent = 100 * step_flops("full", 2, 48) / entry["min_s"] / (row["sgemm"]["gflops"] * 1e9)
        assert entry["sgemm_percent"] == pytest.approx(percent)
    json.dumps(row, allow_nan=False)
