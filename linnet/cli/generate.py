"""`linnet generate text|image`: what a trained model makes. The text command is here; what happens then is in
generate_text.py, pictures are in generate_image.py.

torch is imported only when there is something to run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from .generate_options import Choice, ChoiceOptions, Running, RunningOptions

LESSON = """\
Examples

    linnet generate text runs/first --prompt "Call me"
        a continuation, shown as it comes; Ctrl-C ends it
    linnet generate text runs/first --prompt "Call me" --samples 4 --seed 1
    linnet generate text runs/first --prompt Who --temperature 0 --stop "."
        the most likely letter each time, up to the first full stop
    linnet generate text runs/first --prompt-file start.txt --save-state tale
    linnet generate text runs/first --from-state tale --prompt "But then"
        the long start is read once; going on costs the same at any length
    linnet generate image runs/digits --out samples.png --count 32
    linnet generate image runs/digits --out completed.png --complete --count 8
        the lower half of images the run has not seen, three times each
"""
FLAG = Parameter(negative="")

generate = App(name="generate", help_format="plaintext", help_epilogue=LESSON)
generate.help = "Text and images from a trained model, one token at a time at constant cost."
generate.command("linnet.cli.generate_image:image", name="image", help="Pictures from an image model, in a PNG file.")


@generate.command
def text(
    run: Path,
    *,
    prompt: str | None = None,
    prompt_file: Path | None = None,
    tokens: int = 200,
    stop: Annotated[list[str] | None, Parameter(negative="")] = None,
    samples: int = 1,
    beams: int = 0,
    logprobs: int | None = None,
    json: Annotated[bool, FLAG] = False,
    quiet: Annotated[bool, FLAG] = False,
    choice: Choice = None,
    running: Running = None,
) -> None:
    """Continue a text with a run of `linnet train text`, shown as it comes; the prompt itself is not repeated.

    Parameters
    ----------
    run
        The --out of `linnet train text`, or a folder of save_pretrained with a tokenizer.json.
    prompt
        The text to continue; without it and --prompt-file, what comes through a pipe.
    prompt_file
        A file with the text to continue, taken as it is: also the line break at its end.
    tokens
        How many tokens to sample at most.
    stop
        End before this text, wherever it comes; may be given several times.
    samples
        How many continuations, each with random numbers of its own.
    beams
        Search for the most likely continuation with this many beams, instead of drawing one; 0 draws.
    logprobs
        With --json: the log-probability of each token, and of this many of the most likely ones.
    json
        Print a JSON object for each continuation at the end, instead of text as it comes.
    quiet
        No line about speed and state at the end.
    """
    from .generate_text import Wanted, write

    write(
        run,
        _prompt(prompt, prompt_file),
        Wanted(tokens, tuple(stop or ()), samples, beams, logprobs, json, quiet),
        choice or ChoiceOptions(),
        running or RunningOptions(),
    )


def _prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is not None:
        raise ValueError(f"--prompt and --prompt-file {file} are both given; accepted: one of them")
    if file is not None:
        if not file.exists() or file.is_dir():
            raise ValueError(f"--prompt-file is {file}, but there is no such file; accepted: a file of UTF-8 text")
        return _decoded(str(file), file.read_bytes())
    if prompt is not None:
        return _decoded("--prompt", os.fsencode(prompt))  # under LANG=C, Python has not decoded it
    if sys.stdin.isatty():
        raise ValueError("there is no prompt; say --prompt TEXT or --prompt-file FILE, or pipe a text in")
    return _decoded("what came through the pipe", sys.stdin.buffer.read())


def _decoded(where: str, data: bytes) -> str:
    """The text as it is, whatever encoding this machine prefers."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is no UTF-8 text ({error.reason} at byte {error.start}); convert it") from error
