"""The documentation site: every page is in its menu, every command is on its list, and it builds without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
PAGES = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
BY_FOLDER = ("decisions", "results")  # reached from a page of their own


def test_every_page_is_in_the_menu_once() -> None:
    menu = re.findall(r": ([\w/-]+\.md)$", CONFIG.split("\nnav:")[1], re.M)
    assert len(menu) == len(set(menu))
    assert set(menu) - {"decisions/README.md"} == {page for page in PAGES if not page.startswith(BY_FOLDER)}


def test_every_command_is_on_the_list() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = [name for name in app if not name.startswith("-")]
    assert commands
    assert all(f"`linnet {name}`" in page for name in commands)


@pytest.mark.slow
def test_the_site_builds_strictly_and_documents_the_op(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "mkdocs.yml").write_text(CONFIG.replace("paths: [.]", f"paths: [{ROOT}]"))
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    made = (tmp_path / "build" / "site" / "reference" / "ops.html").read_text(encoding="utf-8")
    assert "output_final_state" in made
    assert "padding" in made.lower()
    assert all(
        (tmp_path / "build" / "site" / page.replace("README.md", "index.md")).with_suffix(".html").exists()
        for page in PAGES
    )
