"""`linnet train text|image|speech|stream`: train a linear transformer on your own data, also under torchrun.

This file defines the sub-commands; train_options.py has the options they share, train_run.py runs them. torch is
imported only when there is something to run. The folder of a run holds everything about it, so
`linnet train resume FOLDER` needs nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from .common import FLAG, SEVERAL
from .train_options import (
    TRAINING,
    VOCAB_SIZE,
    ImageTraining,
    Model,
    SpeechTraining,
    Strategy,
    StreamTraining,
    TextTraining,
    Where,
)

EPILOG = """\
Examples

    linnet train text --out runs/first
        a character model on the shipped text, three minutes on two cores
    linnet train text book.txt --mixer rebased --key-dim 16 --steps 3000
    linnet train text --out runs/first --resume
        after a crash or Ctrl-C: continue bit for bit where it stopped
    torchrun --nproc-per-node 2 -m linnet train text book.txt
        the same training on two processes (see the guide, many-machines)
"""
SPEECH_OPTIONS = {  # of the named data sets; any other name is a folder of recordings
    "generated": (),
    "an4": ("targets", "stacked", "with_deltas"),
    "fsdd": ("targets", "stacked", "with_deltas"),
}
FOLDER_OPTIONS = ("stacked", "with_deltas", "resample")

train = App(name="train", help_format="plaintext", help_epilogue=EPILOG)
train.help = "Train a model on your own text, images, speech or streams."
train.command("linnet.cli.train_presets:presets", name="presets", help="List the preset models, or print one.")


@train.command
def text(
    files: Annotated[list[Path] | None, Parameter(negative="")] = None,
    *,
    seq_len: int = 256,
    tokenizer: str = "byte",
    vocab_size: int = VOCAB_SIZE,
    valid_fraction: float = 0.1,
    allow_binary: Annotated[bool, FLAG] = False,
    run: Where = None,
    model: Model = None,
    training: Annotated[TextTraining | None, TRAINING] = None,
) -> None:
    """Train a language model on text files (plain, .gz, .bz2), or on the shipped text if none is given.

    Parameters
    ----------
    files
        Text files, concatenated; the end is held out.
    seq_len
        Tokens per example.
    tokenizer
        byte, bpe (trained on the text; needs the extra `train`), or a tokenizer.json.
    vocab_size
        Vocabulary of the bpe tokenizer to train.
    valid_fraction
        Fraction of the text that is held out.
    allow_binary
        Accept files that look like binary data.
    """
    from .train_run import start

    data = {"paths": [str(file.resolve()) for file in files or ()], "seq_len": seq_len, "tokenizer": tokenizer}
    data |= {"vocab_size": vocab_size, "valid_fraction": valid_fraction, "allow_binary": allow_binary}
    start("text", data, "char-small", run, model, training or TextTraining())


@train.command
def image(
    name: str = "digits",
    *,
    run: Where = None,
    model: Model = None,
    training: Annotated[ImageTraining | None, TRAINING] = None,
) -> None:
    """Train a model of images, one pixel after the other.

    Parameters
    ----------
    name
        digits (shipped), mnist, cifar10, fashion-mnist, or a path: idx, .npz, or a folder of PNG files.
    """
    from .train_run import start

    preset = name if name in ("digits", "cifar10") else "mnist"
    start("image", {"name": name}, preset, run, model, training or ImageTraining())


@train.command
def speech(
    name: str = "generated",
    *,
    targets: str | None = None,
    stacked: int | None = None,
    with_deltas: Annotated[bool, FLAG] = False,
    resample: Annotated[bool, FLAG] = False,
    run: Where = None,
    model: Model = None,
    training: Annotated[SpeechTraining | None, TRAINING] = None,
) -> None:
    """Train a speech recogniser with CTC; it reports the phone (or letter) error rate.

    Parameters
    ----------
    name
        generated, an4, fsdd, or a folder of .wav files with a transcripts.tsv (one line `file<TAB>text` for each).
    targets
        What to recognise in an4 or fsdd: phones (the default), letters or words.
    stacked
        Frames to concatenate into one, for a shorter sequence.
    with_deltas
        Append the slopes over neighbouring frames to each frame.
    resample
        Convert recordings at other sampling rates to that of the first.
    """
    from .train_run import start

    options = {"targets": targets, "stacked": stacked, "with_deltas": with_deltas, "resample": resample}
    given: dict[str, Any] = {key: value for key, value in options.items() if value not in (None, False)}
    accepted = SPEECH_OPTIONS.get(name, FOLDER_OPTIONS)
    for key in given:
        if key not in accepted:
            flags = ", ".join(f"--{other.replace('_', '-')}" for other in accepted) or "none of these options"
            raise ValueError(f"--{key.replace('_', '-')} is not an option of {name} speech; accepted: {flags}")
    start("speech", {"name": name, **given}, "speech-small", run, model, training or SpeechTraining())


@train.command
def stream(
    name: str = "generated",
    *,
    context: int = 256,
    horizon: int = 1,
    targets: Annotated[list[str] | None, SEVERAL] = None,
    columns: Annotated[list[str] | None, SEVERAL] = None,
    missing: Literal["error", "forward", "drop"] = "error",
    run: Where = None,
    model: Model = None,
    training: Annotated[StreamTraining | None, TRAINING] = None,
) -> None:
    """Train a forecaster of time series; the last 20 per cent of the data are kept for `linnet eval`.

    Parameters
    ----------
    name
        A CSV file (or .csv.gz), or generated, etth1, beijing-pm25, nyc-taxi.
    context
        Time steps per example.
    horizon
        Time steps to forecast at each step.
    targets
        Columns to forecast. Default: all.
    columns
        Columns to read. Default: all numeric ones.
    missing
        How to handle missing values: error, forward (repeat the last value) or drop (the row).
    """
    from .train_run import start

    data = {"name": name, "context": context, "horizon": horizon, "missing": missing}
    data |= {"targets": targets, "columns": columns}
    start("stream", data, "stream-small", run, model, training or StreamTraining())


@train.command
def resume(
    folder: Path,
    *,
    checkpoint: str | None = None,
    steps: int | None = None,
    strategy: Strategy = "auto",
    threads: int | None = None,
) -> None:
    """Continue a run; its folder holds all that is needed.

    Parameters
    ----------
    folder
        The --out of the run.
    checkpoint
        The checkpoint to continue from, such as step-00000200. Default: the newest.
    steps
        Total number of optimizer steps, to train longer than first planned.
    strategy
        Under torchrun: ddp, fsdp or sequence.
    threads
        CPU threads of this process.
    """
    from .train_run import resume_run

    resume_run(folder, checkpoint, steps, strategy, threads)
