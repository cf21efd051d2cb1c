"""The regressor benchmark: its yardsticks against closed forms, its sets read right, its rows and tables whole."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from linnet.labs.bench.regressor_data import (
    RegressionSet,
    diabetes,
    folder,
    read_table,
    streams,
    strongest_features,
    tables,
)
from linnet.labs.bench.regressor_learners import (
    FADE,
    RLS,
    WINDOW,
    Standardised,
    Window,
    batch_learners,
    stream_learners,
)
from linnet.labs.bench.regressors import FLOOR, RegressorSettings, few_rows, mean, r2, speed, stream_row, table_rows
from linnet.labs.cli.bench_frame import FORMAT
from linnet.labs.cli.bench_regressors import average, regressors, score, score_table, show
from linnet.regress.moments import Array
from tests.regress.spec_models import diag_u5

EXACT = 1e-8


def data(n: int = 60, d: int = 3, noise: float = 0.5) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)) * 4 + 2
    return x, x @ rng.normal(size=d) + noise * rng.normal(size=n) + 7


@pytest.fixture
def model(tmp_path: Path) -> str:
    diag_u5().save(tmp_path / "small.safetensors")
    return str(tmp_path / "small.safetensors")


def test_rls_is_ridge_with_penalty_one() -> None:
    x, y = data()
    e = np.column_stack([x, np.ones(60)])
    wanted = np.linalg.solve(e.T @ e + np.diag([1, 1, 1, 1e-6]), e.T @ y)
    np.testing.assert_allclose(RLS().fit(x[:20], y[:20]).partial_fit(x[20:], y[20:]).w, wanted, rtol=EXACT)


def test_rls_fades() -> None:
    x, y = data(400, noise=0.0)
    y[200:] = -y[200:]
    assert r2(y[300:], RLS(0.9).fit(x, y).predict(x[300:])) > 0.99 > r2(y[300:], RLS().fit(x, y).predict(x[300:]))


def test_standardised_learners_do_not_care_for_units() -> None:
    x, y = data()
    plain, moved = Standardised(RLS()).fit(x, y), Standardised(RLS()).fit(x * 100 - 5, y * 3 + 1)
    np.testing.assert_allclose(moved.predict(x * 100 - 5), 3 * plain.predict(x) + 1, rtol=1e-6)
    assert plain.scale == pytest.approx(np.column_stack([x, y]).std(0))
    assert (Standardised(RLS()).fit(np.ones((4, 2)), np.arange(4.0)).scale[:2] == 1).all()


def test_a_window_knows_its_last_rows_only() -> None:
    x, y = data(WINDOW + 30)
    result = Window(Standardised(RLS())).fit(x[:WINDOW], y[:WINDOW])
    for i in range(WINDOW, WINDOW + 30):
        result.partial_fit(x[i : i + 1], y[i : i + 1])
    np.testing.assert_allclose(result.predict(x), Standardised(RLS()).fit(x[30:], y[30:]).predict(x), rtol=EXACT)


def test_every_learner_learns(model: str) -> None:
    x, y = data(200)
    for makers in (batch_learners((model,)), stream_learners((model,))):
        assert "linnet small" in makers
        for name, make in makers.items():
            assert r2(y[100:], make().fit(x[:100], y[:100]).predict(x[100:])) > 0.9, name
    assert stream_learners((model,))["linnet small"]().forget_factor == FADE


def test_r2_has_a_floor() -> None:
    y = np.array([1.0, 2.0, 3.0])
    assert r2(y, y) == 1
    assert r2(y, np.full(3, 2.0)) == 0
    assert r2(y, y + 100) == r2(y, y * np.nan) == FLOOR


def test_mean_comes_with_its_interval() -> None:
    assert mean(np.array([1.0, 3.0])) == pytest.approx((2.0, 1.96))


def test_few_rows_is_reproducible_and_compares_on_the_same_draws(model: str) -> None:
    given = RegressionSet("made", *data(300), "")
    first, again = (few_rows(given, 20, batch_learners((model,)), 4, seed=1) for _ in range(2))
    assert first == again
    best = max(first.values(), key=lambda entry: entry["r2"])
    assert best["behind"] == best["behind_interval"] == 0
    for entry in first.values():
        assert entry["behind"] == pytest.approx(best["r2"] - entry["r2"])
        assert entry["fallback"] == 0


def test_draws_that_fell_back_are_counted(tmp_path: Path) -> None:
    diag_u5(gain=50.0).save(tmp_path / "wild.safetensors")
    makers = batch_learners((str(tmp_path / "wild.safetensors"),))
    result = few_rows(RegressionSet("made", *data(80), ""), 30, makers, 2, seed=0)
    assert [entry["fallback"] for entry in result.values()] == [1, 0, 0, 0, 0, 0]


def test_rows_of_a_table_and_of_a_stream(model: str) -> None:
    given = RegressionSet("made", *data(150), "made up")
    settings = RegressorSettings(draws=2, models=(model,), stream_rows=130)
    rows = table_rows(given, settings)
    assert [row["n"] for row in rows] == [20, 50, 120]
    assert "RLS" not in rows[-1]["learners"]
    row = stream_row(given, settings)
    assert row["rows"] == 130
    assert all(entry["r2"] > 0.9 for entry in row["learners"].values())
    with pytest.raises(ValueError, match="made has 90 rows here; accepted: more than 100"):
        stream_row(RegressionSet("made", *data(90), ""), RegressorSettings(models=(model,)))


def test_speed_has_every_learner(model: str) -> None:
    result = speed(RegressorSettings(models=(model,), rounds=3), n=30)["learners"]
    assert set(result) == set(batch_learners((model,)))
    assert {name for name, entry in result.items() if "learn" in entry} == {"linnet small", "SGD", "RLS"}
    assert all(entry["refresh"]["us"] > 0 for entry in result.values())


def packed(path: Path, text: str) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


def test_tables_are_read_and_narrowed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 14))
    values[:, 4] = 3.0
    values[:, -1] = values[:, 12] - values[:, 0]
    (tmp_path / "tabular").mkdir()
    text = "\n".join(" ".join(f"{v:.6f}" for v in row) for row in values)
    packed(tmp_path / "tabular" / "wide.txt.gz", text)
    packed(tmp_path / "tabular" / "comma.csv.gz", text.replace(" ", ","))
    comma, wide = tables(tmp_path)
    assert (comma.name, wide.name) == ("comma", "wide")
    assert comma.x.shape == wide.x.shape == (50, 10)
    np.testing.assert_allclose(comma.x, wide.x, rtol=1e-6)
    np.testing.assert_allclose(wide.y, values[:, -1], atol=1e-5)
    kept = strongest_features(values[:, :-1], values[:, -1])
    assert {0, 12} <= set(kept)
    assert 4 not in kept
    np.testing.assert_allclose(wide.x, values[:, kept], atol=1e-5)


def test_columns_that_give_the_label_away_are_dropped(tmp_path: Path) -> None:
    rows = "\n".join(",".join(str(float((i * 7 + j * j * 3 + i * j) % 23)) for j in range(18)) for i in range(40))
    table = read_table(packed(tmp_path / "bike.csv.gz", rows))
    assert table.about == "10 of 15 features"


def test_houses_have_their_label_in_the_middle(tmp_path: Path) -> None:
    text = "longitude,rooms,median_house_value,ocean\n1,2,30,NEAR\n2,,40,NEAR\n3,5,50,INLAND\n4,4,10,INLAND\n"
    table = read_table(packed(tmp_path / "california_housing.csv.gz", text))
    np.testing.assert_array_equal(table.y, [30, 50, 10])
    np.testing.assert_array_equal(table.x, [[1, 2], [3, 5], [4, 4]])


def test_streams_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "timeseries").mkdir()
    ett = "date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n" + "".join(f"2016-07-01,{i},0,0,0,0,1,{2 * i}\n" for i in range(30))
    packed(tmp_path / "timeseries" / "ETTh1.csv.gz", ett)
    hours = "".join(f"{i},{'NA' if i == 3 else i},1,2,3,4,5,6\n" for i in range(40))
    packed(tmp_path / "timeseries" / "beijing_pm25.csv.gz", "No,pm2.5,DEWP,TEMP,PRES,Iws,Is,Ir\n" + hours)
    first, second = streams(tmp_path)
    np.testing.assert_array_equal(first.y, 2 * first.x[:, 0])
    assert second.x.shape == (15, 7)
    np.testing.assert_array_equal(second.x[:2, -1], [0, 1])
    np.testing.assert_array_equal(second.y[:2], [25, 26])  # 24 measurements later: hour 3 is missing


def test_without_the_folder_there_is_the_diabetes_set(tmp_path: Path) -> None:
    assert diabetes().x.shape == (442, 10)
    assert [given.name for given in tables(tmp_path)] == ["diabetes"]
    assert streams(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        folder("tabular", tmp_path / "nowhere")


def test_bad_numbers_are_refused() -> None:
    for rows in (-5, 100):
        with pytest.raises(ValueError, match=f"--rows is {rows}; accepted: more than 100"):
            RegressorSettings(stream_rows=rows)
    with pytest.raises(ValueError, match="draws is 1; accepted: 2 or more"):
        RegressorSettings(draws=1)
    with pytest.raises(ValueError, match="rounds is 0; accepted: 3 or more"):
        RegressorSettings(rounds=0)


def entry(value: float, behind: float) -> dict[str, float]:
    return {"r2": value, "interval": 0.01, "behind": behind, "behind_interval": 0.02, "fallback": 0.0}


def test_stars_are_for_those_not_clearly_behind() -> None:
    assert score(entry(0.5, 0.01), 0.51) == "0.500 ±0.010 *"
    assert score(entry(0.4, 0.11) | {"fallback": 0.25}, 0.51) == "0.400 ±0.010 (25%)"
    assert score({"r2": 0.7, "fallback": 0.0}, 0.7) == "0.700 *"
    assert score(None, 0.7) == "-"
    rows = [{"set": "a", "d": 2, "n": 20, "learners": {"x": entry(0.4, 0.1), "y": entry(0.5, 0.0)}}]
    assert score_table(rows).row_count == 1
    assert average([*rows, {**rows[0], "learners": {"x": entry(0.2, 0.1), "y": entry(0.1, 0.0)}}]) == [
        {"n": 20, "sets": 2, "learners": {"x": pytest.approx(0.3), "y": pytest.approx(0.3)}}
    ]


def test_the_command_writes_one_document_and_shows_it(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    options = ["--json", "--data", str(tmp_path / "empty"), "--draws", "2", "--models", model]
    regressors(options, result_action="return_value")
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == FORMAT
    assert [row["n"] for row in document["tables"]] == [20, 50, 200, 353]
    out = io.StringIO()
    show(document, Console(file=out, width=150))
    assert "diabetes" in out.getvalue()
    assert "microseconds, 10 features, 200 rows known" in out.getvalue()
