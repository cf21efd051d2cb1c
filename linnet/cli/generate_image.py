"""`linnet generate image RUN`: pictures from a trained image model, new ones or real ones completed, in a PNG file.

A completion stands in a row: what was given, three ways to go on, the original. The images completed are from the part
of the run's data that it was not trained on. torch is imported only when there is something to run.
"""

from __future__ import annotations

from math import isfinite, prod
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from .loading import load_image_model
from .train_show import duration

WAYS = 3  # completions of each image
COLUMNS = 8  # of a picture of new images
PATIENCE = 2.0  # seconds without a word
REFRESH = 0.2  # seconds between two looks at the bar
Shape = tuple[int, ...]  # [H,W] or [H,W,3]


def image(
    run: Path,
    *,
    checkpoint: str | None = None,
    out: Path = Path("samples.png"),
    count: int = 16,
    complete: Annotated[bool, Parameter(negative="")] = False,
    given: float | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    weights: Literal["float32", "bfloat16", "int8"] = "float32",
    backend: Literal["auto", "native", "torch"] = "auto",
    scale: int = 4,
    shape: Annotated[list[int] | None, Parameter(consume_multiple=True, negative="")] = None,
) -> None:
    """Sample images from a run of `linnet train image`, or complete real ones, into a PNG file.

    Parameters
    ----------
    run
        The --out of `linnet train image`.
    checkpoint
        best (by held-out loss, unless given), newest, or a step such as 200.
    out
        The PNG file; one that is there is replaced.
    count
        How many images: new ones, or real ones to complete in three ways each.
    complete
        Complete held-out images of the run's data: what was given, three completions, the original, in a row.
    given
        Share of an image's rows that is given to --complete, between 0 and 1; a half unless given.
    temperature
        Below 1 keeps to what is likely, 0 takes the most probable value each time.
    seed
        Another seed, other images; the same seed, the same images.
    weights
        Precision of the weights while sampling.
    backend
        native, torch, or auto for the first of them that can run the model.
    scale
        How many times as wide and high a pixel is drawn.
    shape
        Height and width (and 3 for colour) of an image, where the run's data are not at hand.
    """
    share = _check(out, count, complete, given, temperature, seed, scale, shape)
    from ..generate.engine import open_engine
    from ..generate.grid import save_grid
    from ..generate.images import SHORT, sample_images

    model = load_image_model(run, checkpoint)
    held_out, size = _images(run, model, count, tuple(shape) if shape else None, complete)
    known = None if held_out is None else held_out[:, : _given(share, size)].repeat_interleave(WAYS, dim=0)
    total = count if known is None else WAYS * count
    engine = open_engine(model, weights=weights, backend=backend, exact=prod(size) > SHORT)
    how: dict[str, Any] = {"temperature": temperature, "seed": seed, "engine": engine, "known": known}
    began = perf_counter()
    with Bar(f"sampling {total:,} images") as bar:
        found = sample_images(model, total, length=prod(size), on_progress=bar, **how)
    seconds = perf_counter() - began
    look: dict[str, Any] = {"levels": model.levels, "columns": COLUMNS, "scale": scale, "gap": scale}
    if held_out is not None and known is not None:
        found, look["given"] = _rows(held_out, found, known.shape[1])
        look["columns"] = WAYS + 2
    save_grid(out, found.reshape(-1, *size).cpu(), **look)
    speed = f"{_figure(total / seconds)} images/s, {_figure(seconds / total)} s an image"
    print(f"{total:,} images of {' x '.join(map(str, size))}: {speed}; {out}")


def _figure(x: float) -> str:
    """Three digits, and no exponent for what is large."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def _check(
    out: Path,
    count: int,
    complete: bool,
    given: float | None,
    temperature: float,
    seed: int,
    scale: int,
    shape: list[int] | None,
) -> float:
    """Whatever can be refused before torch is there; the share that is given."""
    for name, value, least in (("count", count, 1), ("scale", scale, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"--{name} is {value}; accepted: {least} or more")
    if not (temperature >= 0 and isfinite(temperature)):
        raise ValueError(f"--temperature is {temperature}; accepted: 0 (the most probable value) or more; 1 samples")
    if given is not None and not complete:
        raise ValueError(f"--given is {given}, but nothing is to be completed; add --complete")
    if given is not None and not 0 < given < 1:
        raise ValueError(f"--given is {given}; accepted: a share of the rows between 0 and 1, such as 0.5")
    if shape is not None and (complete or len(shape) not in (2, 3) or min(shape) < 1 or shape[2:] not in ([], [3])):
        said = " ".join(map(str, shape)) + (" with --complete" if complete else "")
        raise ValueError(f"--shape is {said}; accepted: HEIGHT WIDTH, or HEIGHT WIDTH 3, and new images only")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"--out is {out}, but there is no folder {out.parent}; make it first, or name another")
    if out.is_dir():
        raise ValueError(f"--out is {out}, which is a folder; accepted: a file to write, such as {out / 'samples.png'}")
    return 0.5 if given is None else given


def _images(run: Path, model: Any, count: int, shape: Shape | None, complete: bool) -> tuple[Any, Shape]:
    """Held-out images to complete, [N,T] or None, and the shape of one: from the run's data, unless it is given."""
    from ..train.jobs import open_data, read_job

    if shape is not None:
        return None, shape
    try:
        job = read_job(run)
        data = open_data(job.kind, job.data, run, begun=True)
    except ValueError as error:
        way = "bring the data" if complete else "bring the data, or say --shape HEIGHT WIDTH"
        raise ValueError(f"the data of {run} cannot be read ({error}); {way}") from error
    source: Any = data.valid if data.test is None else data.test
    if not complete:
        return None, source.shape
    if count > source.length:
        raise ValueError(f"--count is {count}; accepted with --complete: 1 to {source.length}, the held-out images")
    if source.levels != model.levels:
        raise ValueError(f"the images have {source.levels} levels and the model {model.levels}; bring the run's data")
    return source.batch(range(count))["tokens"], source.shape


def _given(share: float, size: Shape) -> int:
    """How many values are given: whole rows, at least one, and not all."""
    if size[0] < 2:
        raise ValueError(f"the images are {size[0]} pixel high; accepted with --complete: 2 rows or more")
    return min(max(1, round(share * size[0])), size[0] - 1) * prod(size[1:])


def _rows(originals: Any, completed: Any, n: int) -> tuple[Any, list[int]]:
    """For each image what was given, the completions, the original; and how many values of each picture were given."""
    import torch

    half = originals.clone()
    half[:, n:] = -1  # nothing there
    ways = completed.cpu().unflatten(0, (-1, WAYS))  # [N,WAYS,T]
    cells = torch.cat([half[:, None], ways, originals[:, None]], dim=1)
    return cells.flatten(0, 1), [*[n] * (1 + WAYS), 0] * len(originals)


class Bar:
    """How far it is and how long it will take, once two seconds have passed: a bar, or one line in a file or a pipe."""

    def __init__(self, text: str, *, console: Console | None = None, patience: float = PATIENCE) -> None:
        self.text, self.console = text, console or Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]} left"),
            console=self.console, transient=True, disable=not self.console.is_terminal,
        )  # fmt: skip
        self.task: TaskID | None = None
        self.began = perf_counter()
        self.next = self.began + patience

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, done: int, total: int) -> None:
        now = perf_counter()
        if now < self.next:
            return
        self.next = now + REFRESH
        left = duration((now - self.began) / done * (total - done))
        if self.task is None:
            self.task = self.bar.add_task(self.text, total=total, left=left)
            self.bar.start()
            if self.bar.disable:
                self.console.print(f"{self.text}: about {left} left", soft_wrap=True, markup=False)
        self.bar.update(self.task, completed=done, left=left)
