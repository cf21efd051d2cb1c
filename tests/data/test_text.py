"""Text sources: which window a row is, what is held out, what the fingerprint tells apart, which texts are refused."""

from __future__ import annotations

import bz2
import gc
import gzip
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linnet.data.bpe import BPETokenizer
from linnet.data.folders import data_folder
from linnet.data.order import rows
from linnet.data.text import TextSource
from linnet.data.tokenizer import ByteTokenizer, Tokenizer

BYTES = ByteTokenizer()
TEXT = "".join(chr(32 + (i * i + i // 7) % 90) for i in range(1000))
BPE = BPETokenizer.train(["the whale " * 30 + TEXT], 300)


def written(folder: Path, text: str | bytes = TEXT, name: str = "t.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def targets(source: TextSource) -> list[int]:
    """All targets of a source, row by row."""
    targets = source.batch(range(source.length))["targets"].flatten()
    return targets[targets != -100].tolist()


@pytest.mark.parametrize("tokenizer", [BYTES, BPE], ids=["byte", "bpe"])
def test_a_training_row_is_the_window_that_starts_there(tmp_path: Path, tokenizer: Tokenizer) -> None:
    ids = torch.tensor(tokenizer.encode(TEXT))
    source = TextSource(written(tmp_path), tokenizer, 16, valid_fraction=0)
    assert source.length == len(ids) - 16
    batch = source.batch([0, 5, source.length - 1, 5])
    assert {name: (x.dtype, x.shape) for name, x in batch.items()} == {
        "tokens": (torch.int64, (4, 16)),
        "targets": (torch.int64, (4, 16)),
    }
    for b, i in enumerate([0, 5, source.length - 1, 5]):
        assert torch.equal(batch["tokens"][b], ids[i : i + 16])
        assert torch.equal(batch["targets"][b], ids[i + 1 : i + 17])
    assert source.units(batch) == 64
    assert source.unit == "tokens"


def test_the_end_is_held_out_and_every_token_of_it_counted_once(tmp_path: Path) -> None:
    path = written(tmp_path)
    train, valid = (TextSource(path, BYTES, 16, split) for split in ("train", "valid"))
    ids = BYTES.encode(TEXT)
    assert targets(valid) == ids[900:]  # the first one is predicted from the last training token
    assert valid.batch([0])["tokens"][0, 0] == ids[899]
    assert set(range(train.length)) == set(range(900 - 16))
    assert train.batch([train.length - 1])["targets"][0].tolist() == ids[884:900]
    last = valid.batch([valid.length - 1])
    assert valid.length == 7
    assert valid.units(last) == 100 - 6 * 16
    assert last["targets"][0].tolist() == ids[996:] + [-100] * 12
    assert last["tokens"][0].tolist() == ids[995:999] + [0] * 12


@given(
    sizes=st.lists(st.integers(9, 60), min_size=1, max_size=4),
    seq_len=st.integers(1, 8),
    fraction=st.floats(0.05, 0.95),
)
def test_several_files_are_one_text_with_windows_inside_each(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seq_len: int, fraction: float
) -> None:
    folder = tmp_path_factory.mktemp("several")
    texts = [bytes(32 + 20 * f + i % 20 for i in range(n)) for f, n in enumerate(sizes)]
    paths = [written(folder, text, f"{f}.txt") for f, text in enumerate(texts)]
    total = sum(sizes)
    cut = total - round(total * fraction)
    starts = [sum(sizes[:f]) for f in range(len(sizes))]
    whole = b"".join(texts)
    train = valid = None
    if any(min(max(cut - a, 0), n) > seq_len for a, n in zip(starts, sizes, strict=True)):
        train = TextSource(paths, BYTES, seq_len, valid_fraction=fraction)
        windows = [
            whole[i : i + seq_len + 1]
            for a, n in zip(starts, sizes, strict=True)
            for i in range(a, min(a + n, cut) - seq_len)
        ]
        batch = train.batch(range(train.length))
        assert [bytes(x) for x in batch["tokens"].tolist()] == [w[:-1] for w in windows]
        assert [bytes(x) for x in batch["targets"].tolist()] == [w[1:] for w in windows]
    held = [i for i in range(cut, total) if i not in starts]  # the first token of a file follows nothing
    if held:
        valid = TextSource(paths, BYTES, seq_len, "valid", valid_fraction=fraction)
        assert targets(valid) == [whole[i] for i in held]
    assert train or valid


def test_fractions_of_nothing_and_everything(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert targets(TextSource(path, BYTES, 7, "valid", valid_fraction=1)) == BYTES.encode(TEXT)[1:]
    for split, fraction in (("train", 1), ("valid", 0), ("valid", 1e-9), ("train", 0.99)):
        with pytest.raises(
            ValueError, match=rf"split '{split}' with valid_fraction = {fraction} has no window of 16 tok"
        ):
            TextSource(path, BYTES, 16, split, valid_fraction=fraction)


def test_packed_files_hold_the_same_rows(tmp_path: Path) -> None:
    plain = TextSource(written(tmp_path), BYTES, 16)
    for name, data in (("t.gz", gzip.compress(TEXT.encode())), ("t.bz2", bz2.compress(TEXT.encode()))):
        packed = TextSource(written(tmp_path, data, name), BYTES, 16, cache=tmp_path / "cache")
        assert packed.fingerprint == plain.fingerprint
        assert torch.equal(packed.batch([0, 9])["tokens"], plain.batch([0, 9])["tokens"])
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_plain_bytes_are_mapped_where_they_are(tmp_path: Path) -> None:
    source = TextSource(written(tmp_path), BYTES, 16, cache=tmp_path / "cache")
    assert source.length > 0
    assert not (tmp_path / "cache").exists()


def test_the_temporary_cache_goes_with_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = TextSource(path, BPE, 16)
    assert len(list(tmp_path.glob("linnet-tokens-*/*.tokens"))) == 1
    source.batch([0])
    del source
    gc.collect()
    assert list(tmp_path.iterdir()) == [path]


def test_the_fingerprint_tells_what_a_row_means(tmp_path: Path) -> None:
    def fingerprint(text: str = TEXT, tokenizer: Tokenizer = BYTES, seq_len: int = 16, **options: Any) -> str:
        return TextSource(written(tmp_path, text), tokenizer, seq_len, **options).fingerprint

    others = [
        fingerprint(TEXT[:-1] + "!"),
        fingerprint(TEXT[:500] + "!" + TEXT[501:]),
        fingerprint(TEXT + "!"),
        fingerprint(tokenizer=BPE),
        fingerprint(seq_len=17),
        fingerprint(split="valid"),
        fingerprint(valid_fraction=0.2),
    ]
    assert len({fingerprint(), *others}) == 1 + len(others)
    assert fingerprint() == fingerprint(valid_fraction=0.1)
    written(tmp_path)
    elsewhere = written(tmp_path, name="other name")
    assert TextSource(elsewhere, BYTES, 16).fingerprint == fingerprint()


def test_two_files_in_another_order_are_other_data(tmp_path: Path) -> None:
    a, b = written(tmp_path, TEXT, "a"), written(tmp_path, TEXT[::-1], "b")
    assert TextSource([a, b], BYTES, 9).fingerprint != TextSource([b, a], BYTES, 9).fingerprint


def test_files_of_one_name_share_a_cache(tmp_path: Path) -> None:
    """They take turns in it, and neither gets the other's ids."""
    paths = []
    for folder, text in (("a", TEXT), ("b", TEXT[::-1])):
        (tmp_path / folder).mkdir()
        paths.append(written(tmp_path / folder, text))
    source = TextSource(paths, BPE, 16, valid_fraction=0, cache=tmp_path)
    first, second = (BPE.encode(text) for text in (TEXT, TEXT[::-1]))
    assert source.batch([0])["tokens"][0].tolist() == first[:16]
    assert source.batch([len(first) - 16])["tokens"][0].tolist() == second[:16]


def test_an_epoch_in_the_common_order(tmp_path: Path) -> None:
    source = TextSource(written(tmp_path), BYTES, 16)
    starts = [row for step in range(source.length // 4) for row in rows(0, step, 4, source.length)]
    seen = torch.cat([source.batch(starts[i : i + 4])["tokens"] for i in range(0, len(starts), 4)])
    ids = torch.tensor(BYTES.encode(TEXT))
    assert torch.equal(seen, torch.stack([ids[i : i + 16] for i in starts]))


def test_texts_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.txt"):
        TextSource(tmp_path / "none.txt", BYTES, 16)
    with pytest.raises(ValueError, match=r"empty\.txt is empty; accepted: a file with text in it"):
        TextSource(written(tmp_path, "", "empty.txt"), BYTES, 16)
    with pytest.raises(ValueError, match=r"empty\.gz is empty"):
        TextSource(written(tmp_path, gzip.compress(b""), "empty.gz"), BYTES, 16)
    with pytest.raises(ValueError, match=r"short has 16 tokens, too few for seq_len = 16; accepted: 17 or more; use"):
        TextSource([written(tmp_path), written(tmp_path, "a" * 16, "short")], BYTES, 16)
    with pytest.raises(ValueError, match=r"latin is not UTF-8: byte 1003 is 0xe9"):
        TextSource(written(tmp_path, TEXT.encode() + b"caf\xe9 au lait", "latin"), BPE, 16)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_binary_data_needs_allow_binary(tmp_path: Path, pack: Any) -> None:
    path = written(tmp_path, pack(bytes(range(256)) * 20), "garbage.bin")
    with pytest.raises(ValueError, match=r"garbage\.bin has 20 NUL bytes: .* pass allow_binary=True"):
        TextSource(path, BYTES, 16)
    source = TextSource(path, BYTES, 16, allow_binary=True)
    assert source.batch([0])["tokens"][0].tolist() == list(range(16))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seq_len": 0}, "seq_len is 0; accepted: a whole number, 1 or more"),
        ({"seq_len": 2.5}, "seq_len is 2.5; accepted"),
        ({"split": "vaild"}, "unknown split 'vaild'; did you mean 'valid'"),
        ({"valid_fraction": 1.5}, "valid_fraction is 1.5; accepted: a number from 0 to 1"),
        ({"valid_fraction": float("nan")}, "valid_fraction is nan"),
        ({"paths": []}, "paths is an empty list; accepted: one text file or more"),
    ],
)
def test_arguments_that_cannot_be(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TextSource(**({"paths": written(tmp_path), "tokenizer": BYTES, "seq_len": 16} | change))


def test_rows_beyond_the_split(tmp_path: Path) -> None:
    source = TextSource(written(tmp_path), BYTES, 16)
    for row in (-1, source.length):
        with pytest.raises(ValueError, match=rf"row {row} is not in the train split; accepted: 0 to 883"):
            source.batch([row])


@pytest.mark.skipif(data_folder("text") is None, reason="the data set `text` is not on this machine")
def test_a_real_gzip_and_bzip2() -> None:
    folder = data_folder("text")
    assert folder is not None
    source = TextSource(folder / "tinyshakespeare.txt.gz", BYTES, 32, valid_fraction=0)
    assert source.length == 1_115_394 - 32
    assert BYTES.decode(source.batch([0])["tokens"][0]) == "First Citizen:\nBefore we proceed"
