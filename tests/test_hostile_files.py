"""Files that claim more than they hold, and JSON that is too deep to parse: one sentence each, and no memory allocated.

Memory is capped a little above what the process uses, so that code that trusts a size in a file raises MemoryError.
"""

from __future__ import annotations

import gzip
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from linnet.data.files import byte_pieces
from linnet.data.images import load_images
from linnet.data.wav import read_wav
from linnet.limits import LIMITS
from linnet.models import Model, ModelConfig, build
from linnet.pretrained import load_llama
from linnet.train.jobs import read_job
from linnet.train.log import read_log
from tests.fuzz.file_kinds import without, write_wav
from tests.pretrained.llama_files import write_hf
from tests.pretrained.llama_numpy import Sizes, random_parts

ROOM = 1 << 30
DEEP = "[" * 100_000
SMALL = ModelConfig(d_model=8, n_layers=1, n_heads=2, vocab_size=16)


@contextmanager
def little_memory() -> Iterator[None]:
    """Limit the address space to ROOM bytes more than is in use."""
    resource = pytest.importorskip("resource")
    status = Path("/proc/self/status")
    if not status.is_file():
        pytest.skip("this system does not report how much memory is in use")
    used = next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmSize"))
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_configuration_far_beyond_its_weights(tmp_path: Path) -> None:
    build(SMALL.replace(positions="learned")).save_pretrained(tmp_path)
    healthy, large = (tmp_path / "config.json").read_text(), {"d_model": 40_000, "vocab_size": 2**31 - 1}
    for name, size in (large | {"n_layers": 50_000_000, "d_ff": 10**9, "max_length": 10**9}).items():
        (tmp_path / "config.json").write_text(healthy)
        change(tmp_path / "config.json", **{name: size})
        with little_memory(), pytest.raises(ValueError, match=r"model\.safetensors.* (configuration|n_layers)"):
            Model.from_pretrained(tmp_path)


@pytest.mark.parametrize("fields", [{"num_hidden_layers": 50_000_000}, {"hidden_size": 40_000, "vocab_size": 10**6}])
def test_a_hugging_face_configuration_far_beyond_its_weights(fields: dict[str, int], tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", Sizes(), random_parts(Sizes(), True))
    change(folder / "config.json", **fields)
    with little_memory(), pytest.raises(ValueError, match=f"{folder}.*configuration"):
        load_llama(folder)


def test_compressed_images_expand_to_the_size_in_their_header(tmp_path: Path) -> None:
    file = tmp_path / "a.idx.gz"
    head = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (10, 28, 28))
    file.write_bytes(gzip.compress(head) + gzip.compress(bytes(1 << 20)) * 2048)  # 2 GB behind a header of 8 kB
    with (
        little_memory(),
        pytest.raises(ValueError, match=r"a.idx.gz states \[10, 28, 28\] and holds more than 7,840 bytes"),
    ):
        load_images(file)
    file.write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + 3 * (60_000).to_bytes(4, "big")))
    with little_memory(), pytest.raises(ValueError, match=r"bytes decompressed; accepted: .* run gunzip on it first"):
        load_images(file)
    (tmp_path / "b").write_bytes(b"\x00\x00\x08")
    with pytest.raises(ValueError, match="b begins with"):
        load_images(tmp_path / "b")


def npz(path: Path, header: bytes, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("images.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data)
    return path


NPZ_HEADERS = (
    b"{'descr': '|u1', 'fortran_order': False, 'shape': (100000, 1000, 1000), }",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    b"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }",
    b"{" * 9000,
    b"{'descr': '|u1', 'fortran_order': False, 'shape': (__import__('os'),), }",
    b"\xff\x00'''",
)


def test_an_npz_that_claims_what_it_does_not_hold(tmp_path: Path) -> None:
    for header in NPZ_HEADERS:
        with little_memory(), pytest.raises(ValueError, match=r"a\.npz: 'images' "):
            load_images(npz(tmp_path / "a.npz", header, bytes(16)))
    with pytest.raises(ValueError, match=r"a\.npz: 'images.npy' is encrypted or uses an unusual compression"):
        load_images(npz(tmp_path / "a.npz", header, bytes(16), zipfile.ZIP_LZMA))


def test_a_png_of_more_pixels_than_it_has_bytes(tmp_path: Path) -> None:
    pytest.importorskip("PIL")

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    for side in (12_000, 20_000):  # pillow warns of the first and refuses the second
        body = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
        body += chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
        (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)
        with little_memory(), pytest.raises(ValueError, match=r"a\.png is not a complete PNG file .*pixels"):
            load_images(tmp_path)


def test_a_text_that_grows_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "UNPACKED_FREE", 1 << 20)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(1 << 23)))
    with pytest.raises(ValueError, match=r"a\.gz grows from .* decompress it first"):
        list(byte_pieces(tmp_path / "a.gz"))


def test_a_wav_that_claims_more_than_it_holds_without_soundfile(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav")
    data = bytearray((tmp_path / "a.wav").read_bytes())
    for length in (b"\xff\x7f\x00\x00", b"\xfe\xff\xff\x7f", b"\xff\xff\xff\xff"):
        data[40:44] = length  # bytes of sound
        (tmp_path / "a.wav").write_bytes(data[:-1])
        with without("soundfile"), little_memory(), pytest.raises(ValueError, match=r"a\.wav is not a sound file"):
            read_wav(tmp_path / "a.wav")


NOT_WHAT_IT_SHOULD_BE = [DEEP, "5", "null", '{"format": []}', '[{"unit": 1}]', "\ud800"]


def check_refused(read: Any, folder: Path, file: str, text: str) -> None:
    """`text` in `file` is refused in one sentence that begins with the file."""
    (folder / file).write_bytes(text.encode("utf-8", "surrogatepass") + b"\n")
    with pytest.raises(ValueError, match=rf"^(line 1 of )?{folder / file}") as caught:
        read(folder)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, UnicodeError)


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("config.json", Model.from_pretrained),
        ("run.json", read_job),
        ("config.json", load_llama),
    ],
)
def test_json_that_is_not_what_it_should_be(file: str, read: Any, tmp_path: Path) -> None:
    for text in NOT_WHAT_IT_SHOULD_BE:
        check_refused(read, tmp_path, file, text)


def test_a_damaged_line_of_a_log_affects_only_itself(tmp_path: Path) -> None:
    lines = [json.dumps({"kind": "step", "step": step}) for step in range(1, 6)]
    for bad in (DEEP, "[]", '{"kind": "step", "step": "3"}', "{"):
        (tmp_path / "log.jsonl").write_text("".join(f"{line}\n" for line in [*lines[:2], bad, *lines[3:]]))
        damaged: list[str] = []
        assert [line["step"] for line in read_log(tmp_path / "log.jsonl", damaged=damaged)] == [1, 2, 4, 5]
        assert len(damaged) == 1
        assert f"line 3 of {tmp_path / 'log.jsonl'}" in damaged[0]
        with pytest.warns(UserWarning, match=r"line 3 of .* is damaged"):
            list(read_log(tmp_path / "log.jsonl"))
