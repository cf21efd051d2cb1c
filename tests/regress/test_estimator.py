"""InContextRegressor: scikit-learn's own checks, streaming, forgetting, fading, merging and files."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import linnet
from linnet.regress import InContextRegressor, InContextWarning
from linnet.regress.moments import Array
from tests.regress.spec_models import diag_u5

EXACT = 1e-9


def data(n: int = 60, d: int = 6, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * 3 + 1
    return x, x @ rng.normal(size=d) + 5 + rng.normal(size=n)


def ours(**options: float) -> InContextRegressor:
    return InContextRegressor(diag_u5(), **options)


def same(a: InContextRegressor, b: InContextRegressor) -> bool:
    x, _ = data(7, seed=9)
    return bool(np.allclose(a.predict(x), b.predict(x), rtol=EXACT, atol=EXACT))


def test_scikit_learn_accepts_it(tmp_path: Path) -> None:
    diag_u5().save(tmp_path / "model.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of checks that are skipped without pandas
        results = check_estimator(InContextRegressor(str(tmp_path / "model.safetensors")))
    assert {r["check_name"] for r in results if r["status"] == "failed"} == set()
    assert sum(r["status"] == "passed" for r in results) > 40


def test_streaming_is_fit() -> None:
    x, y = data()
    whole, stream = ours().fit(x, y), ours()
    for i in range(0, 60, 7):
        stream.partial_fit(x[i : i + 7], y[i : i + 7])
    assert same(whole, stream)
    assert stream.count_ == 60
    assert whole.score(x, y) > 0.9


def test_fit_forgets_what_was_before() -> None:
    x, y = data()
    assert same(ours().fit(x, -y).fit(x, y), ours().fit(x, y))


def test_forget_takes_rows_out() -> None:
    x, y = data()
    assert same(ours().fit(x, y).forget(x[:25], y[:25]), ours().fit(x[25:], y[25:]))


def test_merge_joins_and_leaves_the_other_alone() -> None:
    x, y = data()
    left, right = ours().fit(x[:20], y[:20]), ours().fit(x[20:], y[20:])
    assert same(left.merge(right), ours().fit(x, y))
    assert right.count_ == 40


def test_forget_factor_fades_row_by_row_and_follows_a_change() -> None:
    x, y = data(120)
    y[60:] = -y[60:]
    rows, batch = ours(forget_factor=0.9), ours(forget_factor=0.9).fit(x, y)
    for i in range(120):
        rows.partial_fit(x[i : i + 1], y[i : i + 1])
    assert same(rows, batch)
    assert same(rows, ours(forget_factor=0.9).fit(x[:50], y[:50]).partial_fit(x[50:], y[50:]))
    assert batch.score(x[100:], y[100:]) > 0.8 > ours().fit(x, y).score(x[100:], y[100:])
    assert batch.decay(0.5).count_ == pytest.approx(rows.count_ / 2)


def test_predict_changes_with_what_is_learned_after_it() -> None:
    x, y = data()
    regressor = ours().fit(x[:10], y[:10])
    before = regressor.predict(x)
    assert not np.allclose(regressor.partial_fit(x[10:], y[10:]).predict(x), before)
    np.testing.assert_allclose(regressor.predict(x), x @ regressor.coef_ + regressor.intercept_)


def test_fallback_says_so_once_per_fit() -> None:
    x, y = data()
    regressor = InContextRegressor(diag_u5(gain=50.0)).fit(x, y)
    with pytest.warns(InContextWarning, match="ridge is used instead"):
        good = regressor.score(x, y)
    assert good > 0.9
    assert regressor.fallback_ is not None
    regressor.partial_fit(x, y).predict(x)  # no second warning: pytest would raise it
    with pytest.warns(InContextWarning):
        regressor.fit(x, y).predict(x)
    assert ours().fit(x, y).fallback_ is None


def test_too_many_features_is_one_sentence_and_changes_nothing() -> None:
    x, y = data(30, d=11)
    regressor = ours().fit(x[:, :6], y)
    sentence = r"^X has 11 features and this model was trained for 10; choose 10 .* linnet icl train --d 11$"
    with pytest.raises(ValueError, match=sentence):
        regressor.fit(x, y)
    assert regressor.predict(x[:, :6]).shape == (30,)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("diagg", "unknown pretrained model 'diagg'; did you mean 'diag'"),
        ("missing.safetensors", "missing.safetensors is not a file"),
    ],
)
def test_bad_model_is_one_sentence(model: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        InContextRegressor(model).fit(*data())


def test_bad_numbers_are_refused() -> None:
    x, y = data()
    for factor in (0.0, -0.5, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"forget_factor is .*; accepted: above 0 and at most 1"):
            ours(forget_factor=factor).fit(x, y)
    with pytest.raises(ValueError, match="cannot be removed; use forget_factor=1"):
        ours(forget_factor=0.9).fit(x, y).forget(x, y)
    with pytest.raises(ValueError, match="NaN"):
        ours().fit(x * np.nan, y)
    with pytest.raises(NotFittedError):
        ours().merge(ours().fit(x, y))


def test_save_and_load_are_exact_and_small(tmp_path: Path) -> None:
    x, y = data(d=10)
    regressor, path = ours(forget_factor=0.99).fit(x, y), tmp_path / "state.safetensors"
    regressor.save(path)
    again = InContextRegressor.load(path, model=diag_u5())
    assert again.forget_factor == 0.99
    assert np.array_equal(again.partial_fit(x, y).predict(x), regressor.partial_fit(x, y).predict(x))
    assert path.stat().st_size < 2000
    with pytest.raises(ValueError, match="saved with a model that is not shipped; pass that model as model="):
        InContextRegressor.load(path)


def test_other_files_are_no_states(tmp_path: Path) -> None:
    diag_u5().save(tmp_path / "model.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"n": np.zeros(())}, tmp_path / "bare.safetensors", {"format": "linnet-icl-state", "version": "1"})
    sentences = {
        "model": "has format 'linnet-icl', version '2'; accepted: 'linnet-icl-state'",
        "text": "is not a whole safetensors file",
        "bare": "accepted: n, mean",
        "none": "is not a file",
    }
    for name, sentence in sentences.items():
        with pytest.raises(linnet.StateError, match=sentence):
            InContextRegressor.load(tmp_path / f"{name}.safetensors")


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensors = {"n": np.array(3.0), "mean": np.array([0.0, np.nan]), "scatter": np.zeros((2, 2))}
    header = {"format": "linnet-icl-state", "version": "1", "settings": "{}"}
    save_file(tensors, path, header)
    with pytest.raises(linnet.StateError, match="NaN, infinity or a negative count"):
        InContextRegressor.load(path)
    for settings in ("{}", '{"model": 5, "forget_factor": 1}', '{"model": "diag", "forget_factor": 2}'):
        save_file(tensors | {"mean": np.zeros(2)}, path, {**header, "settings": settings})
        with pytest.raises(linnet.StateError, match="damaged settings"):
            InContextRegressor.load(path)


def test_a_model_file_will_do(tmp_path: Path) -> None:
    x, y = data()
    diag_u5().save(tmp_path / "mine.safetensors")
    assert same(InContextRegressor(tmp_path / "mine.safetensors").fit(x, y), ours().fit(x, y))
