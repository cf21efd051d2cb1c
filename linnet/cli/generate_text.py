"""Run one `linnet generate text` command: load the model, generate, print, save the state.

Only generated text goes to stdout, token by token; notes go to stderr. Ctrl-C ends generation between two tokens and
keeps the text so far; a second Ctrl-C ends the process immediately.
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

from ..errors import ArgumentError, whole
from ..generate import Completion, Engine, Generation, Sampling, beam_search, open_engine
from ..models import LanguageModel, ModelState
from ..train.stop import StopSignal
from .common import check_output_file
from .generate_options import ChoiceOptions, RunningOptions
from .loading import load_language

TEMPERATURE = 0.8
FLAGS = {name: f"--{name.replace('_', '-')}" for name in (*asdict(ChoiceOptions()), "logprobs", "stop")}
FLAGS |= {"max_tokens": "--tokens", "prompt": "the prompt", "prompt 0": "the prompt"}  # argument -> option

Outcome = tuple[list[Completion], float, str]  # seconds after the prompt was read; the signal that ended it, or ""


class OutputOptions(NamedTuple):
    """How much to generate, and how to print it."""

    tokens: int
    stop: tuple[str, ...]
    samples: int
    beams: int
    logprobs: int | None
    json: bool
    quiet: bool


def generate_text(
    run: Path, prompt: str, output: OutputOptions, choice: ChoiceOptions, running: RunningOptions
) -> None:
    """Generate, print and save the state."""
    _check(output, choice, running)
    with _name_flags():
        sampling = _sampling(choice)
        model, tokenizer = load_language(run, running.checkpoint, quiet=output.quiet)
        states = None
        if running.from_state is not None:
            states = ModelState.load(running.from_state, model=model, tokenizer=tokenizer)
            _check_streams(running.from_state, len(states.position), output)
        engine = open_engine(model, weights=running.weights, backend=running.backend)
        options: dict[str, Any] = {"tokenizer": tokenizer, "max_tokens": output.tokens, "engine": engine}
        options |= {"states": states, "stop_tokens": tokenizer.ends}
        if output.beams:
            done, seconds, stopped = _search(model, prompt, output, options)
        else:
            done, seconds, stopped = _sample(model, prompt, output, sampling, options)
    _print_rest(done, output)
    if running.save_state is not None:
        _final_state(engine, done).save(running.save_state, model=model, tokenizer=tokenizer)
    if not output.quiet:
        print(_summary(done, seconds, stopped), file=sys.stderr)
    if stopped:
        sys.exit(128 + Signals[stopped])


def _sample(
    model: LanguageModel, prompt: str, output: OutputOptions, sampling: Sampling, options: dict[str, Any]
) -> Outcome:
    """Sample tokens; print a single continuation token by token."""
    streamed = output.samples == 1 and not output.json
    options = options | {"sampling": sampling, "stop": output.stop, "logprobs": output.logprobs}
    with Generation(model, [prompt] * output.samples, **options) as run, StopSignal() as stop:
        began = perf_counter()
        while run.live and not stop.name:
            for _, piece in run.step():
                if streamed and piece.text:
                    print(piece.text, end="", flush=True)
        seconds = perf_counter() - began
    return run.completions, seconds, stop.name


def _search(model: LanguageModel, prompt: str, output: OutputOptions, options: dict[str, Any]) -> Outcome:
    """Run beam search; the time includes reading the prompt."""
    began = perf_counter()
    done = beam_search(model, prompt, beams=output.beams, returned=output.samples, **options)
    return done, perf_counter() - began, ""


def _print_rest(done: list[Completion], output: OutputOptions) -> None:
    """Print everything that has not been streamed."""
    if output.json:
        for completion in done:
            print(json.dumps(_document(completion)))
    elif output.samples == 1 and not output.beams:
        print()  # ends the streamed line
    else:
        for i, completion in enumerate(done):
            score = "" if completion.score is None else f", score {completion.score:.4f}"
            print(f"--- {i + 1} of {len(done)}{score}\n{completion.text}")
    sys.stdout.flush()


def _document(completion: Completion) -> dict[str, Any]:
    names = ("row", "seed", "text", "tokens", "finish", "stop", "logprobs", "top", "score")
    return {"prompt_tokens": len(completion.prompt_tokens)} | {name: getattr(completion, name) for name in names}


def _summary(done: list[Completion], seconds: float, stopped: str) -> str:
    count, state = sum(len(c.tokens) for c in done), done[0].state
    size = "" if state is None else f"; {state.nbytes:,} bytes of state" + (" each" if len(done) > 1 else "")
    ended = f"; ended by {stopped}" if stopped else ""
    speed = f"{count:,} tokens in {seconds:.2f} s ({count / max(seconds, 1e-9):,.0f} tokens/s)"
    return f"{speed} after {len(done[0].prompt_tokens):,} of prompt{size}{ended}"


def _final_state(engine: Engine, done: list[Completion]) -> ModelState:
    """Return the states after the last token of each row has been read too, so that a prompt can follow."""
    rows = engine.add(ModelState.join([c.state for c in done if c.state is not None]))
    last = {row: c.tokens[-1] for row, c in zip(rows, done, strict=True) if c.tokens}  # interrupted before the first
    if last:
        engine.step(torch.tensor(list(last.values())), list(last))
    return engine.state(rows)


def _sampling(choice: ChoiceOptions) -> Sampling:
    options = asdict(choice)
    return Sampling(**(options | {"temperature": TEMPERATURE if choice.temperature is None else choice.temperature}))


def _check(output: OutputOptions, choice: ChoiceOptions, running: RunningOptions) -> None:
    """Refuse incompatible options before the model is loaded."""
    whole("samples", output.samples, 1)
    whole("beams", output.beams, 0)
    if output.logprobs is not None and not output.json:
        raise ValueError(f"--logprobs is {output.logprobs}, but only JSON output has them; add --json")
    if output.beams:
        _check_beams(output, choice)
    if running.save_state is not None:
        check_output_file("save-state", running.save_state, such_as="tale")


def _check_beams(output: OutputOptions, choice: ChoiceOptions) -> None:
    """Refuse options that beam search does not use."""
    beams = f"--beams {output.beams}"
    if output.logprobs:
        raise ValueError(
            f"--logprobs is {output.logprobs}, but {beams} reports only the tokens it chose; omit it, --json has those"
        )
    sampling = [name for name, value in asdict(choice).items() if value != getattr(ChoiceOptions(), name)]
    for name in (*sampling, *(["stop"] if output.stop else [])):
        raise ValueError(f"--{name.replace('_', '-')} is for sampling, and {beams} searches; omit one of the two")
    if output.samples > output.beams:
        raise ValueError(f"--samples is {output.samples}; accepted with {beams}: at most {output.beams}")


def _check_streams(file: Path, streams: int, output: OutputOptions) -> None:
    """Refuse to continue a state of several continuations as another number of them."""
    if streams > 1 and (output.beams or output.samples != streams):
        given = f"--beams is {output.beams}" if output.beams else f"--samples is {output.samples}"
        raise ValueError(
            f"{file} holds {streams} continuations, and {given}; accepted: --samples {streams} without --beams, or a "
            "state that was saved with --samples 1"
        )


@contextmanager
def _name_flags() -> Iterator[None]:
    """Name the option where the library refuses one of its arguments: --top-p for top_p."""
    try:
        yield
    except ArgumentError as error:
        name = FLAGS.get(error.name)
        if name is None:
            raise
        raise ValueError(error.sentence(name)) from error
