"""The documentation runs: each ```python block, each ```sh block of linnet commands, and each link between files.

The python blocks of one file run in order in one namespace, in a separate process without a network; its
commands run in order in one folder, which holds small stand-ins for the reader's own files. Training commands are cut
to two steps. A block that cannot run here is preceded by `<!-- not run: reason -->`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from linnet.data import data_folder

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = [ROOT / "docs" / name for name in ("guide", "science", "reference")]
RUN = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted(page for folder in FOLDERS for page in folder.glob("*.md") if "\n```" in page.read_text(encoding="utf-8")),
]
ALL = sorted({*RUN, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})

BLOCK = re.compile(r"(?P<skip><!-- not run: .+? -->\s*\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
ANCHOR = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")
NAMED = re.compile(r"`((?:linnet|tests|docs)/[\w./-]+)`")
LEAST_NAMED = {"CONTRIBUTING.md": 4, "docs/guide/architecture.md": 50, "docs/guide/model-in-one-page.md": 9}
OFFLINE = """
import socket
def closed(*args, **kwargs):
    raise OSError("documentation must run offline")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = closed
"""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    return [m["code"] for m in BLOCK.finditer(text) if m["language"] == language and not m["skip"]]


def commands(text: str) -> list[str]:
    """Return the lines of each sh block whose first line is a linnet command."""
    chosen = [block for block in blocks(text, "sh") if block.startswith("linnet ")]
    return [line for block in chosen for line in block.splitlines() if line.strip()]


def run(command: list[str], cwd: Path) -> None:
    keep = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **keep}, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def script(path: Path) -> str:
    """Return the python blocks of a file as a script whose tracebacks have the line numbers of the file."""
    text = path.read_text(encoding="utf-8")
    lines = [OFFLINE, "space = {'__name__': '__main__'}"]
    for match in BLOCK.finditer(text):
        if match["language"] == "python" and not match["skip"]:
            padded = "\n" * text[: match.start("code")].count("\n") + match["code"]
            lines.append(f"exec(compile({padded!r}, {name(path)!r}, 'exec'), space)")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("path", RUN, ids=name)
def test_python_blocks_run(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "blocks.py"
    file.write_text(script(path), encoding="utf-8")
    run([sys.executable, "-W", "error::DeprecationWarning:__main__", str(file)], tmp_path)


def test_the_model_in_one_page_gives_the_logits_of_linnet() -> None:
    """The page's own assertions compare with linnet; the model is under 200 lines and imports torch only."""
    path = ROOT / "docs" / "guide" / "model-in-one-page.md"
    code = blocks(path.read_text(encoding="utf-8"), "python")
    assert sum(block.count("\n") for block in code) < 200
    complete = next(i for i, block in enumerate(code) if "class LanguageModel" in block)
    assert not any("linnet" in block for block in code[: complete + 1])
    exec(script(path).removeprefix(OFFLINE), {})  # in this process: it takes a second, a new Python several


@pytest.mark.parametrize(
    ("right", "wrong"), [("10_000.0", "10_001.0"), ("+ self.eps", ""), ("z = state[1] + k", "z = k"), (".tril()", "")]
)
def test_the_model_in_one_page_notices_a_mistake(right: str, wrong: str) -> None:
    page = script(ROOT / "docs" / "guide" / "model-in-one-page.md").removeprefix(OFFLINE)
    assert right in page
    with pytest.raises(AssertionError):
        exec(page.replace(right, wrong), {})


NOT_SHIPPED = {"mnist": "mnist", "cifar10": "cifar10", "an4": "an4", "fsdd": "fsdd", "etth1": "timeseries"}
NOT_SHIPPED |= {"piqa": "fewshot", "copa": "fewshot"}
SHORT = {"--steps": "2", "--warmup": "0", "--eval-rows": "4", "--batch-size": "4", "--eval-every": "2"}


def shortened(words: list[str]) -> list[str]:
    """Return the same command for two steps: `--steps 3000` becomes `--steps 2`."""
    if "--fewshot" in words:
        return [*words[: words.index("--limit")], "--limit", "4"] if "--limit" in words else [*words, "--limit", "4"]
    if words[1] == "eval":
        return [*words, "--rows", "4"]
    if words[1] != "train" or words[2] == "presets":
        return words
    if words[2] == "resume":
        return [*words[: words.index("--steps")], "--steps", "4"] if "--steps" in words else words
    kept = [w for i, w in enumerate(words) if w not in SHORT and words[i - 1] not in SHORT]
    return [*kept, *(w for pair in SHORT.items() for w in pair), "--autocast", "none"]


def own_files(folder: Path) -> None:
    """Write stand-ins for the reader's own files: a book, a sensor, recordings, pictures."""
    (folder / "book.txt").write_text("It was a dark and stormy night; the rain fell in torrents.\n" * 200)
    t = np.arange(4000)
    rows = (f"{i},{np.sin(i / 9):.4f},{np.cos(i / 70):.4f}" for i in t)
    (folder / "sensor.csv").write_text("time,load,temperature\n" + "\n".join(rows) + "\n")
    (folder / "recordings").mkdir()
    names = [f"take{i}" for i in range(12)]
    (folder / "recordings" / "transcripts.tsv").write_text("".join(f"{n}\tone two\n" for n in names))
    for n in names:
        with wave.open(str(folder / "recordings" / f"{n}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes((3000 * np.sin(np.arange(8000) / 5)).astype("<i2").tobytes())
    (folder / "pictures").mkdir()
    for i in range(20):
        Image.fromarray(np.full((6, 6), i, dtype=np.uint8)).save(folder / "pictures" / f"{i:02}.png")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", [p for p in RUN if commands(p.read_text(encoding="utf-8"))], ids=name)
def test_commands_run(path: Path, tmp_path: Path) -> None:
    own_files(tmp_path)
    for command in commands(path.read_text(encoding="utf-8")):
        words = shlex.split(command, comments=True)
        if any(w in NOT_SHIPPED and data_folder(NOT_SHIPPED[w]) is None for w in words):
            continue  # the guide says that these data are not included
        if words[1] == "eval" and not (tmp_path / words[2]).exists():
            continue  # the run of a command that was skipped
        run([sys.executable, "-m", "linnet", *shortened(words)[1:]], tmp_path)


@pytest.mark.parametrize("path", ALL, ids=name)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{name(path)} links to {target}"


@pytest.mark.parametrize("path", ALL, ids=name)
def test_anchors_are_headings_of_the_page_they_are_on(path: Path) -> None:
    for target, anchor in ANCHOR.findall(path.read_text(encoding="utf-8")):
        page = path.parent / target if target else path
        assert anchor in anchors(page.read_text(encoding="utf-8")), f"{name(path)} links to {target}#{anchor}"


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as the site and GitHub both make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [path for path in ALL if path.name != "CHANGELOG.md"], ids=name)
def test_files_named_on_a_page_exist(path: Path) -> None:
    named = NAMED.findall(path.read_text(encoding="utf-8"))
    assert len(named) >= LEAST_NAMED.get(name(path), 0)
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_readme_is_short_and_names_alternatives_first() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 120
    first_screen = "\n".join(lines[:25])
    for other in ("scaled_dot_product_attention", "flash-linear-attention", "mamba", "llama.cpp"):
        assert other in first_screen


def test_readme_has_blocks_that_run() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert blocks(text, "python")
    assert "linnet doctor" in commands(text)


def test_training_commands_are_shortened() -> None:
    words = shortened(shlex.split("linnet train text book.txt --steps 3000 --mixer conv elu"))
    assert words[:8] == ["linnet", "train", "text", "book.txt", "--mixer", "conv", "elu", "--steps"]
    assert words.count("--steps") == 1
    assert "3000" not in words


def test_blocks_are_found_and_skipped() -> None:
    text = (
        "```python\na = 1\n```\n\n<!-- not run: needs a GPU -->\n```python\nb = 2\n```\n\n```sh\nlinnet doctor\n```\n"
    )
    assert blocks(text, "python") == ["a = 1\n"]
    assert commands(text) == ["linnet doctor"]
