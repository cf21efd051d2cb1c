"""The package as a whole: its public names, what importing it costs, who may import whom, and what files may say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch

import linnet

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "linnet"

PUBLIC = {
    "BackendError",
    "ConvState",
    "KVState",
    "LoadedModel",
    "MatrixState",
    "State",
    "StateError",
    "WindowState",
    "__version__",
    "attention_map",
    "data",
    "decayed_attention",
    "decayed_attention_step",
    "delta_rule",
    "delta_rule_step",
    "explain_dispatch",
    "feature_maps",
    "generate",
    "join_states",
    "layers",
    "linear_attention",
    "linear_attention_step",
    "load",
    "load_states",
    "lsh_attention",
    "lsh_attention_step",
    "models",
    "pretrained",
    "read_header",
    "regress",
    "save_states",
    "selective_scan",
    "selective_scan_step",
    "short_conv",
    "short_conv_step",
    "sliding_window_attention",
    "sliding_window_attention_step",
    "softmax_attention",
    "softmax_attention_step",
    "train",
    "wkv",
    "wkv7",
    "wkv7_step",
    "wkv_step",
}

FOLDERS = {"data", "feature_maps", "generate", "layers", "models", "pretrained", "regress", "train"}

# folder -> folders of linnet it may import, apart from itself and SHARED; None is any. Nothing imports `cli`, and
# nothing outside it imports `labs`, whose own rooms are in LABS_MAY_IMPORT.
MAY_IMPORT: dict[str, set[str] | None] = {
    "feature_maps": set(),
    "native": set(),
    "ops": {"feature_maps", "native"},
    "layers": {"feature_maps", "ops"},
    "models": {"layers", "ops"},
    "data": set(),
    "train": {"models", "data", "native", "ops"},
    "generate": {"models", "layers", "feature_maps", "ops", "native", "data"},
    "serve": {"models", "generate", "data", "loading"},
    "regress": {"models"},
    "hf": {"models", "generate", "ops", "data"},
    "pretrained": {"models", "data", "layers"},
    "cli": {"data", "feature_maps", "generate", "hf", "layers", "models", "native", "ops", "pretrained", "regress"}
    | {"train", "loading", "serve"},
    "labs": None,
}
LABS_MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "fewshot": set(),
    "bench": {"icl"},
    "recall": {"core"},
    "icl": {"core"},
    "claims": {"core", "recall", "icl", "fewshot", "bench"},
    "report": {"core"},
    "cli": {"core", "recall", "icl", "fewshot", "bench", "claims", "report"},
}
TOP_LEVEL = {
    "__init__": {"errors", "loading", *FOLDERS, "ops"},
    "__main__": {"cli"},
    "atomic": {"errors", "lock"},
    "checksum": set(),
    "errors": set(),
    "json_file": {"errors", "limits"},
    "limits": set(),
    "loading": {"data", "models"},
    "lock": {"errors"},
    "processor": set(),
    "schema": {"errors"},
    "targets": set(),
}
# These import only the standard library and each other.
SHARED = {"atomic", "checksum", "errors", "json_file", "limits", "lock", "processor", "schema", "targets"}
TORCH_ONLY = {"feature_maps", "native"}  # besides the standard library
# Packages with a home: the only folders that may import them. Others than torch, numpy, safetensors have one.
HOMES = {
    "cyclopts": {"cli", "labs/cli"},
    "rich": {"cli", "labs/cli"},
    "matplotlib": {"labs/report"},
    "fast_transformers": {"labs/bench"},
    "fla": {"labs/bench"},
    "transformers": {"hf", "labs/bench"},
    "lm_eval": {"labs/fewshot"},
    "tokenizers": {"data", "hf"},
    "soundfile": {"data"},
    "PIL": {"data"},
    "tensorboard": {"train"},
    "tensorboardX": {"train"},
    "ray": {"labs/core"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "msgspec": {"serve"},
    "prometheus_client": {"serve"},
    "redis": {"serve"},
    "jinja2": {"serve"},
    "sklearn": {"labs/bench", "regress"},
    "gguf": {"pretrained"},
    "latex2mathml": {"labs/report"},
    "pymdownx": {"labs/report"},
}
CORE = {"torch", "numpy", "safetensors"}
LAZY = set(HOMES) - {"cyclopts", "rich"}  # optional: imported inside the function that needs them
OPTIONAL_FOLDERS = {
    "labs/fewshot",
    "hf",
    "serve",
}  # imported by name or not at all: here what they are about may stand at the top
OPTIONAL_FILES = {"regress/estimator.py"}  # likewise, loaded on first use of what they define

# What must not come along with the torch-side API; `import torch` alone brings none of them.
HEAVY = "transformers matplotlib sklearn scipy pandas sympy torch._dynamo torch._inductor torch.onnx ray cyclopts rich"

MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:home|root|Users|work|mnt)/\w")
TEXT = {".py", ".md", ".toml", ".txt", ".sh", ".c", ".cpp", ".h", ".yml", ".yaml", ".json", ".cfg", ""}
NOT_OURS = {".git", ".venv", ".hypothesis", ".cache", "build", "dist", "__pycache__"}


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(absolute dotted name, at module level) for each import in a file, `if TYPE_CHECKING` included."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    out = []
    for node in ast.walk(tree):
        top = id(node) not in inside
        if isinstance(node, ast.Import):
            out += [(alias.name, top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: -node.level]) if node.level else ""
            name = ".".join(filter(None, (base, node.module)))
            # `from .. import x` may name a folder: count what is imported, not the package it is taken from
            out += [(f"{name}.{a.name}", top) for a in node.names] if name == "linnet" else [(name, top)]
    return out


def folder(path: Path) -> str:
    """The folder of the package that a file is in; of the laboratory with its room, such as "labs/core"."""
    parts = path.relative_to(PACKAGE).parts[:-1]
    return "/".join(parts[: 2 if parts[0] == "labs" else 1]) if parts else ""


def fresh(code: str) -> str:
    """stdout of `code` in a Python of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_public_names_are_listed_and_load() -> None:
    assert set(linnet.__all__) == PUBLIC == set(dir(linnet))
    for name in PUBLIC:
        assert getattr(linnet, name) is not None


def test_names_are_those_of_their_homes() -> None:
    ops = import_module("linnet.ops")
    elsewhere = {"__version__", "StateError", "BackendError", "attention_map", "LoadedModel", "load"}
    for name in PUBLIC - FOLDERS - elsewhere:
        assert getattr(linnet, name) is getattr(ops, name)
    assert linnet.feature_maps is import_module("linnet.feature_maps")
    assert linnet.attention_map is import_module("linnet.layers").attention_map
    assert issubclass(linnet.StateError, ValueError)
    assert issubclass(linnet.BackendError, ValueError)


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'linnet' has no attribute 'linear_atention'"):
        _ = linnet.linear_atention
    assert not hasattr(linnet, "ops_of_another_kind")


def test_version_is_that_of_pyproject() -> None:
    stated = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert stated is not None
    assert linnet.__version__ == stated[1]


@pytest.mark.parametrize("code", ["import linnet", "import linnet; linnet.StateError", "import linnet.cli.main"])
def test_import_alone_does_not_import_torch(code: str) -> None:
    assert fresh(f"{code}\nimport sys; print('torch' in sys.modules, 'numpy' in sys.modules)") == "False False"


def test_torch_side_api_brings_nothing_heavy() -> None:
    code = "import sys, torch; before = set(sys.modules)\nimport linnet; linnet.linear_attention\n"
    code += f"print(*sorted((set(sys.modules) - before) & set({HEAVY.split()})))"
    assert fresh(code) == ""


def test_nothing_prints_at_import() -> None:
    assert fresh("import linnet; [getattr(linnet, n) for n in linnet.__all__]") == ""


@pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path: Path) -> None:
    here, _, room = folder(path).partition("/")
    allowed = MAY_IMPORT[here] if here else TOP_LEVEL[path.stem]
    for name, _ in imports(path):
        top, *rest = name.split(".")
        if top != "linnet" or not rest:
            continue
        target = rest[0]
        if path.stem != "__main__" and target == "cli":
            assert "cli" in (here, room), f"{path.name} imports {name}: nothing imports cli"
        assert target != "labs" or here == "labs", f"{path.name} imports {name}: nothing outside it imports labs"
        fine = allowed is None or target in allowed | {here, *SHARED, "__version__"}
        assert fine, f"{here or path.name} may import {sorted(allowed or ())}, not {name}"
        if room and target == "labs" and rest[1:]:
            rooms = LABS_MAY_IMPORT[room]
            assert rest[1] in rooms | {room}, f"labs/{room} may import {sorted(rooms)} of the labs, not {name}"


@pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_third_party_packages_have_one_home(path: Path) -> None:
    here = folder(path)
    for name, at_top in imports(path):
        top = name.split(".")[0]
        if top == "linnet" or top in sys.stdlib_module_names:
            continue
        homes = HOMES.get(top)
        assert homes or top in CORE, f"{path.name} imports {top}, which has no home in the table"
        assert not homes or here in homes, f"{top} lives in {sorted(homes or ())}, not in {here}"
        assert here not in TORCH_ONLY or top == "torch", f"{here} knows torch only, not {top}"
        optional = here in OPTIONAL_FOLDERS or path.relative_to(PACKAGE).as_posix() in OPTIONAL_FILES
        early = at_top and top in LAZY and not optional
        assert not early, f"{path.name} imports {top} at the top: it is optional"


def test_imports_inside_the_package_are_relative() -> None:
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not [n for n in names if n.split(".")[0] == "linnet"], f"{path.name}:{node.lineno}"


def test_optional_packages_and_extras_agree() -> None:
    from linnet.cli.doctor import OPTIONAL

    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package, extra in OPTIONAL.items():
        assert re.search(rf'^{extra} = \[.*"{package}>=', text, re.MULTILINE), f"[{extra}] does not bring {package}"
        assert {"pillow": "PIL", "scikit-learn": "sklearn", "lm-eval": "lm_eval"}.get(package, package) in LAZY


def test_no_file_names_a_machine() -> None:
    bad = []
    for path in ROOT.rglob("*"):
        if set(path.relative_to(ROOT).parts) & NOT_OURS or any(p.endswith((".egg-info", "_cache")) for p in path.parts):
            continue
        if path.is_file() and path.suffix in TEXT and MACHINE_PATH.search(path.read_text(encoding="utf-8")):
            bad.append(str(path.relative_to(ROOT)))
    assert bad == []


def test_uninitialised_memory_is_nan() -> None:
    """What tests/conftest.py promises the other tests."""
    assert torch.empty(1000).isnan().all()
    assert torch.get_num_threads() == 1


def test_strings_of_the_core_have_no_single_triple_quotes() -> None:
    """hf/remote.py writes every module of a model into one file, between such quotes."""
    paths = [p for p in PACKAGE.rglob("*.py") if "labs" not in p.parts and p.name != "remote.py"]
    assert [str(p) for p in paths if "'" * 3 in p.read_text(encoding="utf-8")] == []
