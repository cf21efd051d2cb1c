"""The documentation site: every page is in the menu, every name and command exists, and it builds without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from linnet.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
PAGES = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
BY_FOLDER = ("decisions", "results")  # reached from a page, not from the menu
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))


def documented(page: Path) -> list[tuple[str, str]]:
    """Return (module, name) of each `::: module.name` of a page; `module` is the heading above it."""
    module, names = "", []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("## linnet"):
            module = line.removeprefix("## ")
        elif line.startswith(":::"):
            parent, _, name = line.removeprefix("::: ").rpartition(".")
            assert parent == module, f"{page.name}: {line} stands under the heading {module}"
            names.append((module, name))
    return names


def test_every_page_is_in_the_menu_once() -> None:
    menu = re.findall(r": ([\w/-]+\.md)$", CONFIG.split("\nnav:")[1], re.M)
    assert len(menu) == len(set(menu))
    assert set(menu) - {"decisions/README.md"} == {page for page in PAGES if not page.startswith(BY_FOLDER)}


def test_the_site_needs_nothing_from_elsewhere() -> None:
    sheets = re.search(r"^extra_css: \[(.+)\]$", CONFIG, re.M)
    assert sheets
    for sheet in sheets[1].split(", "):
        assert "url(" not in (ROOT / "docs" / sheet).read_text(encoding="utf-8")
    assert "extra_javascript" not in CONFIG
    assert "font: false" in CONFIG


def test_every_command_is_on_the_list() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = [name for name in app if not name.startswith("-")]
    assert commands
    assert all(f"`linnet {name}`" in page for name in commands)


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.name)
def test_every_name_of_the_reference_is_defined_where_it_says(page: Path) -> None:
    for module, name in documented(page):
        documented_object = getattr(import_module(module), name)  # without a default: a missing name is an error
        assert documented_object.__module__ == module, f"{name} is defined in {documented_object.__module__}"
        assert documented_object.__doc__, f"{module}.{name} has no docstring"


def test_the_reference_names_most_of_the_package() -> None:
    assert sum(len(documented(page)) for page in REFERENCE) > 100


@pytest.mark.slow
def test_the_site_builds_strictly_and_documents_the_op(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "mkdocs.yml").write_text(CONFIG.replace("paths: [.]", f"paths: [{ROOT}]"))
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    page = (tmp_path / "build" / "site" / "reference" / "ops.html").read_text(encoding="utf-8")
    assert "output_final_state" in page
    assert "padding" in page.lower()
    assert all(
        (tmp_path / "build" / "site" / name.replace("README.md", "index.md")).with_suffix(".html").exists()
        for name in PAGES
    )
    for name in PAGES:
        source = (ROOT / "docs" / name).read_text(encoding="utf-8")
        html = (tmp_path / "build" / "site" / name.replace("README.md", "index.md")).with_suffix(".html")
        assert html.read_text(encoding="utf-8").count("<math ") == len(re.findall(r"^```math$", source, re.M)), name
