"""`linnet`: finds the sub-command, loads only that one, and turns a user's mistake into one sentence.

Sub-commands are given as strings with their help beside them, so `linnet --help` imports neither torch nor them.
Exit status: 0 done, 2 a mistake in what was asked (one sentence on stderr), 130 Ctrl-C, 1 anything else (a traceback).
What a terminal's encoding does not have is shown as "?": no command stops half-way for it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from errno import EACCES, EDQUOT, EFBIG, ENOSPC, EPERM, EROFS
from io import TextIOWrapper

from cyclopts import App, CycloptsError

from .. import __version__

HELP = """\
Linear transformers you can train, run, understand and trust, on any machine.

Start with `linnet doctor`: what is installed, whether the native kernels are
in use, and which form and back end would run for typical shapes.

Commands to try first

    linnet reproduce           three papers checked on this machine, in minutes
    linnet train text          a character model on the shipped text, in minutes
    linnet eval runs/text      how good it is on what it has not seen
    linnet generate text runs/text --prompt "Call me"
                               what it writes, at a constant cost per letter
    linnet recall --quick      what a state of a few kilobytes can remember
    linnet doctor              versions, processor, native kernels, choices
    linnet doctor --json       the same for a program, or for a bug report
    linnet bench ops --quick   our op beside scaled_dot_product_attention
    linnet bench ops --help    lengths, threads, JSON, plot

LINNET_DEBUG=1 shows the traceback behind a one-sentence error.
"""

app = App(name="linnet", help=HELP, help_format="plaintext", version=__version__)
app.command("linnet.cli.doctor:doctor", name="doctor", help="What is installed, which back ends run, and why.")

app.command("linnet.cli.reproduce:reproduce", name="reproduce", help="Three papers checked here: a scoreboard, a page.")
app.command("linnet.cli.report:report", name="report", help="The page of a reproduce folder again; markdown, CSV.")

app.command("linnet.cli.train:train", name="train", help="Train on your own text, images, speech or streams.")
app.command(
    "linnet.cli.eval:evaluate", name="eval", help="Measure a model on held-out data, a text, or few-shot questions."
)
app.command("linnet.cli.generate:generate", name="generate", help="Text and images from a trained model.")
app.command("linnet.cli.import_model:import_model", name="import", help="Bring a pretrained Llama-type model in.")

app.command("linnet.cli.icl:icl", name="icl", help="In-context learning: train, tabulate, verify, explain.")
app.command("linnet.cli.recall:recall", name="recall", help="Which mixer, at which state size, remembers how much.")

bench = App(name="bench", help="Measure on this machine, beside what you would use instead.")
bench.command("linnet.cli.bench:ops", name="ops", help="The attention ops: forward and backward, by length.")
bench.command("linnet.cli.bench_train:train", name="train", help="A training step, linear beside softmax attention.")
bench.command("linnet.cli.bench_decode:decode", name="decode", help="Generation, one token at a time, by batch.")
bench.command("linnet.cli.bench_load:load", name="load", help="One thread or several, beside programs that compete.")
bench.command("linnet.cli.bench_icl:icl", name="icl", help="Training in-context regression, beside eager torch.")
bench.command("linnet.cli.bench_regressors:regressors", name="regressors", help="In-context regression, scikit-learn.")
app.command(bench)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line; leaves with the exit status above."""
    warnings.formatwarning = lambda message, *_: f"linnet: {message}\n"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            app(argv, exit_on_error=False)
        finally:
            sys.stdout.flush()  # a full disk behind it is an error of this command
    except CycloptsError:
        sys.exit(2)  # already printed
    except KeyboardInterrupt:
        print("linnet: stopped by Ctrl-C", file=sys.stderr)
        sys.exit(130)  # what a shell says of a command ended by SIGINT
    except BrokenPipeError:  # the reader left, as `| head` does; nothing is wrong
        _close_stdout()
    except (ValueError, OSError, ImportError) as error:  # our own errors are ValueErrors; a full disk is an OSError
        if os.environ.get("LINNET_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno and not error.filename:
            _close_stdout()
        print(f"linnet: {sentence(error)}", file=sys.stderr)
        sys.exit(2)


def sentence(error: Exception) -> str:
    """One sentence with a way out, also where Python has only an error number or a position."""
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return f"a file is not UTF-8: byte {error.start} is {byte:#04x} ({error.reason}); convert it (iconv -t UTF-8)"
    if not isinstance(error, OSError) or not error.errno:
        return str(error)
    where, ways = error.filename or "standard output", dict.fromkeys((ENOSPC, EDQUOT, EFBIG), "make room")
    ways |= dict.fromkeys((EACCES, EPERM, EROFS), "change its permissions")
    way = ways.get(error.errno, "check the path")
    return f"{where}: {(error.strerror or 'it failed').lower()}; {way}, or name another place"


def _close_stdout() -> None:
    """Or Python tries to write what is left, and complains, at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # a stream without a file, as in tests
        return


if __name__ == "__main__":
    main()
