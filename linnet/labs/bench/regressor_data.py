"""Data sets of `linnet bench regressors`: tables for learning from few rows, hourly streams for online learning.

Tables come from the folder `tabular`, with at most 10 features each: of a wider one, the 10 with the largest absolute
correlation with the label over all its rows, the same for every learner. Without the folder, scikit-learn's diabetes
data set (442 x 10) is used. Streams come from the folder `timeseries`.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...data import data_folder, read_csv

Array: TypeAlias = "np.ndarray[Any, Any]"

FEATURES = 10  # as the shipped models
LEAKS = {"bike": (15, 16)}  # casual and registered riders add up to the label
ETT_INPUTS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL")
BEIJING_INPUTS = ("DEWP", "TEMP", "PRES", "Iws", "Is", "Ir")


class RegressionSet(NamedTuple):
    """x [N,d], y [N], float64; `about` describes the task."""

    name: str
    x: Array
    y: Array
    about: str


def folder(name: str, root: Path | None = None) -> Path | None:
    """Return the data folder `name`, inside `root` if given."""
    if root is None:
        return data_folder(name)
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}; accepted: one that holds tabular or timeseries")
    return root / name if (root / name).is_dir() else None


def tables(root: Path | None = None) -> list[RegressionSet]:
    """Return every table of the folder, or scikit-learn's diabetes data set."""
    place = folder("tabular", root)
    if place is None:
        return [diabetes()]
    files = sorted([*place.glob("*.csv.gz"), *place.glob("*.txt.gz")])
    return [read_table(file) for file in files]


def read_table(file: Path) -> RegressionSet:
    """Read a table whose last column is the label (california_housing: median_house_value), with up to 10 features."""
    name = file.name.split(".")[0]
    if name == "california_housing":
        table = read_csv(file, missing="drop")
        label = table.columns.index("median_house_value")
        values = np.asarray(table.values, dtype=np.float64)
    elif file.name.endswith(".txt.gz"):
        with gzip.open(file, "rt", encoding="utf-8") as text:
            values, label = np.loadtxt(text), -1
    else:
        values, label = np.asarray(read_csv(file).values, dtype=np.float64), -1
    y, x = values[:, label], np.delete(values, [label, *LEAKS.get(name, ())], axis=1)
    kept = strongest_features(x, y)
    return RegressionSet(name, x[:, kept], y, f"{len(kept)} of {x.shape[1]} features")


def strongest_features(x: Array, y: Array, most: int = FEATURES) -> Array:
    """Return the columns with the largest absolute correlation with y, in table order, without constant ones."""
    varying = np.flatnonzero(x.std(0) > 0)
    strength = np.abs([np.corrcoef(x[:, j], y)[0, 1] for j in varying])
    return np.sort(varying[np.argsort(-strength, kind="stable")[:most]])


def diabetes() -> RegressionSet:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    return RegressionSet("diabetes", x, y.astype(np.float64), "10 of 10 features, scikit-learn's own set")


def streams(root: Path | None = None) -> list[RegressionSet]:
    """Return hourly streams in order of time; empty without the folder."""
    place = folder("timeseries", root)
    if place is None:
        return []
    return [ett(place / "ETTh1.csv.gz"), beijing(place / "beijing_pm25.csv.gz")]


def ett(file: Path) -> RegressionSet:
    """Read a power transformer's oil temperature and its six loads of the same hour: a virtual sensor."""
    values = np.asarray(read_csv(file, [*ETT_INPUTS, "OT"]).values, dtype=np.float64)
    return RegressionSet("ETTh1", values[:, :-1], values[:, -1], "oil temperature from the six loads of that hour")


def beijing(file: Path) -> RegressionSet:
    """Read PM2.5, the weather of the hour and PM2.5 of 24 measurements before."""
    columns = [*BEIJING_INPUTS, "pm2.5"]
    values = np.asarray(read_csv(file, columns, missing="drop").values, dtype=np.float64)
    x = np.column_stack([values[24:, :-1], values[:-24, -1]])
    return RegressionSet("beijing_pm25", x, values[24:, -1], "PM2.5 from the weather and PM2.5 a day before")
