"""`linnet train`: every kind of data, resuming bit for bit, help without torch; test_train_refused.py has the rest."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.cli.train import train as app
from linnet.cli.train_options import ModelOptions, Run
from linnet.cli.train_presets import ABOUT
from linnet.cli.train_show import Watcher
from linnet.models import PRESETS, Model, count_parameters, state_bytes
from linnet.train import TrainConfig, checkpoint, read_log
from tests.cli.command import (
    SHAPE,
    TINY,
    last_of_each,
    linnet,
    refused,
    weights,
    write_csv,
    write_npz,
    write_pngs,
    write_speech,
    write_text,
)

Capsys = pytest.CaptureFixture[str]
KINDS = ("text", "image", "speech", "stream")
SMALL_TEXT = (*TINY, "--seq-len", "32")
SMALL_STREAM = (*TINY, "--context", "16")
pytestmark = pytest.mark.usefixtures("elsewhere")


def same(a: Path, b: Path) -> bool:
    """Weights, moments and log of two runs, bit for bit."""
    first, second = (checkpoint.load(out) for out in (a, b))
    assert first is not None
    assert second is not None
    logs = [[(x["kind"], x["step"], x["loss"]) for x in read_log(out / "log.jsonl")] for out in (a, b)]
    pairs = ((first.model, second.model), (first.optimizer, second.optimizer))
    equal = all(x.keys() == y.keys() and all(torch.equal(x[n], y[n]) for n in x) for x, y in pairs)
    return equal and logs[0] == logs[1]


# --- every kind of data


@pytest.mark.parametrize(
    ("kind", "make", "options"),
    [
        ("text", write_text, ("--seq-len", "32")),
        ("text", write_text, ("--seq-len", "16", "--tokenizer", "bpe", "--vocab-size", "300")),
        ("image", lambda path: write_npz(path.with_suffix(".npz")), ()),
        ("image", write_pngs, ("--preset", "digits")),
        ("speech", write_speech, ("--stacked", "2", "--with-deltas")),
        ("stream", write_csv, ("--context", "16", "--horizon", "2", "--targets", "load")),
    ],
)
def test_own_data(tmp_path: Path, capsys: Capsys, kind: str, make: Callable[[Path], Path], options: Any) -> None:
    data = make(tmp_path / "data").relative_to(tmp_path)
    done = linnet(capsys, "train", kind, data, *TINY, *options, "--out", "runs/one")
    assert (done.status, done.out) == (0, ""), done.err
    assert "4 steps in" in done.err
    assert "linnet eval runs/one" in done.err
    stored = json.loads(Path("runs/one/run.json").read_text())
    assert stored["kind"] == kind
    assert stored["model"]["d_model"] == 16
    assert stored["train"]["steps"] == 4
    assert str(data.resolve()) in str(stored["data"])  # absolute: resumed from anywhere
    steps = [line["step"] for line in read_log(Path("runs/one/log.jsonl")) if line["kind"] == "step"]
    assert steps == [1, 2, 3, 4]
    assert Model.from_pretrained("runs/one").config.to_dict() == stored["model"]


@pytest.mark.parametrize("kind", KINDS)
def test_without_any_file_what_is_shipped_or_generated(capsys: Capsys, kind: str) -> None:
    done = linnet(capsys, "train", kind, *TINY)
    assert done.status == 0, done.err
    assert (Path("runs") / kind / "latest").is_file()


def test_several_mixers_and_options_reach_the_model(capsys: Capsys, book: Path) -> None:
    options = ("--mixer", "conv", "rebased", "--key-dim", "4", "--mlp", "swiglu", "--norm", "rms", "--n-layers", "2")
    linnet(capsys, "train", "text", book, *SMALL_TEXT, *options, "--betas", "0.8", "0.9", "--clip-each", "0.5")
    stored = json.loads(Path("runs/text/run.json").read_text())
    model = {name: stored["model"][name] for name in ("mixer", "key_dim", "mlp", "norm", "n_layers")}
    assert model == {"mixer": ["conv", "rebased"], "key_dim": 4, "mlp": "swiglu", "norm": "rms", "n_layers": 2}
    assert (stored["train"]["betas"], stored["train"]["clip_each"]) == ([0.8, 0.9], 0.5)


def test_a_preset_of_another_task_becomes_one_of_this(capsys: Capsys, book: Path) -> None:
    assert linnet(capsys, "train", "text", book, *SMALL_TEXT, "--preset", "speech-small").status == 0
    stored = json.loads(Path("runs/text/run.json").read_text())["model"]
    assert (stored["task"], stored["causal"], stored["vocab_size"]) == ("language", True, 256)


def test_a_short_trial_needs_no_warmup_option(capsys: Capsys, book: Path) -> None:
    assert (
        linnet(capsys, "train", "text", book, *SHAPE, "--seq-len", "32", "--steps", "3", "--batch-size", "2").status
        == 0
    )
    assert json.loads(Path("runs/text/run.json").read_text())["train"]["warmup"] == 0
    assert "warmup is 9" in refused(
        capsys, "train", "text", book, *SHAPE, "--steps", "3", "--warmup", "9", "--out", "b"
    )


# --- resuming


@pytest.mark.parametrize("how", ["resume", "--resume"])
def test_an_interrupted_run_resumes_bit_for_bit(capsys: Capsys, book: Path, how: str) -> None:
    command = ("train", "text", book, *SMALL_TEXT, "--dropout", "0.1", "--eval-every", "4")
    assert linnet(capsys, *command, "--steps", "8", "--out", "whole").status == 0
    assert linnet(capsys, *command, "--steps", "4", "--out", "parts").status == 0
    assert not same(Path("whole"), Path("parts"))
    again = ("train", "resume", "parts") if how == "resume" else (*command, "--out", "parts", "--resume")
    done = linnet(capsys, *again, "--steps", "8")
    assert done.status == 0, done.err
    assert "from step-00000004" in done.err
    assert same(Path("whole"), Path("parts"))
    assert json.loads(Path("parts/run.json").read_text())["train"]["steps"] == 8


def test_resume_starts_a_run_that_does_not_exist_yet(capsys: Capsys, book: Path) -> None:
    assert linnet(capsys, "train", "text", book, *SMALL_TEXT, "--resume").status == 0
    done = linnet(capsys, "train", "text", book, *SMALL_TEXT, "--resume")
    assert done.status == 0
    assert "from step-00000004" in done.err


def test_a_checkpoint_by_name(capsys: Capsys, book: Path) -> None:
    linnet(capsys, "train", "text", book, *SMALL_TEXT, "--save-every", "2", "--out", "a")
    done = linnet(capsys, "train", "resume", "a", "--checkpoint", "step-00000002")
    assert done.status == 0
    assert "from step-00000002" in done.err
    assert "step-00000009" in refused(capsys, "train", "resume", "a", "--checkpoint", "step-00000009")


def test_the_tokenizer_is_that_of_the_run(capsys: Capsys, book: Path) -> None:
    bpe = ("--tokenizer", "bpe", "--vocab-size", "300", "--seq-len", "16")
    assert linnet(capsys, "train", "text", book, *TINY, *bpe, "--out", "a").status == 0
    kept = Path("a/tokenizer.json").read_bytes()
    assert linnet(capsys, "train", "resume", "a", "--steps", "5").status == 0
    assert linnet(capsys, "train", "text", book, *TINY, "--tokenizer", "a/tokenizer.json", "--out", "b").status == 0
    assert Path("a/tokenizer.json").read_bytes() == Path("b/tokenizer.json").read_bytes() == kept
    # one that is in the folder before there is a run is not the run's
    Path("c").mkdir()
    shutil.copy("a/tokenizer.json", "c/tokenizer.json")
    assert linnet(capsys, "train", "text", book, *SMALL_TEXT, "--out", "c").status == 0
    assert json.loads(Path("c/run.json").read_text())["model"]["vocab_size"] == 256


def test_a_run_is_not_overwritten(capsys: Capsys, book: Path) -> None:
    linnet(capsys, "train", "text", book, *SMALL_TEXT)
    before = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    assert "--resume" in refused(capsys, "train", "text", book, *SMALL_TEXT)
    changes = [
        (("--lr", "0.1"), "lr is 0.1"),
        (("--mixer", "rebased"), "mixer"),
        (("--seq-len", "16"), "seq_len is 16"),
    ]
    changes += [(("--tokenizer", "bpe"), "tokenizer is 'bpe' but was 'byte'")]
    for change, named in changes:
        assert named in refused(capsys, "train", "text", book, *SMALL_TEXT, *change, "--resume")[-400:]
    assert "kind is 'image' but was 'text'" in refused(
        capsys, "train", "image", *TINY, "--out", "runs/text", "--resume"
    )
    write_text(Path("other.txt"), 1300)
    assert "fingerprint" in refused(capsys, "train", "text", "other.txt", *SMALL_TEXT, "--resume")
    assert before == {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}


def test_ctrl_c_saves_and_names_the_resume_command(capsys: Capsys, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Watcher.on_event

    def interrupt(self: Watcher, event: Any) -> None:
        seen(self, event)
        if (event.kind, event.step) == ("step", 2):
            os.kill(os.getpid(), signal.SIGINT)

    command = ("train", "text", book, *SMALL_TEXT)
    linnet(capsys, *command, "--out", "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "on_event", interrupt)
        done = linnet(capsys, *command, "--out", "parts")
    assert done.status == 130
    assert "stopped by SIGINT after step 3, and saved; continue with: linnet train resume parts" in done.err
    assert linnet(capsys, "train", "resume", "parts").status == 0
    assert same(Path("whole"), Path("parts"))


# --- help and presets


def test_the_commands_are_read_without_torch() -> None:
    code = (
        "import sys, linnet.cli.train\nfrom linnet.cli.main import main\n"
        "for args in (['train', 'text', '--help'], ['train', 'stream', '--help'], ['train', 'text', '--stepz', '1']):\n"
        "    try: main(args)\n"
        "    except SystemExit: pass\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize("kind", [*KINDS, "resume", "presets"])
def test_help_describes_every_option(capsys: Capsys, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = linnet(capsys, "train", kind, "--help")
    assert done.status == 0
    arguments = app[kind].assemble_argument_collection(parse_docstring=True)
    leaves = [a for a in arguments if not a.children]
    names = (
        {field.name for part in (TrainConfig, ModelOptions, Run) for field in fields(part)} if kind in KINDS else set()
    )
    assert {f"--{name.replace('_', '-')}" for name in names} <= {name for a in leaves for name in a.names}
    for argument in leaves:
        text = argument.parameter.help
        assert text, f"{argument.name} has no help"
        assert argument.name in done.out
        assert text.split()[0] in done.out


def test_presets_are_listed_with_their_size(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(ABOUT) == set(PRESETS)
    monkeypatch.setenv("COLUMNS", "80")
    out = linnet(capsys, "train", "presets").out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for name, config in PRESETS.items():
        assert f"{count_parameters(config):,}" in rows[name]
        assert not config.causal or f"{state_bytes(config, 1000):,}" in rows[name]
        assert ABOUT[name] in rows[name]
    listed = json.loads(linnet(capsys, "train", "presets", "--json").out)
    assert {name: row["config"] for name, row in listed.items()} == {n: c.to_dict() for n, c in PRESETS.items()}


def test_a_preset_is_printed_in_full(capsys: Capsys) -> None:
    assert json.loads(linnet(capsys, "train", "presets", "mnist").out) == PRESETS["mnist"].to_dict()
    assert "did you mean 'mnist'" in refused(capsys, "train", "presets", "minst")


# --- real processes


@pytest.mark.slow
def test_a_real_process_interrupted_and_resumed(tmp_path: Path, book: Path, capsys: Capsys) -> None:
    command = ("train", "text", str(book), *SMALL_TEXT, "--steps", "100000", "--log-every", "1")
    launch = [sys.executable, "-m", "linnet", *last_of_each([*command, "--out", "run"])]
    log = tmp_path / "run" / "log.jsonl"
    with subprocess.Popen(launch, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not (log.exists() and log.stat().st_size):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "continue with: linnet train resume run" in err
    done = int(Path("run/latest").read_text().strip()[-8:])
    assert linnet(capsys, "train", "resume", "run", "--steps", done + 2).status == 0
    assert linnet(capsys, *command, "--steps", done + 2, "--out", "whole").status == 0
    first, second = weights(Path("run")), weights(Path("whole"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_two_processes_share_one_refusal_and_one_run(tmp_path: Path, book: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "linnet"]

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = last_of_each(["train", "text", str(book), *SMALL_TEXT, *options])
        return subprocess.run(
            [*launch, *command], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )

    done = run("--seq-len", "100000")
    assert done.returncode != 0
    assert done.stderr.count("linnet: ") == 1, done.stderr
    assert not (tmp_path / "runs").exists()
    done = run("--tokenizer", "bpe", "--vocab-size", "300")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("4 steps in") == 1
    assert json.loads((tmp_path / "runs/text/run.json").read_text())["model"]["vocab_size"] == 300
