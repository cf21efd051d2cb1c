"""Small tensor files: exact round trips; a truncated file is refused with the requested error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linnet.errors import StateError
from linnet.models.tensor_file import read_tensors, write_tensors


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    write_tensors(path, {"a": torch.arange(3.0)}, {"format": "mine"})
    header, tensors = read_tensors(path)
    assert header == {"format": "mine"}
    assert torch.equal(tensors["a"], torch.arange(3.0))
    assert path.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in tmp_path.iterdir()] == ["some.safetensors"]


@pytest.mark.parametrize("refuse", [ValueError, StateError])
def test_a_cut_file_is_refused(tmp_path: Path, refuse: type[ValueError]) -> None:
    path = tmp_path / "some.safetensors"
    write_tensors(path, {"a": torch.arange(3.0)}, {})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(refuse, match=r"is not a whole safetensors file .* copy it again") as caught:
        read_tensors(path, refuse)
    assert type(caught.value) is refuse
