"""`linnet eval FOLDER`: a trained model on held-out data, beside what is simpler than it.

Text and images: nats and bits, for text also bits per byte, which do not depend on the tokenizer. Speech: error rates
of symbols and words, greedy or by a prefix beam. Streams: mean errors beside persistence and ridge regression.
With --weights the same data are stepped through as well (eval_step.py); --text brings data to a model (eval_text.py);
--fewshot asks one or more models the questions of usual sets (eval_fewshot.py).
"""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import App, Parameter
from rich.console import Console

from .eval_options import FewShot, FewShotOptions
from .train_show import examples, shown

BATCH = 16  # examples at a time
LENGTH = 256  # tokens of a piece of --text

evaluate = App(name="eval", help_format="plaintext")


class Opened(NamedTuple):
    """A model, and what to measure it on."""

    kind: str
    model: Any
    source: Any
    head: dict[str, Any]  # which step, part or file it is
    data: Any = None  # all parts, of a run


@evaluate.default
def run_eval(
    folder: Path,
    *more: Path,
    checkpoint: str | None = None,
    split: Literal["test", "valid"] = "test",
    rows: int = 0,
    batch_size: int = BATCH,
    beam: int = 0,
    weights: Literal["float32", "bfloat16", "int8"] | None = None,
    backend: Literal["auto", "native", "torch"] = "auto",
    text: Path | None = None,
    length: int = LENGTH,
    json: Annotated[bool, Parameter(negative="")] = False,
    few: FewShot = None,
) -> None:
    """Measure a model on data that it was not trained on.

    Parameters
    ----------
    folder
        The --out of `linnet train`; with --text a language model's own folder, such as the --out of `linnet import`;
        with --fewshot either.
    more
        With --fewshot: other models to set beside it.
    checkpoint
        best (by held-out loss, unless given), newest, or a step such as 200.
    split
        test, or valid where the data have no test part.
    rows
        How many examples, from the first; 0 takes all. Baselines of streams always take all.
    batch_size
        Examples at a time.
    beam
        Speech: also decode with a prefix beam this wide.
    weights
        Text and images: also step through the data as `linnet generate` does, with weights stored so, and compare.
    backend
        With --weights: native, torch, or auto for the first of them that can run the model.
    text
        A text file to measure a language model on that has no data of its own.
    length
        With --text: it is cut into pieces of so many tokens, each read from the start.
    json
        Print JSON instead of a sentence.
    """
    limits = (("rows", rows, 0), ("batch-size", batch_size, 1), ("beam", beam, 0), ("length", length, 1))
    for name, value, least in limits:
        if value < least:
            raise ValueError(f"--{name} is {value}; accepted: {least} or more")
    asked = FewShotOptions() if few is None else few
    if asked.fewshot is not None:
        of_data: dict[str, Any] = {
            "checkpoint": checkpoint,
            "split": split,
            "rows": rows,
            "batch-size": batch_size,
            "beam": beam,
        }
        of_data |= {"weights": weights, "backend": backend, "text": text, "length": length}
        return _few_shot([folder, *more], asked, of_data, json)
    if more or asked != FewShotOptions():
        what = f"{1 + len(more)} folders are" if more else "--shots, --limit, --seed or --context is"
        raise ValueError(f"{what} given without --fewshot; accepted: one folder and its own options; add --fewshot")
    if backend != "auto" and weights is None:
        raise ValueError(f"--backend is {backend}, but nothing is stepped; add --weights, such as --weights float32")
    if text is None:
        here = _of_run(folder, checkpoint, split, beam, weights, length)
    else:
        here = _of_text(folder, text, length, {"checkpoint": checkpoint, "split": split, "beam": beam})
    rows = min(rows, here.source.length) if rows else here.source.length
    engine = None if weights is None else _engine(here.model, weights, backend)
    with Console(stderr=True).status(f"measuring {rows:,} examples"):
        found = {**here.head, "rows": rows, **_measured(here.kind, here.model, here.source, rows, batch_size)}
        if here.data is not None:
            found |= _beside(here, rows, batch_size, beam)
    if engine is not None:
        from .eval_step import stepped

        found["stepped"] = {"weights": weights} | stepped(here.kind, engine, here.source, rows, batch_size, found)
    if json:
        print(json_format.dumps(_finite(found)))
    else:
        _show(here.kind, here.source, found, beam)


def _few_shot(folders: list[Path], asked: FewShotOptions, of_data: dict[str, Any], json: bool) -> None:
    """Questions instead of held-out data; options about those must be left alone."""
    for name, value in of_data.items():
        if value not in (None, 0, "test", "auto", BATCH, LENGTH):
            raise ValueError(
                f"--{name} is {value}, but --fewshot asks questions; leave one out (--limit is how many; a "
                "checkpoint is named by its own folder)"
            )
    from .eval_fewshot import ask

    ask(folders, asked, json=json)


def _of_run(folder: Path, checkpoint: str | None, split: str, beam: int, weights: str | None, length: int) -> Opened:
    """The model of a run, and the part of its data that is asked for."""
    from ..train.jobs import FILE, open_data, read_job

    if not (folder / FILE).is_file() and (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} holds a model without data to measure it on; give --text FILE, a text it is to read"
        )
    job = read_job(folder)
    if beam and job.kind != "speech":
        raise ValueError(f"--beam is {beam}, but this is a run on {job.kind}; accepted: 0, or a run on speech")
    if weights is not None and job.kind not in ("text", "image"):
        raise ValueError(f"--weights is {weights}, but this is a run on {job.kind}; accepted: a run on text or images")
    if length != LENGTH:
        raise ValueError(f"--length is {length}, but a run has examples of its own; accepted: together with --text")
    data = open_data(job.kind, job.data, folder, begun=True)
    model, which = _model(folder, checkpoint, data)
    part = "test" if split == "test" and data.test is not None else "valid"
    return Opened(job.kind, model, data.test if part == "test" else data.valid, which | {"split": part}, data)


def _of_text(folder: Path, text: Path, length: int, of_runs: dict[str, Any]) -> Opened:
    """The model of a folder and a text; options about runs must be left alone."""
    for name, value in of_runs.items():
        if value not in (None, "test", 0):
            raise ValueError(f"--{name} is {value}, but --text measures a model on {text}; leave one of the two out")
    from .eval_text import opened

    model, pieces = opened(folder, text, length)
    return Opened("text", model, pieces, {"text": str(text)})


def _engine(model: Any, weights: str, backend: str) -> Any:
    from ..generate.engine import open_engine

    return open_engine(model, weights=weights, backend=backend)


def _beside(here: Opened, rows: int, batch_size: int, beam: int) -> dict[str, Any]:
    """What else there is to say: simpler forecasts of a stream, words and beams of speech."""
    found: dict[str, Any] = _baselines(here.data, here.source) if here.kind == "stream" else {}
    symbols = here.data.symbols
    if " " in symbols:  # letters: there are words to count
        found["wer"] = _errors(here.model, here.source, batch_size, rows, None, symbols)[1]
    if beam:
        found["per_beam"], words = _errors(here.model, here.source, batch_size, rows, beam, symbols)
        found |= {"wer_beam": words} if " " in symbols else {}
    return found


def _finite(found: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: null for what is no number."""
    values = {name: _finite(value) if isinstance(value, dict) else value for name, value in found.items()}
    return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()}


def _show(kind: str, source: Any, found: dict[str, Any], beam: int) -> None:
    if "text" in found:
        print(f"{found['rows']:,} pieces of {found['text']}: {shown(found)}")
    else:
        best = " (the best checkpoint by held-out loss)" if found["best"] else ""
        rows = examples(source, found["rows"])
        print(f"step {found['step']:,}{best}, {rows} of the {found['split']} part: {shown(found)}")
    if "stepped" in found:
        from .eval_step import line

        print(line(kind, found))
    for name in ("persistence", "ridge"):
        if name in found:
            print(f"{name:>12}: {found[name]['mse']:.4f} MSE, {found[name]['mae']:.4f} MAE")
    if beam:
        words = f", {found['wer_beam']:.4f} WER" if "wer_beam" in found else ""
        print(f"{'beam ' + str(beam):>12}: {found['per_beam']:.4f} PER{words}")


def _model(folder: Path, name: str | None, data: Any) -> tuple[Any, dict[str, Any]]:
    """The model of a checkpoint that is whole and belongs to these data, and which it is."""
    from .loading import load

    found = load(folder, name, quiet=True)
    assert found.trainer is not None  # it is a run: it has run.json
    trainer = found.trainer
    for part, was in trainer["data"].items():
        if was != getattr(data, part).fingerprint:
            raise ValueError(
                f"the {part} data of {folder} are not those it was trained with (fingerprint "
                f"{getattr(data, part).fingerprint}, was {was}); bring them back, or train a new run on these"
            )
    return found.model, {"step": trainer["step"], "best": trainer["progress"].get("best_step") == trainer["step"]}


def _measured(kind: str, model: Any, source: Any, rows: int, batch_size: int) -> dict[str, float]:
    from ..train import evaluate as measure
    from ..train.jobs import bytes_per_token

    found = measure(model, source, batch_size=batch_size, rows=rows)
    if kind == "text":
        found["bits_per_byte"] = found["bits"] / bytes_per_token(source, rows)
    return found


def _baselines(data: Any, source: Any) -> dict[str, Any]:
    from ..data.baselines import persistence, ridge

    scores = {"persistence": persistence(source), "ridge": ridge(data.train, data.valid).score(source)}
    return {name: {"mse": score.mse, "mae": score.mae} for name, score in scores.items()}


def _errors(
    model: Any, source: Any, batch_size: int, rows: int, beam: int | None, symbols: Sequence[str]
) -> tuple[float, float]:
    """Edits per symbol and per word of the reference, decoded greedily or by a prefix beam."""
    from ..models.ctc import error_rate

    sums = [0, 0, 0, 0]  # edits and length, in symbols and in words
    for first in range(0, rows, batch_size):
        batch = source.batch(range(first, min(first + batch_size, rows)))
        heard = model.decode(batch["features"], batch["lengths"], beam)
        wanted = [row[:n].tolist() for row, n in zip(batch["targets"], batch["target_lengths"].tolist(), strict=True)]
        words = error_rate(*([_words(labels, symbols) for labels in side] for side in (heard, wanted)))
        sums = [a + b for a, b in zip(sums, (*error_rate(heard, wanted), *words), strict=True)]
    return sums[0] / max(1, sums[1]), sums[2] / max(1, sums[3])


def _words(labels: Sequence[int], symbols: Sequence[str]) -> list[str]:
    """Letters joined into the words between spaces."""
    return "".join(symbols[label] for label in labels).split()
