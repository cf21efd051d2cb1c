"""The `linnet` command: import only the requested sub-command, and report a user's mistake in one sentence.

Sub-commands are registered as strings together with their help, so `linnet --help` imports neither torch nor them.
Exit status: 0 success, 2 a mistake in the request (one sentence on stderr), 130 Ctrl-C, 1 anything else (a traceback).
A character that the terminal's encoding lacks is printed as "?", so that no command fails halfway because of it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Sequence
from errno import EACCES, EDQUOT, EFBIG, ENOSPC, EPERM, EROFS
from io import TextIOWrapper
from typing import Annotated

from cyclopts import App, CycloptsError, Group, Parameter

from .. import __version__
from ..errors import ArgumentError, OptionError
from .laboratory import LABS, has_laboratory, laboratory

HELP = """\
Linear transformers you can train, run, understand and trust, on any machine.

Start with `linnet doctor`. It shows what is installed, whether the native
kernels are in use, and which form and backend run for typical shapes.

Commands to try first

    linnet reproduce           check three papers on this machine, in minutes
    linnet train text          train a character model on the shipped text
    linnet eval runs/text      measure it on held-out text
    linnet generate text runs/text --prompt "Call me"
                               sample from it, at a constant cost per token
    linnet serve runs/text     serve it over HTTP, as the OpenAI API does
    linnet recall --quick      measure how much a small state can remember
    linnet doctor              versions, processor, native kernels, dispatch
    linnet doctor --json       the same as JSON, for a program or a bug report
    linnet bench ops --quick   compare with scaled_dot_product_attention
    linnet bench ops --help    lengths, threads, JSON, plots

LINNET_DEBUG=1 shows the traceback behind a one-sentence error.
"""

app = App(name="linnet", help=HELP, help_format="plaintext", version=__version__)
EVERYDAY = Group("Everyday commands", sort_key=0)
LABORATORY = Group("Laboratory", sort_key=1)

for name, where, about in (
    ("doctor", "doctor:doctor", "Show what is installed, which backends run, and why."),
    ("train", "train:train", "Train on your own text, images, speech or streams."),
    ("eval", "eval:evaluate", "Measure a model on held-out data, a text, or few-shot questions."),
    ("generate", "generate:generate", "Generate text or images with a trained model."),
    ("serve", "serve:serve", "Serve a model over HTTP: the OpenAI API, and sessions that cost kilobytes."),
    ("import", "import_model:import_model", "Import a pretrained model: Llama, Mamba, RWKV, hybrids."),
    ("export", "export_model:export_model", "Export a language model for Hugging Face transformers."),
):
    app.command(f"linnet.cli.{where}", name=name, help=about, group=EVERYDAY)

LABORATORY_COMMANDS = ("reproduce", "report", "recall", "icl", "bench")


def refuse_laboratory(*_: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Refuse a laboratory command in an installation without linnet/labs."""
    laboratory("")


if has_laboratory():
    for name, where, about in (
        ("reproduce", "reproduce:reproduce", "Check three papers on this machine; write a report page."),
        ("report", "report:report", "Write the page of a reproduce folder again; markdown, CSV."),
        ("recall", "recall:recall", "Measure how much each mixer recalls at each state size."),
        ("icl", "icl:icl", "In-context learning: train, tabulate, verify, explain."),
    ):
        app.command(f"{LABS}.{where}", name=name, help=about, group=LABORATORY)
    bench = App(name="bench", help="Time linnet on this machine, compared with the alternatives.", group=LABORATORY)
    for name, where, about in (
        ("ops", "bench:ops", "The attention ops: forward and backward, by length."),
        ("train", "bench_train:train", "A training step: linear compared with softmax attention."),
        ("decode", "bench_decode:decode", "Generation, one token at a time, by batch size."),
        ("load", "bench_load:load", "One thread or several, while other programs compete."),
        ("icl", "bench_icl:icl", "Training in-context regression, compared with eager torch."),
        ("regressors", "bench_regressors:regressors", "In-context regression, compared with scikit-learn."),
        ("serve", "bench_serve:serve", "The server: streams, long prompts, sessions, next to llama.cpp."),
    ):
        bench.command(f"{LABS}.{where}", name=name, help=about)
    app.command(bench)
else:
    for name in LABORATORY_COMMANDS:
        app.command(refuse_laboratory, name=name, show=False)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line and exit with one of the statuses above."""
    warnings.formatwarning = lambda message, *_: f"linnet: {message}\n"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            app(argv, exit_on_error=False)
        finally:
            sys.stdout.flush()  # here, so that a full disk counts as an error of this command
    except CycloptsError:
        sys.exit(2)  # already printed
    except KeyboardInterrupt:
        print("linnet: stopped by Ctrl-C", file=sys.stderr)
        sys.exit(130)  # the shell's status of a command that SIGINT ended
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does: not an error
        _close_stdout()
    except (ValueError, OSError, ImportError) as error:  # our own errors are ValueErrors; a full disk is an OSError
        if os.environ.get("LINNET_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno and not error.filename:
            _close_stdout()
        print(f"linnet: {sentence(error, _options(argv))}", file=sys.stderr)
        sys.exit(2)


def sentence(error: Exception, options: Collection[str] = ()) -> str:
    """Return one sentence with a way out, also for exceptions that have only an error number or a position.

    An argument of the library that is also one of the command's `options` is named as its flag: --batch-size.
    """
    if isinstance(error, ArgumentError) and _flag(error.name) in options:
        return error.sentence(_flag(error.name))
    if isinstance(error, OptionError) and all(_flag(option.name) in options for option in error.options):
        return error.sentence(lambda name, value: _flag(name) if value is True else f"{_flag(name)} {value}")
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return f"a file is not UTF-8: byte {error.start} is {byte:#04x} ({error.reason}); convert it (iconv -t UTF-8)"
    if not isinstance(error, OSError) or not error.errno:
        return str(error)
    where, ways = error.filename or "standard output", dict.fromkeys((ENOSPC, EDQUOT, EFBIG), "free some space")
    ways |= dict.fromkeys((EACCES, EPERM, EROFS), "change its permissions")
    way = ways.get(error.errno, "check the path")
    return f"{where}: {(error.strerror or 'it failed').lower()}; {way}, or choose another path"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _options(argv: Sequence[str] | None) -> set[str]:
    """Return the options of the command in a command line."""
    *_, command = app.parse_commands(argv)[1]
    return {name for argument in command.assemble_argument_collection() for name in argument.names}


def _close_stdout() -> None:
    """Redirect stdout to the null device, so that Python does not fail again when it flushes the rest at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # a stream without a file, as in tests
        return


if __name__ == "__main__":
    main()
