"""Headers of GGUF files written by hand: what is read, and one sentence for each kind of damage, in bounded time."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from linnet.limits import LIMITS
from linnet.pretrained.gguf_header import KINDS, Place, read_header

UINT8, UINT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 4, 6, 7, 8, 9, 10


def text(words: str | bytes) -> bytes:
    data = words.encode() if isinstance(words, str) else words
    return struct.pack("<Q", len(data)) + data


def array(kind: int, count: int, *items: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + b"".join(items)


def value(key: str | bytes, kind: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + data


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def tensor(name: str, *shape: int, kind: int = 0, offset: int = 0) -> bytes:
    """Return the entry of a tensor; `shape` from the innermost axis."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(
    values: list[bytes], tensors: list[bytes], count: int | None = None, many: int | None = None, start: bytes = b"GGUF"
) -> bytes:
    count, many = len(values) if count is None else count, len(tensors) if many is None else many
    return start + struct.pack("<IQQ", 3, many, count) + b"".join(values + tensors)


VALUES = [
    value("a.name", STRING, text("llama")),
    value("a.size", UINT32, u32(7)),
    value("a.eps", FLOAT32, struct.pack("<f", 0.25)),
    value("a.flag", BOOL, b"\1"),
    value("a.words", ARRAY, array(STRING, 2, text("x"), text("\u2581y"))),
    value("a.numbers", ARRAY, array(UINT32, 2, u32(1), u32(2))),
    value("a.nested", ARRAY, array(ARRAY, 2, array(UINT8, 2, b"\3\4"), array(BOOL, 1, b"\0"))),
]
TENSORS = [tensor("w", 4, 2), tensor("n", 32, kind=8, offset=32)]
DATA = bytes(32 + 34)


def file(folder: Path, head: bytes, data: bytes = DATA, alignment: int = 32) -> Path:
    path = folder / "m.gguf"
    path.write_bytes(head + bytes(-len(head) % alignment) + data)
    return path


def test_values_and_places(tmp_path: Path) -> None:
    head = header(VALUES, TENSORS)
    values, tensors = read_header(file(tmp_path, head))
    wanted: dict[str, Any] = {
        "a.name": "llama",
        "a.size": 7,
        "a.eps": 0.25,
        "a.flag": True,
        "a.words": ["x", "\u2581y"],
    }
    assert values == {**wanted, "a.numbers": [1, 2], "a.nested": [[3, 4], [False]]}
    assert values["a.flag"] is True
    start = -(-len(head) // 32) * 32
    assert tensors == {"w": Place((2, 4), 0, start, 32), "n": Place((32,), 8, start + 32, 34)}


def test_another_alignment(tmp_path: Path) -> None:
    head = header([value("general.alignment", UINT32, u32(256))], [tensor("w", 4, 2)])
    assert read_header(file(tmp_path, head, alignment=256)).tensors["w"].start == 256


def nested(depth: int) -> bytes:
    return array(UINT8, 1, b"\0") if depth == 0 else array(ARRAY, 1, nested(depth - 1))


DAMAGED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"GG", "the file needs 4 bytes, and 2 are left"),
    "magic": (header([], [], start=b"GGML"), "it does not begin with GGUF"),
    "version": (b"GGUF" + u32(1), "its version is 1;"),
    "big-endian": (b"GGUF" + u32(3)[::-1], "its version is 50331648, big-endian"),
    "many tensors": (header([], [], many=2**60), f"the number of tensors is {2**60:,}, and "),
    "many values": (header([], [], count=2**64 - 1), f"the number of values is {2**64 - 1:,}, and "),
    "long key": (header([struct.pack("<Q", 2**63) + b"a"], [], 1), "the length of key 0 is 9,223,372,036,854,775,808"),
    "cut key": (header([struct.pack("<Q", 2000) + b"a"], [], 1), "key 0 needs 2,000 bytes, and "),
    "no UTF-8": (header([value(b"\xff\xff", UINT32, u32(7))], []), "key 0 is not UTF-8"),
    "twice": (header([VALUES[1], VALUES[1]], []), "'a.size' is there twice"),
    "type": (header([value("a", 77, u32(7))], []), "'a' is of the unknown type 77"),
    "flag": (header([value("a", BOOL, b"\7")], []), "'a' is 7, neither true nor false"),
    "string": (header([value("a", STRING, struct.pack("<Q", 2**40))], []), "the length of 'a' is 1,099,511,627,776"),
    "array": (header([value("a", ARRAY, array(UINT64, 2**40, u32(0)))], []), "the length of 'a' is 1,099,511,627,776"),
    "strings": (header([value("a", ARRAY, array(STRING, 2**61))], []), "the length of 'a' is 2,305,843,009,213,693"),
    "array type": (header([value("a", ARRAY, array(13, 1, bytes(8)))], []), "'a' is of the unknown type 13"),
    "deep": (header([value("a", ARRAY, nested(9))], []), "'a' has arrays in arrays, more than 8 deep"),
    "alignment": (
        header([value("general.alignment", UINT32, u32(24))], []), "general.alignment is 24, not a power of two",
    ),
    "alignment type": (header([value("general.alignment", BOOL, b"\1")], []), "general.alignment is True, not a power"),
    "axes": (header([], [tensor("w", *[1] * 5)]), "tensor 'w' has 5 axes, not 1 to 4"),
    "no axes": (header([], [tensor("w")]), "tensor 'w' has 0 axes, not 1 to 4"),
    "empty": (header([], [tensor("w", 4, 0)]), r"tensor 'w' has shape [0, 4], not rows of whole F32 blocks of 1"),
    "blocks": (header([], [tensor("w", 33, kind=8)]), "tensor 'w' has shape [33], not rows of whole Q8_0 blocks of 32"),
    "kind": (header([], [tensor("w", 4, kind=99)]), "tensor 'w' is of the unknown kind 99"),
    "name twice": (header([], [tensor("w", 4), tensor("w", 4, offset=32)]), "tensor 'w' is there twice"),
    "offset": (header([], [tensor("w", 4, offset=8)]), "the offset of tensor 'w' is 8, no multiple of 32"),
    "outside": (header([], [tensor("w", 4, offset=2**62)]), "tensor 'w' has 16 bytes from 4,611,686,018,427,387,968"),
    "large": (header([], [tensor("w", 2**40, 2**40)]), f"tensor 'w' has {2**82:,} bytes from 96 on, and the file has"),
    "shared": (header([], [tensor("w", 16), tensor("v", 4, offset=32)]), "tensors 'w' and 'v' share bytes"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGED)
def test_damage_has_its_sentence(what: str, tmp_path: Path) -> None:
    head, sentence = DAMAGED[what]
    path = tmp_path / "m.gguf"
    path.write_bytes(head + (bytes(-len(head) % 32) + DATA if len(head) > 24 else b""))
    with pytest.raises(ValueError, match=rf"m\.gguf is not a whole GGUF file: .*{re.escape(sentence)}"):
        read_header(path)


def test_wherever_a_file_ends(tmp_path: Path) -> None:
    whole = file(tmp_path, header(VALUES, TENSORS)).read_bytes()
    path = tmp_path / "cut.gguf"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.gguf is not a whole GGUF file: .*; copy or download it again"):
            read_header(path)


def test_so_many_items_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, header([value("a", ARRAY, array(UINT8, 90, bytes(90)))], []))
    monkeypatch.setattr(LIMITS, "GGUF_ITEMS", 91)  # with the key
    assert len(read_header(path).values["a"]) == 90
    monkeypatch.setattr(LIMITS, "GGUF_ITEMS", 90)
    with pytest.raises(ValueError, match=r"it holds more than linnet\.limits\.LIMITS\.GGUF_ITEMS = 90 values"):
        read_header(path)


def test_the_kinds_are_those_of_the_package() -> None:
    gguf = pytest.importorskip("gguf")
    theirs = {kind.value: (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: tuple(kind) for number, kind in KINDS.items() if number in theirs}.items() <= theirs.items()
