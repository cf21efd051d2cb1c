"""The core runs with linnet/labs deleted: its commands in a copy of the package, and its tests.

Everyday (./run test):    the commands
slow (./run test --slow): one case of every test outside tests/labs (tests/first_cases.py); what needs the laboratory
                          is an import or a file, which the other cases of the same test need as well
long (./run test --long): every case of them

Tests of the repository itself (its pages, its table of imports) need the whole of it, and are left out.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TINY = "--d-model 16 --n-heads 2 --n-layers 1 --steps 4 --batch-size 4 --eval-rows 4 --warmup 0 --seq-len 16".split()
OF_THE_REPOSITORY = ("test_docs.py", "test_package.py", "test_site.py", "test_without_labs.py")
LEFT_OUT = [f"--ignore=tests/{name}" for name in OF_THE_REPOSITORY]
# An editable installation finds what a copy of the package lacks in its own folder; in the copy it does not.
SITE = """
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests without the laboratory."""
    folder = tmp_path_factory.mktemp("core")
    for name in ("linnet", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "labs" if name == "linnet" else "nothing")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.rmtree(folder / "tests" / "labs")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "sitecustomize.py").write_text(SITE)
    assert not (folder / "linnet" / "labs").exists()
    return folder


def run(copy: Path, module: str, *words: object) -> subprocess.CompletedProcess[str]:
    """`python -m module words`, with the copy as the only linnet."""
    env = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    command = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)


def test_the_copy_has_no_laboratory(copy: Path) -> None:
    done = run(copy, "linnet", "--help")
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout
    assert "Laboratory" not in done.stdout
    for name in ("reproduce", "recall", "icl", "bench"):
        refused = run(copy, "linnet", name, "--quick")
        assert refused.returncode == 2
        assert refused.stderr.startswith("linnet: this command needs linnet/labs, which this installation leaves out")


def test_doctor(copy: Path) -> None:
    done = run(copy, "linnet", "doctor")
    assert done.returncode == 0, done.stderr
    assert "linear_attention" in done.stdout


def test_training_and_generating_text(copy: Path) -> None:
    (copy / "book.txt").write_text("It was a dark and stormy night; the rain fell in torrents.\n" * 100)
    trained = run(copy, "linnet", "train", "text", "book.txt", "--out", "runs/text", *TINY, "--autocast", "none")
    assert trained.returncode == 0, trained.stderr
    written = run(copy, "linnet", "generate", "text", "runs/text", "--prompt", "It was", "--tokens", 5)
    assert written.returncode == 0, written.stderr
    assert "5 tokens in" in written.stderr


@pytest.mark.slow
def test_a_case_of_each_of_its_tests(copy: Path) -> None:
    check_tests(copy, "tests", *LEFT_OUT, "-p", "tests.first_cases")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_all_of_its_tests(copy: Path) -> None:
    check_tests(copy, "tests", *LEFT_OUT, "-n", 2)


def check_tests(copy: Path, *words: object) -> None:
    ended = run(copy, "pytest", "-q", "-m", "not slow", "--maxfail", 10, "-p", "no:cacheprovider", *words)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout


def test_tests_of_the_core_do_not_import_the_laboratory() -> None:
    laboratory = (["linnet", "labs"], ["tests", "labs"])
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.is_relative_to(ROOT / "tests" / "labs"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            bad = [name for name in names if name.split(".")[:2] in laboratory]
            assert not bad, f"{path.relative_to(ROOT)}:{node.lineno} imports {bad[0]}: move it to tests/labs"
