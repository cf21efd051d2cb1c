"""Time series: a stream of measurements split by time into train, valid and test, in windows with future targets.

    values [B,T,C],  targets [B,T,h,C_out]:   targets[b,t,j] = x[start_b + t + 1 + j],  x standardised

Mean and deviation are those of the train part only. Train windows start at every step; valid and test windows lie end
to end, so every step is scored at most once (a tail shorter than a window is left out), and none reaches into another
part. B windows, T context, h horizon, C columns, C_out target columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import unknown, whole
from .csv_file import Array, PathLike, Table
from .csv_file import read_csv as read_csv
from .files import sample_hash
from .folders import data_folder

PARTS = (0.7, 0.1, 0.2)
SPLITS = ("train", "valid", "test")
BLOCK = 1 << 16  # rows summed at a time
FILES = {  # name -> file in the data folder `timeseries`
    "etth1": "ETTh1.csv.gz",
    "beijing-pm25": "beijing_pm25.csv.gz",
    "nyc-taxi": "nab_real.zip/data/realKnownCause/nyc_taxi.csv",
}


class StreamSource:
    """Windows of a stream: a CSV file, a Table, or an array [N,C]."""

    unit = "values"

    def __init__(
        self,
        data: PathLike | Table | Array,
        *,
        context: int,
        horizon: int = 1,
        targets: str | Sequence[str] | None = None,
        split: str = "train",
        parts: tuple[float, float, float] = PARTS,
        columns: Sequence[str] | None = None,
        time_column: str | None = None,
        missing: str = "error",
        cache: PathLike | None = None,
    ) -> None:
        """`targets`: the columns to forecast, by default all; the last four options are those of `read_csv`."""
        table = _table(data, columns, time_column, missing, cache)
        if split not in SPLITS:
            raise unknown("split of a stream", split, SPLITS)
        whole("context", context, 1)
        whole("horizon", horizon, 1)
        self.series, self.columns, self.skipped = table.values, table.columns, table.skipped  # series [N,C]
        self.context, self.horizon, self.split = context, horizon, split
        self.targets = _indices([targets] if isinstance(targets, str) else targets, table.columns)
        ends = _ends(len(table.values), parts)
        self.mean, self.std = statistics(table.values[: ends[1]])
        place = SPLITS.index(split)
        self.start, self.stop = ends[place], ends[place + 1]
        self.stride = 1 if split == "train" else context
        spare = self.stop - self.start - context - horizon
        if spare < 0:
            raise ValueError(
                f"the {split} part has {self.stop - self.start} steps, a window needs {context + horizon} "
                f"(context {context}, horizon {horizon}); use a shorter context or a longer stream"
            )
        self.length = spare // self.stride + 1
        self.fingerprint = self._fingerprint()

    @property
    def example(self) -> str:
        """A description of an example."""
        return f"windows of {self.context} steps, {'one from every step' if self.stride == 1 else 'end to end'}"

    def position(self, row: int) -> int:
        """Return the start of window `row` in the series."""
        return self.start + row * self.stride

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        reach = self.context + self.horizon
        raw = np.stack([self.series[at : at + reach] for at in map(self.position, rows)])  # [B, T + h, C]
        x = torch.from_numpy(self.standardised(raw))
        ahead = x[:, 1:, self.targets].unfold(1, self.horizon, 1)  # [B, T, C_out, h]
        return {"values": x[:, : self.context], "targets": ahead.transpose(2, 3).contiguous()}

    def units(self, batch: dict[str, Tensor]) -> int:
        return batch["values"].numel()

    def standardised(self, raw: Array) -> Array:  # [...,C] -> [...,C] float32
        return ((raw - self.mean) / self.std).astype(np.float32)

    def restored(self, forecast: Tensor) -> Tensor:  # [...,C_out] -> [...,C_out]
        """Return forecasts in the units of the file."""
        mean, std = (torch.from_numpy(x[self.targets]).to(forecast) for x in (self.mean, self.std))
        return forecast * std + mean

    def _fingerprint(self) -> str:
        content = sample_hash(np.ascontiguousarray(self.series).view(np.uint8).reshape(-1))
        options = (self.columns, self.targets, self.context, self.horizon, self.split, self.start, self.stop)
        return sha256(repr((content, *options)).encode()).hexdigest()


def statistics(series: Array) -> tuple[Array, Array]:  # [N,C] -> mean [C], deviation [C], float64
    """Return mean and deviation, computed in two passes in float64, in blocks; a constant column has deviation 1."""
    blocks = range(0, len(series), BLOCK)
    mean = sum((series[i : i + BLOCK].astype(np.float64).sum(0) for i in blocks), np.zeros(series.shape[1])) / len(
        series
    )
    squares = sum((((series[i : i + BLOCK] - mean) ** 2).sum(0) for i in blocks), np.zeros(series.shape[1]))
    std = np.sqrt(squares / len(series))
    return mean, np.where(std > 1e-12 * np.maximum(1.0, np.abs(mean)), std, 1.0)


def stream_file(name: str) -> Path:
    """Return the CSV file of a named set in the data folder: etth1, beijing-pm25 (has missing values) or nyc-taxi."""
    if name not in FILES:
        raise unknown("stream", name, FILES)
    folder = data_folder("timeseries")
    if folder is None:
        raise FileNotFoundError(f"there is no data folder with {name}; set LINNET_DATA, or use generated_stream")
    return folder / FILES[name]


def generated_stream(n: int, seed: int) -> Table:
    """Generate one column of hourly data: a day of 24 steps, a week of 168, and AR(1) noise with coefficient 0.8."""
    generator = torch.Generator().manual_seed(seed)
    shocks = 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    noise, last = [], 0.0
    for shock in shocks.tolist():
        last = 0.8 * last + shock
        noise.append(last)
    t = np.arange(n)
    day, week = np.sin(2 * math.pi * t / 24), np.sin(2 * math.pi * t / 168 + 1.0)
    return Table((day + 0.5 * week + noise).astype(np.float32)[:, None], ("value",), ())


def _table(
    data: PathLike | Table | Array,
    columns: Sequence[str] | None,
    time_column: str | None,
    missing: str,
    cache: PathLike | None,
) -> Table:
    if isinstance(data, Table):
        return data
    if not isinstance(data, np.ndarray):
        return read_csv(data, columns, time_column=time_column, missing=missing, cache=cache)
    if data.ndim != 2 or not np.isfinite(data).all():
        raise ValueError(f"data is an array {list(data.shape)}; accepted: finite numbers [steps, columns]")
    return Table(data.astype(np.float32), tuple(str(i) for i in range(data.shape[1])), ())


def _indices(names: Sequence[str] | None, columns: Sequence[str]) -> list[int]:
    for name in names or ():
        if name not in columns:
            raise unknown("target column", name, columns)
    return [columns.index(name) for name in names] if names else list(range(len(columns)))


def _ends(n: int, parts: tuple[float, float, float]) -> list[int]:
    """Return the boundaries of the parts: [0, end of train, end of valid, n]."""
    if len(parts) != 3 or min(parts) <= 0 or abs(sum(parts) - 1) > 1e-9:
        raise ValueError(f"parts are {parts}; accepted: three fractions above 0 that sum to 1, such as {PARTS}")
    return [0, round(n * parts[0]), round(n * (parts[0] + parts[1])), n]
