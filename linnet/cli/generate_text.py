"""One `linnet generate text` command, from its options to its last line: open the run, generate, show, keep the state.

Text goes to stdout as it comes, and nothing else does; remarks go to stderr. Ctrl-C ends between two tokens with what
is there, and a second one at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from signal import Signals
from time import perf_counter
from typing import Any, NamedTuple

import torch

from ..generate import Completion, Engine, Generation, Sampling, beam_search, open_engine
from ..models import LanguageModel, ModelState
from ..train.stop import StopSignal
from .generate_options import ChoiceOptions, RunningOptions
from .loading import load_language

TEMPERATURE = 0.8
NAMES = {"max_tokens": "--tokens", "prompt 0": "the prompt", "stop has ": "--stop has "}  # library -> command line

Outcome = tuple[list[Completion], float, str]  # seconds after the prompt was read; the signal that ended it, or ""


class Wanted(NamedTuple):
    """What is to come out."""

    tokens: int
    stop: tuple[str, ...]
    samples: int
    beams: int
    logprobs: int | None
    json: bool
    quiet: bool


def write(run: Path, prompt: str, wanted: Wanted, choice: ChoiceOptions, running: RunningOptions) -> None:
    """Generate, show, and keep the state."""
    _check(wanted, choice, running)
    with _in_flags():
        sampling = _sampling(choice)
        model, tokenizer = load_language(run, running.checkpoint, quiet=wanted.quiet)
        states = None
        if running.from_state is not None:
            states = ModelState.load(running.from_state, model=model, tokenizer=tokenizer)
            _check_streams(running.from_state, len(states.position), wanted)
        engine = open_engine(model, weights=running.weights, backend=running.backend)
        how: dict[str, Any] = {"tokenizer": tokenizer, "max_tokens": wanted.tokens, "engine": engine, "states": states}
        how["stop_tokens"] = tokenizer.ends
        if wanted.beams:
            done, seconds, stopped = _searched(model, prompt, wanted, how)
        else:
            done, seconds, stopped = _sampled(model, prompt, wanted, sampling, how)
    _show(done, wanted)
    if running.save_state is not None:
        _read_all(engine, done).save(running.save_state, model=model, tokenizer=tokenizer)
    if not wanted.quiet:
        print(_line(done, seconds, stopped), file=sys.stderr)
    if stopped:
        sys.exit(128 + Signals[stopped])


def _sampled(model: LanguageModel, prompt: str, wanted: Wanted, sampling: Sampling, how: dict[str, Any]) -> Outcome:
    """Draw tokens; a single text is shown as it comes."""
    aloud = wanted.samples == 1 and not wanted.json
    how = how | {"sampling": sampling, "stop": wanted.stop, "logprobs": wanted.logprobs}
    with Generation(model, [prompt] * wanted.samples, **how) as run, StopSignal() as asked:
        began = perf_counter()
        while run.live and not asked.name:
            for _, piece in run.step():
                if aloud and piece.text:
                    print(piece.text, end="", flush=True)
        seconds = perf_counter() - began
    return run.completions, seconds, asked.name


def _searched(model: LanguageModel, prompt: str, wanted: Wanted, how: dict[str, Any]) -> Outcome:
    """Beams; the time is that of the prompt as well."""
    began = perf_counter()
    done = beam_search(model, prompt, beams=wanted.beams, returned=wanted.samples, **how)
    return done, perf_counter() - began, ""


def _show(done: list[Completion], wanted: Wanted) -> None:
    """What has not been shown yet."""
    if wanted.json:
        for completion in done:
            print(json.dumps(_document(completion)))
    elif wanted.samples == 1 and not wanted.beams:
        print()  # ends the line of what came piece by piece
    else:
        for i, completion in enumerate(done):
            score = "" if completion.score is None else f", score {completion.score:.4f}"
            print(f"--- {i + 1} of {len(done)}{score}\n{completion.text}")
    sys.stdout.flush()


def _document(completion: Completion) -> dict[str, Any]:
    kept = ("row", "seed", "text", "tokens", "finish", "stop", "logprobs", "top", "score")
    return {"prompt_tokens": len(completion.prompt_tokens)} | {name: getattr(completion, name) for name in kept}


def _line(done: list[Completion], seconds: float, stopped: str) -> str:
    count, state = sum(len(c.tokens) for c in done), done[0].state
    size = "" if state is None else f"; {state.nbytes:,} bytes of state" + (" each" if len(done) > 1 else "")
    ended = f"; ended by {stopped}" if stopped else ""
    speed = f"{count:,} tokens in {seconds:.2f} s ({count / max(seconds, 1e-9):,.0f} tokens/s)"
    return f"{speed} after {len(done[0].prompt_tokens):,} of prompt{size}{ended}"


def _read_all(engine: Engine, done: list[Completion]) -> ModelState:
    """The states once the last token of each has been read too, so that a prompt can follow."""
    rows = engine.join(ModelState.join([c.state for c in done if c.state is not None]))
    last = {row: c.tokens[-1] for row, c in zip(rows, done, strict=True) if c.tokens}  # none if ended before the first
    if last:
        engine.step(torch.tensor(list(last.values())), list(last))
    return engine.state(rows)


def _sampling(choice: ChoiceOptions) -> Sampling:
    given = asdict(choice)
    return Sampling(**(given | {"temperature": TEMPERATURE if choice.temperature is None else choice.temperature}))


def _check(wanted: Wanted, choice: ChoiceOptions, running: RunningOptions) -> None:
    """Options that do not go together, before the model is read."""
    for name, value, least in (("samples", wanted.samples, 1), ("beams", wanted.beams, 0)):
        if value < least:
            raise ValueError(f"--{name} is {value}; accepted: {least} or more")
    if wanted.logprobs is not None and not wanted.json:
        raise ValueError(f"--logprobs is {wanted.logprobs}, but text has no room for them; add --json")
    if wanted.beams:
        if wanted.logprobs:
            raise ValueError(
                f"--logprobs is {wanted.logprobs}, but --beams {wanted.beams} reports its own tokens alone; "
                "leave it out, --json has them"
            )
        drawn = {name: value for name, value in asdict(choice).items() if value != getattr(ChoiceOptions(), name)}
        drawn |= {"stop": wanted.stop} if wanted.stop else {}
        for name in drawn:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} is about drawing tokens, and --beams {wanted.beams} searches; leave one out")
        if wanted.samples > wanted.beams:
            raise ValueError(f"--samples is {wanted.samples}; accepted with --beams {wanted.beams}: up to as many")
    file = running.save_state
    if file is not None and not file.absolute().parent.is_dir():
        raise ValueError(f"--save-state is {file}, but there is no folder {file.parent}; make it first")
    if file is not None and file.is_dir():
        raise ValueError(f"--save-state is {file}, which is a folder; accepted: a file to write")


def _check_streams(file: Path, streams: int, wanted: Wanted) -> None:
    """A state of several continuations goes on as several, or not at all."""
    if streams > 1 and (wanted.beams or wanted.samples != streams):
        asked = f"--beams is {wanted.beams}" if wanted.beams else f"--samples is {wanted.samples}"
        raise ValueError(
            f"{file} holds {streams} continuations, and {asked}; accepted: --samples {streams} without --beams, or a "
            "state that was saved with --samples 1"
        )


@contextmanager
def _in_flags() -> Iterator[None]:
    """A sentence about a keyword of the library, such as top_p, names the option instead: --top-p."""
    try:
        yield
    except ValueError as error:
        said = str(error)
        for name in (*asdict(ChoiceOptions()), "logprobs"):
            said = said.replace(f"{name} is ", f"--{name.replace('_', '-')} is ")
        for name, flag in NAMES.items():
            said = said.replace(name, flag)
        if said == str(error):
            raise
        raise ValueError(said) from error
