"""Windows of a stream: targets are what comes next, parts do not touch, statistics are the train part's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data.folders import data_folder
from linnet.data.stream import SPLITS, StreamSource, generated_stream, read_csv, statistics, stream_file

F64, F32 = 1e-10, 2e-5
SERIES = np.random.default_rng(0).normal(3, 2, (200, 3)).astype(np.float32)


def csv(path: Path) -> Path:
    rows = [f"t{i}," + ",".join(map(repr, row)) for i, row in enumerate(SERIES.tolist())]
    path.write_text("when,a,b,c\n" + "\n".join(rows))
    return path


def test_values_and_targets_step_by_step() -> None:
    source = StreamSource(SERIES, context=5, horizon=3, targets=["2", "0"])
    batch = source.batch([7, 0])
    assert batch["values"].shape == (2, 5, 3)
    assert batch["targets"].shape == (2, 5, 3, 2)
    assert batch["values"].dtype == batch["targets"].dtype == torch.float32
    scaled = torch.from_numpy((SERIES - SERIES[:140].mean(0)) / SERIES[:140].std(0))
    for b, start in enumerate([7, 0]):
        for t in range(5):
            torch.testing.assert_close(batch["values"][b, t], scaled[start + t], rtol=F32, atol=F32)
            for j in range(3):
                wanted = scaled[start + t + 1 + j, [2, 0]]
                torch.testing.assert_close(batch["targets"][b, t, j], wanted, rtol=F32, atol=F32)
    assert source.units(batch) == 30
    assert (source.unit, source.length) == ("values", 140 - 5 - 3 + 1)


@settings(max_examples=60)
@given(st.integers(40, 120), st.integers(1, 8), st.integers(1, 4))
def test_parts_do_not_touch_and_held_out_steps_count_once(n: int, context: int, horizon: int) -> None:
    series = np.arange(n, dtype=np.float32)[:, None]
    seen: dict[str, list[int]] = {}
    for split in SPLITS:
        steps = dict(zip(SPLITS, np.diff([0, round(n * 0.7), round(n * 0.8), n]), strict=True))[split]
        if steps < context + horizon:
            with pytest.raises(ValueError, match=f"the {split} part has {steps} steps"):
                StreamSource(series, context=context, horizon=horizon, split=split)
            continue
        source = StreamSource(series, context=context, horizon=horizon, split=split)
        batch = source.batch(range(source.length))
        values = (batch["values"][..., 0].double() * source.std[0] + source.mean[0]).round().long()
        ahead = source.restored(batch["targets"].double())[..., 0].round().long()
        assert torch.equal(ahead, values[..., None] + 1 + torch.arange(horizon))
        assert int(values.min()) == source.start
        assert int(ahead.max()) < source.stop
        seen[split] = values.flatten().tolist()
        if split == "train":
            assert set(seen[split]) == set(range(source.start, source.stop - horizon))
        else:
            assert len(set(seen[split])) == len(seen[split])
            assert source.stop - source.start - horizon - len(seen[split]) < context
    assert not set(seen.get("train", [])) & set(seen.get("test", []))


def test_only_the_train_part_is_measured() -> None:
    changed = SERIES.copy()
    changed[140:] *= 100
    a, b = (StreamSource(x, context=4, split="test") for x in (SERIES, changed))
    assert np.array_equal(a.mean, b.mean)
    assert np.array_equal(a.std, b.std)
    np.testing.assert_allclose(a.mean, SERIES[:140].astype(np.float64).mean(0), rtol=F64)
    np.testing.assert_allclose(a.std, SERIES[:140].astype(np.float64).std(0), rtol=F64)


def test_statistics_of_blocks_and_of_a_column_that_never_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.data.stream.BLOCK", 7)
    constant = np.concatenate([SERIES, np.full((200, 1), 0.1, np.float32)], axis=1)
    mean, std = statistics(constant)
    np.testing.assert_allclose(mean, constant.astype(np.float64).mean(0), rtol=F64)
    np.testing.assert_allclose(std[:3], SERIES.astype(np.float64).std(0), rtol=F64)
    assert std[3] == 1


@pytest.mark.parametrize("cached", [False, True])
def test_from_a_file(tmp_path: Path, cached: bool) -> None:
    kept = tmp_path / "cache" if cached else None
    source = StreamSource(csv(tmp_path / "s.csv"), context=8, horizon=2, targets="b", split="valid", cache=kept)
    plain = StreamSource(SERIES, context=8, horizon=2, targets="1", split="valid")
    assert (source.columns, source.skipped, source.targets) == (("a", "b", "c"), ("when",), [1])
    for x, y in zip(source.batch([0, 1]).values(), plain.batch([0, 1]).values(), strict=True):
        assert torch.equal(x, y)
    assert StreamSource(read_csv(tmp_path / "s.csv"), context=8).length == StreamSource(SERIES, context=8).length


def test_fingerprint_is_that_of_content_and_windows() -> None:
    changed = SERIES.copy()
    changed[100, 1] += 1
    prints = [
        StreamSource(SERIES, context=8).fingerprint,
        StreamSource(changed, context=8).fingerprint,
        StreamSource(SERIES, context=9).fingerprint,
        StreamSource(SERIES, context=8, targets=["1"]).fingerprint,
        StreamSource(SERIES, context=8, split="valid").fingerprint,
    ]
    assert len(set(prints)) == 5
    assert StreamSource(SERIES.copy(), context=8).fingerprint == prints[0]


def test_generated_stream_has_its_day_and_its_noise() -> None:
    table = generated_stream(24 * 7 * 40, 0)
    assert np.array_equal(table.values, generated_stream(24 * 7 * 40, 0).values)
    assert not np.array_equal(table.values, generated_stream(24 * 7 * 40, 1).values)
    spectrum = np.abs(np.fft.rfft(table.values[:, 0])) / len(table.values)
    assert spectrum[7 * 40] == pytest.approx(0.5, abs=0.05)  # amplitude 1 once a day
    assert spectrum[40] == pytest.approx(0.25, abs=0.05)  # 0.5 once a week
    rest = table.values[:, 0] - table.values.reshape(40, -1).mean(0).repeat(40).reshape(-1, 40).T.ravel()
    assert np.corrcoef(rest[1:], rest[:-1])[0, 1] == pytest.approx(0.8, abs=0.03)


def test_etth1() -> None:
    if data_folder("timeseries") is None:
        pytest.skip("no data folder with timeseries")
    source = StreamSource(stream_file("etth1"), context=96, horizon=24, targets="OT")
    assert len(source.series) == 17420
    assert source.skipped == ("date",)
    assert source.columns == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
    first = source.batch([0])["values"][0, 0].double().numpy() * source.std + source.mean
    assert first[-1] == pytest.approx(30.531, rel=1e-5)


def test_other_real_streams() -> None:
    if data_folder("timeseries") is None:
        pytest.skip("no data folder with timeseries")
    taxi = read_csv(stream_file("nyc-taxi"))
    assert (taxi.values.shape, taxi.columns, taxi.skipped) == ((10320, 1), ("value",), ("timestamp",))
    with pytest.raises(ValueError, match=r"has 2067 missing values, the first in data row 1, column 'pm2.5'"):
        read_csv(stream_file("beijing-pm25"))
    filled = read_csv(stream_file("beijing-pm25"), ["pm2.5"], missing="forward")
    assert filled.values.shape == (43800, 1)  # the first day has no value to repeat


def test_bad_options(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"valid part has 20 steps, a window needs 33 \(context 30, horizon 3\)"):
        StreamSource(SERIES, context=30, horizon=3, split="valid")
    with pytest.raises(ValueError, match="context is 0; accepted: a whole number, 1 or more"):
        StreamSource(SERIES, context=0)
    with pytest.raises(ValueError, match=r"unknown target column '3'. Accepted: 0, 1, 2"):
        StreamSource(SERIES, context=4, targets="3")
    with pytest.raises(ValueError, match="unknown split of a stream 'tset'; did you mean 'test'"):
        StreamSource(SERIES, context=4, split="tset")
    with pytest.raises(ValueError, match=r"parts are \(0.7, 0.1, 0.1\); accepted: three fractions"):
        StreamSource(SERIES, context=4, parts=(0.7, 0.1, 0.1))
    with pytest.raises(ValueError, match=r"data is an array \[200\]; accepted: finite numbers"):
        StreamSource(SERIES[:, 0], context=4)
    with pytest.raises(ValueError, match="unknown stream 'etth2'; did you mean 'etth1'"):
        stream_file("etth2")
    monkeypatch.setattr("linnet.data.stream.data_folder", lambda name: None)
    with pytest.raises(FileNotFoundError, match="no data folder with etth1; set LINNET_DATA, or use generated_stream"):
        stream_file("etth1")
