"""Exported folders: in a Python without linnet, every mixer gives the same logits and tokens."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from linnet.data import ByteTokenizer
from linnet.models import Classifier, ModelConfig
from tests.hf.nets import HYBRID, VARIANTS, N, greedy, left_padded, net, tokens

pytestmark = pytest.mark.slow
NEW = 6
CASES = [  # in float32 native kernels may run here, but torch there
    (torch.float64, VARIANTS, 1e-10),
    (torch.float32, [{"mixer": "elu"}, {"mixer": "softmax"}, VARIANTS[-2], HYBRID], 1e-5),
]
ALONE = """
import sys
from pathlib import Path
sys.modules["linnet"] = None  # an import of it raises
import torch, transformers
from safetensors.torch import load_file
auto, kind = getattr(transformers, sys.argv[1]), None
for folder in sorted(Path(sys.argv[2]).iterdir()):
    # Every folder has the same file of code: importing it once shows that it can be, and the others are quick.
    model = kind.from_pretrained(folder) if kind else auto.from_pretrained(folder, trust_remote_code=True)
    kind, wanted = type(model), load_file(folder / "wanted.safetensors")
    assert type(model).__module__.startswith("transformers_modules"), type(model)
    with torch.no_grad():
        out = model(wanted["ids"], attention_mask=wanted["mask"])
    close = float((out.logits - wanted["logits"]).abs()[wanted["where"]].max())
    same = True
    if "new" in wanted:
        made = model.generate(wanted["ids"], attention_mask=wanted["mask"], do_sample=False, max_new_tokens=NEW)
        same = torch.equal(made[:, -NEW:], wanted["new"])
    print(folder.name, close, same, sep="\\t")
model.save_pretrained(folder / "again")
again = auto.from_pretrained(folder / "again", trust_remote_code=True)
assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))
assert not [name for name in sys.modules if name.split(".")[0] == "linnet" and sys.modules[name] is not None]
"""


def alone(auto: str, folder: Path) -> dict[str, tuple[float, bool]]:
    """Return, by folder, the error of its logits and whether it generates the expected tokens."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder.parent / "home")}
    code = ALONE.replace("NEW", str(NEW))
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code, auto, str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: (float(close), same == "True") for name, close, same in rows}


def batch() -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    rows = [tokens(1, length, seed=length)[0] for length in (4, 9)]
    return rows, *left_padded(rows, pad=N)


@pytest.mark.parametrize(("dtype", "variants", "close"), CASES, ids=["float64", "float32"])
def test_every_mixer_where_linnet_is_not(
    hf: ModuleType, tmp_path: Path, dtype: torch.dtype, variants: list[dict[str, Any]], close: float
) -> None:
    (tmp_path / "models").mkdir()
    rows, ids, mask = batch()
    for i, fields in enumerate(variants):
        model, folder = net(dtype, **fields), tmp_path / "models" / f"{i:02}"
        hf.export_remote_code(model, folder)
        with torch.no_grad():
            logits = hf.to_hf(model)(ids, attention_mask=mask).logits
        new = torch.cat([greedy(model, row[None], NEW)[0][:, -NEW:] for row in rows])
        wanted = {"ids": ids, "mask": mask, "logits": logits, "where": mask.bool(), "new": new}
        save_file(wanted, folder / "wanted.safetensors")
    assert len({path.read_bytes() for path in tmp_path.glob("models/*/modeling_linnet.py")}) == 1
    results = alone("AutoModelForCausalLM", tmp_path / "models")
    assert len(results) == len(variants)
    assert {name: got for name, got in results.items() if not (got[0] <= close and got[1])} == {}


def test_a_classifier_where_linnet_is_not(hf: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ModelConfig(task="classify", vocab_size=5, source_vocab_size=N, d_model=24, n_layers=2, n_heads=4)
    model = Classifier(config).double().eval()
    _, ids, mask = batch()
    folder = tmp_path / "models" / "0"
    hf.export_remote_code(model, folder)
    with torch.no_grad():
        logits = hf.to_hf(model)(ids, attention_mask=mask).logits
    wanted = {"ids": ids, "mask": mask, "logits": logits, "where": torch.ones(2, dtype=torch.bool)}
    save_file(wanted, folder / "wanted.safetensors")
    assert alone("AutoModelForSequenceClassification", tmp_path / "models")["0"][0] <= 1e-10


def test_together_with_linnet_in_one_process(hf: ModuleType, transformers: ModuleType, tmp_path: Path) -> None:
    """The file's operators and classes must not collide with those of the package."""
    model, given = net(**HYBRID), tokens()
    hf.export_remote_code(model, tmp_path, ByteTokenizer())
    find = transformers.dynamic_module_utils.get_class_from_dynamic_module
    remote = find("modeling_linnet.LinnetForCausalLM", tmp_path)
    assert not issubclass(remote, hf.LinnetForCausalLM)
    with torch.no_grad():
        out = remote.from_pretrained(tmp_path)(given)
        torch.testing.assert_close(out.logits, model(given)[0], atol=1e-10, rtol=1e-10)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert words("whale").input_ids == list(b"whale")


def test_the_file_is_one_and_stands_alone(hf: ModuleType, tmp_path: Path) -> None:
    hf.export_remote_code(hf.to_hf(net()), tmp_path)
    names = {"config.json", "generation_config.json", "model.safetensors", "modeling_linnet.py"}
    assert {path.name for path in tmp_path.iterdir()} == names
    text = (tmp_path / "modeling_linnet.py").read_text(encoding="utf-8")
    assert re.findall(r"^\s*(?:from|import)\s+(?:\.|linnet\b).*", text, re.MULTILINE) == []
    assert text == hf.remote.modeling_file()
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert set(config["auto_map"].values()) == {f"modeling_linnet.{name}" for name in hf.remote.CLASSES.values()}


def test_imports_are_written_out(hf: ModuleType) -> None:
    rename_imports: Any = hf.remote.rename_imports
    text = (
        "from ..errors import unknown\ndef f():\n    from .state import State\nfrom . import norm\nfrom .. import ops\n"
    )
    wanted = "from X.errors import unknown\ndef f():\n    from X.ops.state import State\n"
    assert rename_imports(text, "ops.mlp", "X") == wanted + "from X.ops import norm\nfrom X import ops\n"
    assert rename_imports("from .core import Core\n", "feature_maps", "X") == "from X.feature_maps.core import Core\n"
    results = hf.remote.sources()
    assert {"ops.fused", "layers.attention", "feature_maps.rebased", "hf.cache", "models.language"} <= set(results)
    for module, source in results.items():
        ast.parse(rename_imports(source, module, "X"))


def test_what_has_no_hugging_face_form_writes_nothing(hf: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no Hugging Face form"):
        hf.export_remote_code(torch.nn.Linear(1, 1), tmp_path / "x")
    assert not (tmp_path / "x").exists()
