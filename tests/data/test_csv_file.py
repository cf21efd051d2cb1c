"""CSV to numbers: which columns, missing values of every kind, packed files, the cache, and files that are not CSV."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from linnet.data import csv_file
from linnet.data.csv_file import read_csv

PLAIN = "date,a,b,place\n2020-01-01,1,2.5,x\n2020-01-02,3,-4e1,y\n"
GAPS = "a,b\nNA,1\n2,\n3,nan\n,4\n5,inf\n6,6\n"


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz", "other.txt"])
def test_numeric_columns_are_found_and_the_others_named(tmp_path: Path, name: str) -> None:
    table = read_csv(write(tmp_path / name, PLAIN))
    assert table.columns == ("a", "b")
    assert table.skipped == ("date", "place")
    assert table.values.dtype == np.float32
    assert table.values.tolist() == [[1, 2.5], [3, -40]]


def test_columns_by_name_and_the_time_column(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", PLAIN)
    assert read_csv(path, ["b"]).values.tolist() == [[2.5], [-40]]
    assert read_csv(path, ["b", "a"]).values.tolist() == [[2.5, 1], [-40, 3]]
    assert read_csv(path, time_column="a")[1:] == (("b",), ("date", "a", "place"))
    with pytest.raises(ValueError, match=r"unknown column of .*s.csv 'plac'; did you mean 'place'"):
        read_csv(path, ["plac"])
    with pytest.raises(ValueError, match=r"data row 1, column 'place' has 'x', which is not a number"):
        read_csv(path, ["place"])


@pytest.mark.parametrize(
    "text",
    ["1,2\n3,4\n", "\ufeffx;y\r\n1;2\r\n\r\n3;4", 'x\ty\n1\t" 2"\n3\t4\n'],
    ids=["no names", "semicolons", "tabs"],
)
def test_other_ways_to_write_a_table(tmp_path: Path, text: str) -> None:
    table = read_csv(write(tmp_path / "s.csv", text))
    assert table.values.tolist() == [[1, 2], [3, 4]]
    assert table.columns in (("0", "1"), ("x", "y"))


def test_member_of_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("in/s.csv", PLAIN)
    assert read_csv(tmp_path / "a.zip" / "in" / "s.csv", cache=tmp_path).columns == ("a", "b")
    with pytest.raises(ValueError, match=r"unknown member of .*a.zip 'in/t.csv'; did you mean 'in/s.csv'"):
        read_csv(tmp_path / "a.zip" / "in" / "t.csv")


def test_missing_values_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", GAPS)
    with pytest.raises(ValueError, match=r"has 5 missing values, the first in data row 1, column 'a'; pass missing='f"):
        read_csv(path)
    with pytest.raises(ValueError, match="has 3 missing values, the first in data row 2, column 'b'"):
        read_csv(path, ["b"])
    with pytest.raises(ValueError, match="unknown way to handle missing values 'foward'; did you mean 'forward'"):
        read_csv(path, missing="foward")


def test_forward_and_drop(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", GAPS)
    assert read_csv(path, missing="drop").values.tolist() == [[6, 6]]
    # the first row has no value before it for `a`: it goes, but its `b` is what the second row repeats
    assert read_csv(path, missing="forward").values.tolist() == [[2, 1], [3, 1], [3, 4], [5, 4], [6, 6]]


def test_pieces_join_without_a_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{i},{'' if i % 3 else i}" for i in range(50)]
    path = write(tmp_path / "s.csv", "a,b\n" + "\n".join(rows))
    whole = read_csv(path, missing="forward").values
    monkeypatch.setattr(csv_file, "PIECE", 7)
    assert np.array_equal(read_csv(path, missing="forward").values, whole)
    assert whole[:, 1].tolist() == [i - i % 3 for i in range(50)]
    assert len(read_csv(path, missing="drop").values) == 17
    with pytest.raises(ValueError, match="has 33 missing values, the first in data row 2"):
        read_csv(path)


def test_cache_is_mapped_used_again_and_never_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = write(tmp_path / "s.csv", PLAIN), tmp_path / "cache"
    first = read_csv(path, cache=cache)
    assert isinstance(first.values, np.memmap)
    assert first.values.tolist() == read_csv(path).values.tolist()
    assert sorted(f.suffix for f in cache.iterdir()) == [".f32", ".json"]
    with monkeypatch.context() as patch:
        patch.delattr(csv_file, "_Reader")  # nothing is parsed the second time
        again = read_csv(path, cache=cache)
        assert again.values.tolist() == first.values.tolist()
        assert again[1:] == first[1:]
        with pytest.raises(NameError):
            read_csv(path, missing="drop", cache=cache)  # other options are another table
    (numbers,) = cache.glob("*.f32")
    numbers.write_bytes(numbers.read_bytes()[:-4])
    assert read_csv(path, cache=cache).values.tolist() == [[1, 2.5], [3, -40]]
    (note,) = cache.glob("*.json")
    note.write_bytes(b"[]")
    assert read_csv(path, cache=cache).values.tolist() == [[1, 2.5], [3, -40]]
    write(path, PLAIN.replace("2.5", "7.25"))
    assert read_csv(path, cache=cache).values.tolist() == [[1, 7.25], [3, -40]]


def test_any_damaged_byte_of_a_cache_is_built_again(tmp_path: Path) -> None:
    path, cache = write(tmp_path / "s.csv", PLAIN), tmp_path / "cache"
    first = read_csv(path, cache=cache)
    wanted, parts = (first.values.tolist(), first[1:]), sorted(cache.iterdir())
    for file in parts:
        data = file.read_bytes()
        for i in range(0, len(data), 2):
            file.unlink()  # what is mapped stays as it is
            file.write_bytes(data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :])
            again = read_csv(path, cache=cache)
            assert (again.values.tolist(), again[1:]) == wanted, (file.name, i)
            assert file.read_bytes() == data


def test_a_refused_file_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="missing values"):
        read_csv(write(tmp_path / "s.csv", GAPS), cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; accepted: a CSV file"),
        (b"a,b\n", "has names and no rows"),
        (b"a,b\nx,y\n", r"has no column of numbers among \['a', 'b'\]"),
        (b"a,b\n1,2\n1\n", "data row 2 has 1 fields, the first row 2"),
        (b"a,b\n1,\n,2\n", "has 2 missing values"),
        (b"a\n\xff\xfe\x00\x81", "is damaged or not a CSV file"),
        (b"a\n" + b"1\n" * 5000 + b"one\n", "data row 5001, column 'a' has 'one', which is not a number"),
    ],
)
def test_bad_files(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "s.csv").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_csv(tmp_path / "s.csv")


def test_nothing_left_after_dropping_a_cut_gzip_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no row without a missing value"):
        read_csv(write(tmp_path / "s.csv", "a,b\n1,\n,2\n"), missing="drop")
    (tmp_path / "s.csv.gz").write_bytes(gzip.compress(PLAIN.encode() * 50)[:-12])
    with pytest.raises(ValueError, match=r"s.csv.gz is damaged or not a CSV file"):
        read_csv(tmp_path / "s.csv.gz")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.csv; accepted: .csv"):
        read_csv(tmp_path / "none.csv", cache=tmp_path)
