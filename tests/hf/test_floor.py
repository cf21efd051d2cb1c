"""The oldest transformers that linnet[hf] accepts passes the same tests as the one that is installed.

One case of each test in tests/hf and every check of test_conformance.py: an interface that the oldest lacks is missing
in any case. The whole product of mixers and options runs on the installed transformers. The oldest is put once into a
folder under build/, without what the environment has already, and found before the rest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parent.parent.parent
FLOOR = "5.0.0"
PACKAGES = (f"transformers=={FLOOR}", "huggingface_hub==1.3.0", "tokenizers==0.22.0")  # the oldest that it takes
PACKAGES += ("datasets==4.4.1",)  # its Trainer imports one if present, and that of lm-eval needs a newer hub
BESIDE = ("httpx", "typer-slim", "shellingham")  # of that huggingface_hub; none of them brings numpy or torch


def floor() -> Path:
    """Return the folder with these packages; skip without a package index."""
    folder = ROOT / "build" / f"transformers-{FLOOR}-py{sys.version_info.major}{sys.version_info.minor}"
    done, wanted = folder / "complete", " ".join(PACKAGES)
    if done.is_file() and done.read_text(encoding="utf-8") == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # of other versions
    for packages in (("--no-deps", *PACKAGES), BESIDE):
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *packages]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            pytest.skip(f"pip could not install {packages[-1]} and its like: {ended.stderr.strip()[-200:]}")
    done.write_text(wanted, encoding="utf-8")
    return folder


def test_the_floor_is_that_of_the_extra() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stated = re.search(r'^hf = \["transformers>=([\d.]+)"', text, re.MULTILINE)
    assert stated is not None
    assert FLOOR.startswith(stated[1])


@pytest.mark.skipif(version("transformers") == FLOOR, reason="this is the oldest one")
def test_a_case_of_each_passes_on_the_oldest_transformers() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{floor()}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    seen = [sys.executable, "-c", "import transformers; print(transformers.__version__)"]
    result = subprocess.run(seen, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == FLOOR
    command = [sys.executable, "-m", "pytest", "-q", "-m", "slow", "-p", "no:cacheprovider", "tests/hf"]
    command += ["-p", "tests.first_cases"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
