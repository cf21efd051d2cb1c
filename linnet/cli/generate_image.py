"""`linnet generate image RUN`: sample new images from a trained image model, or complete real ones, into a PNG file.

A completed image takes one row of the picture: the given part, three completions, the original. The images to complete
are held-out examples of the run's data. torch is imported only when there is something to run.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

from ..errors import number, whole
from .common import FLAG, SEVERAL, Bar, check_output_file
from .loading import load_image_model

WAYS = 3  # completions of each image
COLUMNS = 8  # of a picture of new images
Shape = tuple[int, ...]  # [H,W] or [H,W,3]


def image(
    run: Path,
    *,
    checkpoint: str | None = None,
    out: Path = Path("samples.png"),
    count: int = 16,
    complete: Annotated[bool, FLAG] = False,
    given: float | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    weights: Literal["float32", "bfloat16", "int8"] = "float32",
    backend: Literal["auto", "native", "torch"] = "auto",
    scale: int = 4,
    shape: Annotated[list[int] | None, SEVERAL] = None,
) -> None:
    """Sample images from a run of `linnet train image`, or complete real ones, into a PNG file.

    Parameters
    ----------
    run
        The --out of `linnet train image`.
    checkpoint
        best (by held-out loss, the default), newest, or a step such as 200.
    out
        The PNG file; an existing one is replaced.
    count
        How many images to sample, or how many real ones to complete, three times each.
    complete
        Complete held-out images of the run's data; a row shows the given part, three completions and the original.
    given
        With --complete: the fraction of an image's rows that is given, between 0 and 1. Default: 0.5.
    temperature
        Below 1 favours likely values; 0 always takes the most likely one.
    seed
        Seed of the random numbers; the same seed gives the same images.
    weights
        Precision of the weights while sampling.
    backend
        native, torch, or auto for the first of them that can run the model.
    scale
        Width and height of a pixel in the picture.
    shape
        Height and width (and 3 for colour) of an image, if the run's data are not available.
    """
    share = _check(out, count, complete, given, temperature, seed, scale, shape)
    from ..generate.engine import open_engine
    from ..generate.grid import save_grid
    from ..generate.images import SHORT, sample_images

    model = load_image_model(run, checkpoint)
    held_out, size = _images(run, model, count, tuple(shape) if shape else None, complete)
    known = None if held_out is None else held_out[:, : _given_values(share, size)].repeat_interleave(WAYS, dim=0)
    total = count if known is None else WAYS * count
    engine = open_engine(model, weights=weights, backend=backend, exact=prod(size) > SHORT)
    options: dict[str, Any] = {"temperature": temperature, "seed": seed, "engine": engine, "known": known}
    began = perf_counter()
    with Bar(f"sampling {total:,} images") as bar:
        images = sample_images(model, total, length=prod(size), on_progress=bar, **options)
    seconds = perf_counter() - began
    layout: dict[str, Any] = {"levels": model.levels, "columns": COLUMNS, "scale": scale, "gap": scale}
    if held_out is not None and known is not None:
        images, layout["given"] = _rows(held_out, images, known.shape[1])
        layout["columns"] = WAYS + 2
    save_grid(out, images.reshape(-1, *size).cpu(), **layout)
    speed = f"{_three_digits(total / seconds)} images/s, {_three_digits(seconds / total)} s an image"
    print(f"{total:,} images of {' x '.join(map(str, size))}: {speed}; {out}")


def _three_digits(x: float) -> str:
    """Format with three significant digits, without an exponent for large numbers."""
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
    """Refuse bad options before torch is imported; return the fraction of rows that is given."""
    for name, value, least in (("count", count, 1), ("scale", scale, 1), ("seed", seed, 0)):
        whole(name, value, least)
    number("temperature", temperature, 0, hint="1 samples from the model, 0 takes the most likely value")
    if given is not None and not complete:
        raise ValueError(f"--given is {given}, which only --complete uses; add --complete")
    if given is not None:
        number("given", given, above=0, below=1, hint="the fraction of the rows that is given, such as 0.5")
    if shape is not None and (complete or len(shape) not in (2, 3) or min(shape) < 1 or shape[2:] not in ([], [3])):
        text = " ".join(map(str, shape)) + (" with --complete" if complete else "")
        raise ValueError(f"--shape is {text}; accepted: HEIGHT WIDTH or HEIGHT WIDTH 3, without --complete")
    check_output_file("out", out, such_as="samples.png")
    return 0.5 if given is None else given


def _images(run: Path, model: Any, count: int, shape: Shape | None, complete: bool) -> tuple[Any, Shape]:
    """Return held-out images to complete, [N,T] or None, and the shape of one: `shape`, or that of the run's data."""
    from ..train.jobs import open_data, read_job

    if shape is not None:
        return None, shape
    try:
        job = read_job(run)
        data = open_data(job.kind, job.data, run, begun=True)
    except ValueError as error:
        way = "restore them" if complete else "restore them, or add --shape HEIGHT WIDTH"
        raise ValueError(f"the data of {run} cannot be read ({error}); {way}") from error
    source: Any = data.valid if data.test is None else data.test
    if not complete:
        return None, source.shape
    if count > source.length:
        raise ValueError(f"--count is {count}; accepted with --complete: 1 to {source.length}, the held-out images")
    if source.levels != model.levels:
        raise ValueError(f"the images have {source.levels} levels and the model {model.levels}; restore the run's data")
    return source.batch(range(count))["tokens"], source.shape


def _given_values(share: float, size: Shape) -> int:
    """Return how many values are given: whole rows, at least one, and not all."""
    if size[0] < 2:
        raise ValueError(f"the images are {size[0]} pixel high; accepted with --complete: 2 rows or more")
    return min(max(1, round(share * size[0])), size[0] - 1) * prod(size[1:])


def _rows(originals: Any, completed: Any, n: int) -> tuple[Any, list[int]]:
    """Return the cells of each row (given part, completions, original) and how many values of each cell were given."""
    import torch

    half = originals.clone()
    half[:, n:] = -1  # left blank
    ways = completed.cpu().unflatten(0, (-1, WAYS))  # [N,WAYS,T]
    cells = torch.cat([half[:, None], ways, originals[:, None]], dim=1)
    return cells.flatten(0, 1), [*[n] * (1 + WAYS), 0] * len(originals)
