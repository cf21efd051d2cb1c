"""`linnet train text|image|speech|stream`: your own data in, a trained linear transformer out; the same under torchrun.

Here are the sub-commands; the options they share are in train_options.py, what happens then in train_run.py. torch is
imported only when there is something to run. Everything about a run is in its folder, so `linnet train resume FOLDER`
needs nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from .train_options import (
    FLAG,
    SEVERAL,
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

LESSON = """\
Examples

    linnet train text --out runs/first
        a character model on the shipped text, three minutes on two cores
    linnet train text book.txt --mixer rebased --key-dim 16 --steps 3000
    linnet train text --out runs/first --resume
        after a crash or Ctrl-C: goes on as if nothing had happened
    torchrun --nproc-per-node 2 -m linnet train text book.txt
        the same training on two processes (see the guide, many-machines)
"""
SPEECH_OPTIONS = {  # of the sets that have a name; any other is a folder of recordings
    "generated": (),
    "an4": ("targets", "stacked", "with_deltas"),
    "fsdd": ("targets", "stacked", "with_deltas"),
}
FOLDER_OPTIONS = ("stacked", "with_deltas", "resample")

train = App(name="train", help_format="plaintext", help_epilogue=LESSON)
train.help = "Train a model on your own text, images, speech or streams."
train.command("linnet.cli.train_presets:presets", name="presets", help="The models by name, and what is in them.")


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
    """A language model of text files (plain, .gz, .bz2); without files, of the text that is shipped.

    Parameters
    ----------
    files
        Text files, laid end to end; their end is held out.
    seq_len
        Tokens of an example.
    tokenizer
        byte, bpe (learned from the text; needs the extra `train`), or a tokenizer.json.
    vocab_size
        Tokens of a learned bpe.
    valid_fraction
        Share of the text that is held out.
    allow_binary
        Let bytes that do not look like text through.
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
    """A model of images, pixel after pixel.

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
    """Speech recognition by CTC; reports the phone (or letter) error rate.

    Parameters
    ----------
    name
        generated, an4, fsdd, or a folder of .wav files with a transcripts.tsv (a line `file<TAB>text` each).
    targets
        What to recognise in an4 or fsdd: phones (unless given), letters or words.
    stacked
        Frames joined into one: a shorter sequence.
    with_deltas
        Add the differences of neighbouring frames to each frame.
    resample
        Bring recordings of other rates to that of the first.
    """
    from .train_run import start

    options = {"targets": targets, "stacked": stacked, "with_deltas": with_deltas, "resample": resample}
    given: dict[str, Any] = {key: value for key, value in options.items() if value not in (None, False)}
    accepted = SPEECH_OPTIONS.get(name, FOLDER_OPTIONS)
    for key in given:
        if key not in accepted:
            some = ", ".join(f"--{other.replace('_', '-')}" for other in accepted) or "none of its own"
            raise ValueError(f"--{key.replace('_', '-')} is no option of {name} speech; accepted: {some}")
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
    """Forecast a stream of measurements; the last 20 per cent of it are for `linnet eval`.

    Parameters
    ----------
    name
        A CSV file (may be .gz), or generated, etth1, beijing-pm25, nyc-taxi.
    context
        Steps of an example.
    horizon
        Steps to forecast at each step.
    targets
        Columns to forecast; all unless given.
    columns
        Columns to read; all with numbers unless given.
    missing
        What to do about missing values: error, forward (repeat the last one) or drop (the row).
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
    """Continue a run from its folder alone.

    Parameters
    ----------
    folder
        The --out of the run.
    checkpoint
        Where to go on from, such as step-00000200; the newest unless given.
    steps
        Optimizer steps in all, if other than before.
    strategy
        Under torchrun: ddp, fsdp or sequence.
    threads
        CPU threads of this process.
    """
    from .train_run import go_on

    go_on(folder, checkpoint, steps, strategy, threads)
