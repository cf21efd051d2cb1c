"""`linnet eval FOLDER`: a trained model on held-out data, beside what is simpler than it.

Text and images: nats and bits, for text also bits per byte, which do not depend on the tokenizer. Speech: error rates
of symbols and words, greedy or by a prefix beam. Streams: mean errors beside persistence and ridge regression.
"""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.console import Console

from .train_show import shown

evaluate = App(name="eval", help_format="plaintext")


@evaluate.default
def run_eval(
    folder: Path,
    *,
    checkpoint: str | None = None,
    split: Literal["test", "valid"] = "test",
    rows: int = 0,
    batch_size: int = 16,
    beam: int = 0,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Measure a run on data that it was not trained on.

    Parameters
    ----------
    folder
        The --out of `linnet train`.
    checkpoint
        Which one, such as step-00000200; the newest unless given.
    split
        test, or valid where the data have no test part.
    rows
        How many examples, from the first; 0 takes all. Baselines of streams always take all.
    batch_size
        Examples at a time.
    beam
        Speech: also decode with a prefix beam this wide.
    json
        Print JSON instead of a sentence.
    """
    for name, value, least in (("rows", rows, 0), ("batch-size", batch_size, 1), ("beam", beam, 0)):
        if value < least:
            raise ValueError(f"--{name} is {value}; accepted: {least} or more")
    from ..train.jobs import open_data, read_job

    job = read_job(folder)
    if beam and job.kind != "speech":
        raise ValueError(f"--beam is {beam}, but this is a run on {job.kind}; accepted: 0, or a run on speech")
    data = open_data(job.kind, job.data, folder, begun=True)
    model, step = _model(folder, checkpoint, data)
    part = "test" if split == "test" and data.test is not None else "valid"
    source: Any = data.test if part == "test" else data.valid
    rows = min(rows, source.length) if rows else source.length
    with Console(stderr=True).status(f"measuring {rows:,} examples"):
        found = {"step": step, "split": part, "rows": rows, **_measured(job.kind, model, source, rows, batch_size)}
        if job.kind == "stream":
            found |= _baselines(data, source)
        if " " in data.symbols:  # letters: there are words to count
            found["wer"] = _errors(model, source, batch_size, rows, None, data.symbols)[1]
        if beam:
            found["per_beam"], words = _errors(model, source, batch_size, rows, beam, data.symbols)
            found |= {"wer_beam": words} if " " in data.symbols else {}
    if json:
        print(json_format.dumps({k: None if isinstance(v, float) and not isfinite(v) else v for k, v in found.items()}))
    else:
        _show(found, beam)


def _show(found: dict[str, Any], beam: int) -> None:
    print(f"step {found['step']:,}, {found['rows']:,} examples of the {found['split']} part: {shown(found)}")
    for name in ("persistence", "ridge"):
        if name in found:
            print(f"{name:>12}: {found[name]['mse']:.4f} MSE, {found[name]['mae']:.4f} MAE")
    if beam:
        words = f", {found['wer_beam']:.4f} WER" if "wer_beam" in found else ""
        print(f"{'beam ' + str(beam):>12}: {found['per_beam']:.4f} PER{words}")


def _model(folder: Path, name: str | None, data: Any) -> tuple[Any, int]:
    """The model of a checkpoint that is whole and belongs to these data, and its step."""
    from ..models import ModelConfig, build
    from ..models.base import WEIGHTS, check_weights
    from ..train.checkpoint import CheckpointError, load

    try:
        found = load(folder, name or True)
    except CheckpointError as error:
        raise ValueError(
            str(error).replace("continue from it with --resume", "measure it with --checkpoint")
        ) from error
    if found is None:
        raise ValueError(f"{folder} has no checkpoint yet; train longer, or until the first with --save-every")
    for part, was in found.trainer["data"].items():
        if was != getattr(data, part).fingerprint:
            raise ValueError(
                f"the {part} data of {folder} are not those it was trained with (fingerprint "
                f"{getattr(data, part).fingerprint}, was {was}); bring them back, or train a new run on these"
            )
    model = build(ModelConfig.from_dict(found.config))
    check_weights(found.model, model.state_dict(), str(found.folder / WEIGHTS))
    model.load_state_dict(found.model)
    return model.eval(), found.trainer["step"]


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
