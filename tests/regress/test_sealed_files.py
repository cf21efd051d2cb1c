"""Files of in-context models and regressors: damage is refused, loaded tensors are copies, old files load."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from linnet.errors import FileWarning, StateError
from linnet.regress import InContextRegressor, pretrained
from linnet.regress.model import ICLTransformer
from linnet.regress.state_file import load_moments

OLD = Path(__file__).parent / "old"


def regressor() -> InContextRegressor:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3))
    return InContextRegressor().fit(x, x @ [1.0, 2.0, -1.0] + 0.1)


def write(kind: str, path: Path) -> Path:
    (pretrained("diag") if kind == "model" else regressor()).save(path)
    return path


def content(kind: str, path: Path) -> Any:
    """Return the content of a file in comparable form; warnings are errors, as everywhere in the tests."""
    if kind == "model":
        model = ICLTransformer.load(path)
        return model.config, model.p.tolist(), model.q.tolist()
    moments, settings = load_moments(path)
    return moments.n, moments.mean.tolist(), moments.scatter.tolist(), settings


@pytest.mark.parametrize("kind", ["model", "state"])
def test_any_damaged_byte_is_refused(kind: str, tmp_path: Path) -> None:
    path = write(kind, tmp_path / "a.safetensors")
    data, wanted, loaded = path.read_bytes(), content(kind, path), []
    for i in range(8, len(data), 3):
        path.write_bytes(data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :])
        try:
            loaded.append((i, content(kind, path) == wanted))
        except ValueError:
            continue
        except FileWarning:  # it warns that the file is old and was not verified
            continue
    assert all(same for _, same in loaded), [i for i, same in loaded if not same][:5]
    assert len(loaded) < 10  # blanks at the end of the header


@pytest.mark.parametrize("kind", ["model", "state"])
def test_files_without_a_checksum_load_with_a_note(kind: str, tmp_path: Path) -> None:
    path = OLD / f"{kind}-1.safetensors"
    with pytest.warns(FileWarning, match="written by an older linnet without a checksum; load it and save it again"):
        loaded: Any = ICLTransformer.load(path) if kind == "model" else InContextRegressor.load(path)
    new = tmp_path / "new.safetensors"
    loaded.save(new)
    wanted = content(kind, write(kind, tmp_path / "wanted.safetensors"))
    got = content(kind, new)
    assert got[-1] == wanted[-1]
    if kind == "model":
        assert got == wanted
    else:
        np.testing.assert_allclose(got[1], wanted[1], rtol=1e-12)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_file_cannot_shed_its_checksum(version: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = {"format": "linnet-icl", "version": version, "config": json.dumps({"kind": "diag", "layers": 1, "d": 2})}
    tensors = {"p": torch.zeros(1, 1, 2).double(), "q": torch.zeros(1, 1, 2).double()}
    save_file(tensors, path, header | ({"crc32": "00000000"} if version == "1" else {}))
    with pytest.raises(ValueError, match=r"is damaged: crc32 .* is not that of its content; copy it again"):
        ICLTransformer.load(path)


def test_the_shipped_models_load_without_a_note() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [pretrained(name).config.kind for name in ("diag", "full")] == ["diag", "full"]


@pytest.mark.parametrize("kind", ["model", "state"])
def test_loaded_tensors_do_not_depend_on_the_file(kind: str, tmp_path: Path) -> None:
    path = write(kind, tmp_path / "a.safetensors")
    loaded: Any = ICLTransformer.load(path) if kind == "model" else load_moments(path)[0]
    arrays = [loaded.p, loaded.q] if kind == "model" else [loaded.mean, loaded.scatter]
    numbers = [torch.as_tensor(x) for x in arrays]
    before = [x.clone() for x in numbers]
    with open(path, "r+b") as file:  # in place, unlike linnet
        file.seek(-64, 2)
        file.write(bytes(64))
    assert all(torch.equal(a, b) for a, b in zip(before, numbers, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_sums_of_another_dtype_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = {"format": "linnet-icl-state", "version": "1", "settings": '{"model": "diag", "forget_factor": 1}'}
    save_file({"n": torch.ones((), dtype=dtype), "mean": torch.ones(2), "scatter": torch.ones(2, 2)}, path, header)
    with pytest.raises(StateError, match=r"n torch\.\w+.*; accepted: float64 alone"):
        load_moments(path)
