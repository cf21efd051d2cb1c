"""`linnet generate text|image`: generate with a trained model.

This file defines the text command, which generate_text.py runs; generate_image.py has the images. torch is imported
only when there is something to run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App

from .common import FLAG
from .generate_options import Choice, ChoiceOptions, Running, RunningOptions

EPILOG = """\
Examples

    linnet generate text runs/first --prompt "Call me"
        a continuation, printed token by token; Ctrl-C ends it
    linnet generate text runs/first --prompt "Call me" --samples 4 --seed 1
    linnet generate text runs/first --prompt Who --temperature 0 --stop "."
        the most likely token each time, up to the first full stop
    linnet generate text runs/first --prompt-file start.txt --save-state tale
    linnet generate text runs/first --from-state tale --prompt "But then"
        the long start is read once; continuing costs the same at any length
    linnet generate image runs/digits --out samples.png --count 32
    linnet generate image runs/digits --out completed.png --complete --count 8
        complete the lower half of held-out images, three times each
"""

generate = App(name="generate", help_format="plaintext", help_epilogue=EPILOG)
generate.help = "Generate text or images with a trained model, at a constant cost per token."
generate.command("linnet.cli.generate_image:image", name="image", help="Sample from an image model into a PNG file.")


@generate.command
def text(
    run: Path,
    *,
    prompt: str | None = None,
    prompt_file: Path | None = None,
    tokens: int = 200,
    stop: Annotated[list[str] | None, FLAG] = None,
    samples: int = 1,
    beams: int = 0,
    logprobs: int | None = None,
    json: Annotated[bool, FLAG] = False,
    quiet: Annotated[bool, FLAG] = False,
    choice: Choice = None,
    running: Running = None,
) -> None:
    """Continue a text with a language model, printing token by token; the prompt itself is not repeated.

    Parameters
    ----------
    run
        The --out of `linnet train text` or `linnet import`, or a folder of save_pretrained with a tokenizer.json.
    prompt
        The text to continue; without --prompt and --prompt-file it is read from standard input.
    prompt_file
        A file with the text to continue, used verbatim, including the line break at its end.
    tokens
        How many tokens to generate at most.
    stop
        End before this text, wherever it appears; may be given several times.
    samples
        How many continuations, each with its own random numbers.
    beams
        Search for the most likely continuation with this many beams instead of sampling; 0 samples.
    logprobs
        With --json: the log-probability of each token, and of this many of the most likely ones.
    json
        Print a JSON object for each continuation at the end, instead of streaming text.
    quiet
        Omit the final line about speed and state.
    """
    from .generate_text import OutputOptions, generate_text

    generate_text(
        run,
        _prompt(prompt, prompt_file),
        OutputOptions(tokens, tuple(stop or ()), samples, beams, logprobs, json, quiet),
        choice or ChoiceOptions(),
        running or RunningOptions(),
    )


def _prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is not None:
        raise ValueError(f"--prompt and --prompt-file {file} are both given; accepted: one of them")
    if file is not None:
        if not file.exists() or file.is_dir():
            raise ValueError(f"--prompt-file is {file}, but there is no such file; accepted: a file of UTF-8 text")
        return _decode(str(file), file.read_bytes())
    if prompt is not None:
        return _decode("--prompt", os.fsencode(prompt))  # under LANG=C, Python has not decoded it
    if sys.stdin.isatty():
        raise ValueError("there is no prompt; add --prompt TEXT or --prompt-file FILE, or pipe a text in")
    return _decode("standard input", sys.stdin.buffer.read())


def _decode(where: str, data: bytes) -> str:
    """Decode as UTF-8, whatever the locale's encoding is."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 text ({error.reason} at byte {error.start}); convert it") from error
