"""sample_images: sample new images, or complete given beginnings, value by value on an engine.

    x_t ~ P(x_t | start, x_0 .. x_(t-1))                the value drawn is the next input

Katharopoulos et al. 2020, arXiv:2006.16236, section 4.2: a constant cost per value, however many precede it.
Each image has its own random stream, that of (seed, index), so it does not depend on the others or on the batch size
(except for the rounding of an engine whose matrix products depend on the batch size).
N images, B in a batch, T values of an image, n of them given, P width of the model's output.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..errors import whole
from ..models.image import ImageModel
from ..models.language import check_tokens
from ..native.sample import can_choose, choose
from .engine import Engine, engine_for

SHORT = 8192  # values that sums can take without compensated summation
OnProgress = Callable[[int, int], None]  # values sampled so far, total


def sample_images(
    model: ImageModel,
    count: int,
    *,
    length: int,
    temperature: float = 1.0,
    seed: int = 0,
    batch: int = 64,
    engine: Engine | None = None,
    weights: str = "float32",
    known: Tensor | None = None,
    on_progress: OnProgress | None = None,
) -> Tensor:
    """Return `count` images of `length` values, [N,T] long in raster order, that begin with `known` [N,n] if given.

    `engine` is an open engine of this model, which stays open; by default one is opened with `weights`.
    """
    _check_numbers(model, count=count, length=length, batch=batch, seed=seed, temperature=temperature)
    n = 0 if known is None else _check_known(known, model, count, length)
    engine = engine_for(model, engine, weights=weights, exact=length > SHORT)
    images = torch.zeros(count, length, dtype=torch.long, device=next(model.parameters()).device)
    if known is not None:
        images[:, :n] = known
    for first in range(0, count, batch):
        part = images[first : first + batch]
        uniforms = _uniforms(seed, range(first, first + len(part)), length).to(images.device)
        report = _reporter(on_progress, first * (length - n), count * (length - n))
        _fill(model, engine, part, n, uniforms, temperature, report)
    return images


def _fill(
    model: ImageModel,
    engine: Engine,
    images: Tensor,  # [B,T], the first n values are given
    n: int,
    uniforms: Tensor,  # [T,B,2]
    temperature: float,
    report: Callable[[int], None] | None,
) -> None:
    """Sample the remaining values of a batch in place; its rows are removed from the engine in any case."""
    size, length = images.shape
    rows = engine.add(rows=size)
    try:
        with torch.inference_mode():
            params = _begin(model, engine, rows, images[:, :n])
            values = []
            for t in range(n, length):
                values.append(_draw(model, params, uniforms[t], temperature))
                if report is not None:
                    report((t + 1 - n) * size)
                if t + 1 < length:
                    params = engine.step(values[-1], rows)
            images[:, n:] = torch.stack(values, dim=1)
    finally:
        engine.remove(rows)


def _draw(model: ImageModel, params: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    if temperature == 1 and can_choose(params):
        return choose(params, uniforms, model.levels, model.mixture)
    return model.sample(params, temperature=temperature, uniforms=uniforms)


def _begin(model: ImageModel, engine: Engine, rows: list[int], known: Tensor) -> Tensor:
    """Return the output [B,P] after the start token and the known values, which are read by the chunked form."""
    start = known.new_full((len(rows), 1), model.start)
    if known.shape[1]:
        inputs = torch.cat([start, known], dim=1)
        params = torch.stack([engine.read(x, row) for x, row in zip(inputs, rows, strict=True)])
    else:
        params = engine.step(start[:, 0], rows)
    if not params.isfinite().all():
        raise ValueError("the model's output is not finite; use an earlier checkpoint of the run")
    return params


def _uniforms(seed: int, numbers: range, length: int) -> Tensor:
    """Return two uniforms for each value of these images: [T,B,2] float64."""
    streams = [np.random.default_rng((seed, number)).random((length, 2)) for number in numbers]
    return torch.from_numpy(np.stack(streams, axis=1))


def _reporter(on_progress: OnProgress | None, done: int, total: int) -> Callable[[int], None] | None:
    return None if on_progress is None else lambda new: on_progress(done + new, total)


def _check_numbers(model: ImageModel, *, count: int, length: int, batch: int, seed: int, temperature: float) -> None:
    if not isinstance(model, ImageModel):
        raise ValueError(f"a {type(model).__name__} does not generate images; accepted: an ImageModel (task 'image')")
    for name, value, least in (("count", count, 1), ("length", length, 1), ("batch", batch, 1), ("seed", seed, 0)):
        whole(name, value, least)
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}; accepted: 0 (the most probable value) or more; 1 samples")


def _check_known(known: Tensor, model: ImageModel, count: int, length: int) -> int:
    """Return the number of given values per image."""
    if known.ndim != 2 or known.is_floating_point() or len(known) != count or known.shape[1] >= length:
        got = f"{known.dtype} {list(known.shape)}"
        raise ValueError(f"known is {got}; accepted: integers [{count}, n], n below the length {length}")
    check_tokens(known.long(), model.levels)
    return known.shape[1]
