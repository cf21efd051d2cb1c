"""`linnet eval FOLDER`: measure a trained model on held-out data, next to simple baselines.

Text and images: nats and bits; for text also bits per byte, which do not depend on the tokenizer. Speech: error rates
of symbols and words, decoded greedily or by a prefix beam. Streams: mean errors next to persistence and ridge
regression. --weights also steps through the same data (eval_step.py), --text measures a model without a run
(eval_text.py), --fewshot asks one or more models few-shot questions (labs/cli/eval_fewshot.py).
"""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import App
from rich.console import Console

from ..errors import whole
from ..json_file import finite_or_none
from .common import FLAG
from .eval_options import FewShot, FewShotOptions
from .laboratory import laboratory
from .train_show import describe_examples, format_metrics

BATCH = 16  # examples at a time
LENGTH = 256  # tokens of a piece of --text
EPILOG = """\
Examples

    linnet eval runs/first
        the best checkpoint on the test part of the run's own data
    linnet eval runs/first --weights int8
        also token by token with int8 weights, and the difference in bits
    linnet eval models/stories --text book.txt
        an imported model on any text
    linnet eval runs/first models/stories --fewshot piqa lambada
        several models, few-shot questions
"""

evaluate = App(name="eval", help_format="plaintext", help_epilogue=EPILOG)


class Subject(NamedTuple):
    """A model and the data to measure it on."""

    kind: str
    model: Any
    source: Any
    head: dict[str, Any]  # the step and part of a run, or the text file
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
    json: Annotated[bool, FLAG] = False,
    few: FewShot = None,
) -> None:
    """Measure a model on data that it was not trained on.

    Parameters
    ----------
    folder
        The --out of `linnet train`; with --text, the folder of a language model, such as the --out of `linnet import`;
        with --fewshot, either.
    more
        With --fewshot: other models to compare with.
    checkpoint
        best (by held-out loss, the default), newest, or a step such as 200.
    split
        test, or valid; data without a test part use valid.
    rows
        How many examples to use, from the first; 0 uses all. Baselines of streams always use all.
    batch_size
        Examples at a time.
    beam
        Speech: also decode with a prefix beam of this width.
    weights
        Text and images: also step through the data as `linnet generate` does, with weights of this precision.
    backend
        With --weights: native, torch, or auto for the first of them that can run the model.
    text
        A text file to measure a language model on, for models without a run.
    length
        With --text: the text is split into pieces of this many tokens, each read from an empty state.
    json
        Print one JSON object instead of text.
    """
    for name, value, least in (("rows", rows, 0), ("batch_size", batch_size, 1), ("beam", beam, 0)):
        whole(name, value, least)
    whole("length", length, 1)
    questions = FewShotOptions() if few is None else few
    if questions.fewshot is not None:
        data_options: dict[str, Any] = {"checkpoint": checkpoint, "split": split, "rows": rows}
        data_options |= {"batch-size": batch_size, "beam": beam, "weights": weights, "backend": backend}
        data_options |= {"text": text, "length": length}
        return _few_shot([folder, *more], questions, data_options, json)
    if more or questions != FewShotOptions():
        what = f"{1 + len(more)} folders are" if more else "--shots, --limit, --seed or --context is"
        raise ValueError(f"{what} given without --fewshot; accepted: one folder and its own options; add --fewshot")
    if backend != "auto" and weights is None:
        raise ValueError(f"--backend is {backend}, but nothing is stepped; add --weights, such as --weights float32")
    if text is None:
        subject = _open_run(folder, checkpoint, split, beam, weights, length)
    else:
        subject = _open_text(folder, text, length, {"checkpoint": checkpoint, "split": split, "beam": beam})
    rows = min(rows, subject.source.length) if rows else subject.source.length
    engine = None if weights is None else _engine(subject.model, weights, backend)
    with Console(stderr=True).status(f"measuring {rows:,} examples"):
        metrics = {**subject.head, "rows": rows} | _measure(subject, rows, batch_size)
        if subject.data is not None:
            metrics |= _extra_metrics(subject, rows, batch_size, beam)
    if engine is not None:
        from .eval_step import measure_stepwise

        stepped = measure_stepwise(subject.kind, engine, subject.source, rows, batch_size, metrics)
        metrics["stepped"] = {"weights": weights} | stepped
    if json:
        print(json_format.dumps(finite_or_none(metrics)))
    else:
        _show(subject.kind, subject.source, metrics, beam)


def _few_shot(folders: list[Path], questions: FewShotOptions, data_options: dict[str, Any], json: bool) -> None:
    """Ask questions instead of measuring held-out data; options about data are refused."""
    for name, value in data_options.items():
        if value not in (None, 0, "test", "auto", BATCH, LENGTH):
            raise ValueError(
                f"--{name} is {value}, which --fewshot does not use; omit one of the two (--limit sets the number of "
                "items, and a checkpoint is given as its own folder)"
            )
    laboratory("eval_fewshot").ask(folders, questions, json=json)


def _open_run(folder: Path, checkpoint: str | None, split: str, beam: int, weights: str | None, length: int) -> Subject:
    """Return the model of a run and the requested part of its data."""
    from ..train.jobs import FILE, open_data, read_job

    if not (folder / FILE).is_file() and (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds a model without data to measure it on; add --text FILE, a text to read")
    job = read_job(folder)
    if beam and job.kind != "speech":
        raise ValueError(f"--beam is {beam}, but this is a run on {job.kind}; accepted: 0, or a run on speech")
    if weights is not None and job.kind not in ("text", "image"):
        raise ValueError(f"--weights is {weights}, but this is a run on {job.kind}; accepted: a run on text or images")
    if length != LENGTH:
        raise ValueError(f"--length is {length}, but the examples of a run have their own length; use it with --text")
    data = open_data(job.kind, job.data, folder, begun=True)
    model, which = _model(folder, checkpoint, data)
    part = "test" if split == "test" and data.test is not None else "valid"
    return Subject(job.kind, model, data.test if part == "test" else data.valid, which | {"split": part}, data)


def _open_text(folder: Path, text: Path, length: int, run_options: dict[str, Any]) -> Subject:
    """Return the model in a folder and a text; options about runs are refused."""
    for name, value in run_options.items():
        if value not in (None, "test", 0):
            raise ValueError(f"--{name} is {value}, but --text measures a model on {text}; omit one of the two")
    from .eval_text import load_with_text

    model, pieces = load_with_text(folder, text, length)
    return Subject("text", model, pieces, {"text": str(text)})


def _engine(model: Any, weights: str, backend: str) -> Any:
    from ..generate.engine import open_engine

    return open_engine(model, weights=weights, backend=backend)


def _extra_metrics(subject: Subject, rows: int, batch_size: int, beam: int) -> dict[str, Any]:
    """Return what only some kinds of data have: the baselines of a stream, the words and beams of speech."""
    metrics: dict[str, Any] = _baselines(subject.data, subject.source) if subject.kind == "stream" else {}
    symbols = subject.data.symbols
    if " " in symbols:  # letters: there are words to count
        metrics["wer"] = _errors(subject, batch_size, rows, None)[1]
    if beam:
        metrics["per_beam"], words = _errors(subject, batch_size, rows, beam)
        metrics |= {"wer_beam": words} if " " in symbols else {}
    return metrics


def _show(kind: str, source: Any, metrics: dict[str, Any], beam: int) -> None:
    if "text" in metrics:
        print(f"{metrics['rows']:,} pieces of {metrics['text']}: {format_metrics(metrics)}")
    else:
        best = " (the best checkpoint by held-out loss)" if metrics["best"] else ""
        rows = describe_examples(source, metrics["rows"])
        print(f"step {metrics['step']:,}{best}, {rows} of the {metrics['split']} part: {format_metrics(metrics)}")
    if "stepped" in metrics:
        from .eval_step import format_stepwise

        print(format_stepwise(kind, metrics))
    for name in ("persistence", "ridge"):
        if name in metrics:
            print(f"{name:>12}: {metrics[name]['mse']:.4f} MSE, {metrics[name]['mae']:.4f} MAE")
    if beam:
        words = f", {metrics['wer_beam']:.4f} WER" if "wer_beam" in metrics else ""
        print(f"{'beam ' + str(beam):>12}: {metrics['per_beam']:.4f} PER{words}")


def _model(folder: Path, name: str | None, data: Any) -> tuple[Any, dict[str, Any]]:
    """Return the model of a verified checkpoint of these data, and which checkpoint it is."""
    from .loading import load

    loaded = load(folder, name, quiet=True)
    trainer = loaded.trainer
    assert trainer is not None  # the folder is a run: it has run.json
    for part, trained_on in trainer["data"].items():
        now = getattr(data, part).fingerprint
        if now != trained_on:
            raise ValueError(
                f"the {part} data of {folder} are not those it was trained on (fingerprint {now}, was {trained_on}); "
                "restore them, or train a new run on these"
            )
    return loaded.model, {"step": trainer["step"], "best": trainer["progress"].get("best_step") == trainer["step"]}


def _measure(subject: Subject, rows: int, batch_size: int) -> dict[str, float]:
    from ..train import evaluate as measure
    from ..train.jobs import bytes_per_token

    metrics = measure(subject.model, subject.source, batch_size=batch_size, rows=rows)
    if subject.kind == "text":
        metrics["bits_per_byte"] = metrics["bits"] / bytes_per_token(subject.source, rows)
    return metrics


def _baselines(data: Any, source: Any) -> dict[str, Any]:
    from ..data.baselines import persistence, ridge

    scores = {"persistence": persistence(source), "ridge": ridge(data.train, data.valid).score(source)}
    return {name: {"mse": score.mse, "mae": score.mae} for name, score in scores.items()}


def _errors(subject: Subject, batch_size: int, rows: int, beam: int | None) -> tuple[float, float]:
    """Return edits per symbol and per word of the reference, decoded greedily or by a prefix beam."""
    from ..models.ctc import error_rate

    symbols = subject.data.symbols
    sums = [0, 0, 0, 0]  # edits and length, in symbols and in words
    for first in range(0, rows, batch_size):
        batch = subject.source.batch(range(first, min(first + batch_size, rows)))
        decoded = subject.model.decode(batch["features"], batch["lengths"], beam)
        target_lengths = batch["target_lengths"].tolist()
        reference = [row[:n].tolist() for row, n in zip(batch["targets"], target_lengths, strict=True)]
        words = error_rate(*([_words(labels, symbols) for labels in side] for side in (decoded, reference)))
        sums = [a + b for a, b in zip(sums, (*error_rate(decoded, reference), *words), strict=True)]
    return sums[0] / max(1, sums[1]), sums[2] / max(1, sums[3])


def _words(labels: Sequence[int], symbols: Sequence[str]) -> list[str]:
    """Join letters into the words between spaces."""
    return "".join(symbols[label] for label in labels).split()
