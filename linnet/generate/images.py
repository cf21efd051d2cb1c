"""sample_images: new images from a model, or images whose beginning is given, value after value through an engine.

    x_t ~ P(x_t | start, x_0 .. x_(t-1))                what is drawn is the next input

Katharopoulos et al. 2020, arXiv:2006.16236, section 4.2: a constant cost for each value, whatever came before it.
Each image draws from a stream of its own, that of (seed, its number), so it depends neither on the others nor on how
many are sampled at a time (but for the rounding of an engine that multiplies batches of other sizes otherwise).
N images, B of a batch, T values of an image, n of them given, P width of the model's answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..models.image import ImageModel
from ..models.language import check_tokens
from ..native.sample import can_choose, choose
from .engine import Engine, engine_for

SHORT = 8192  # values that sums can take without gathering their rounding errors
OnProgress = Callable[[int, int], None]  # values sampled so far, values to sample in all


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
    """`count` images of `length` values, [N,T] long in raster order; those in `known` [N,n] are their beginnings.

    `engine` is one of this model that is open already, and stays so; without it one is opened with these `weights`.
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
        told = _told(on_progress, first * (length - n), count * (length - n))
        _fill(model, engine, part, n, uniforms, temperature, told)
    return images


def _fill(
    model: ImageModel,
    engine: Engine,
    images: Tensor,  # [B,T], of which the first n are there
    n: int,
    uniforms: Tensor,  # [T,B,2]
    temperature: float,
    told: Callable[[int], None] | None,
) -> None:
    """Sample the rest of the images of a batch in place; their rows leave the engine whatever happens."""
    size, length = images.shape
    rows = engine.join(rows=size)
    try:
        with torch.inference_mode():
            params = _begin(model, engine, rows, images[:, :n])
            values = []
            for t in range(n, length):
                values.append(_draw(model, params, uniforms[t], temperature))
                if told is not None:
                    told((t + 1 - n) * size)
                if t + 1 < length:
                    params = engine.step(values[-1], rows)
            images[:, n:] = torch.stack(values, dim=1)
    finally:
        engine.leave(rows)


def _draw(model: ImageModel, params: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    if temperature == 1 and can_choose(params):
        return choose(params, uniforms, model.levels, model.mixture)
    return model.sample(params, temperature=temperature, uniforms=uniforms)


def _begin(model: ImageModel, engine: Engine, rows: list[int], known: Tensor) -> Tensor:
    """What the model says after the start token and the values that are known, [B,P]; many are read at once."""
    start = known.new_full((len(rows), 1), model.start)
    if known.shape[1]:
        inputs = torch.cat([start, known], dim=1)
        params = torch.stack([engine.read(x, row) for x, row in zip(inputs, rows, strict=True)])
    else:
        params = engine.step(start[:, 0], rows)
    if not params.isfinite().all():
        raise ValueError("the model's answer has numbers that are not finite; take an earlier checkpoint of the run")
    return params


def _uniforms(seed: int, numbers: range, length: int) -> Tensor:
    """Two numbers for each value of these images, all drawn at once: [T,B,2] float64."""
    streams = [np.random.default_rng((seed, number)).random((length, 2)) for number in numbers]
    return torch.from_numpy(np.stack(streams, axis=1))


def _told(on_progress: OnProgress | None, done: int, total: int) -> Callable[[int], None] | None:
    return None if on_progress is None else lambda new: on_progress(done + new, total)


def _check_numbers(model: ImageModel, *, count: int, length: int, batch: int, seed: int, temperature: float) -> None:
    if not isinstance(model, ImageModel):
        raise ValueError(f"a {type(model).__name__} makes no images; accepted: an ImageModel, task 'image'")
    for name, value, least in (("count", count, 1), ("length", length, 1), ("batch", batch, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r}; accepted: a whole number, {least} or more")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}; accepted: 0 (the most probable value) or more; 1 samples")


def _check_known(known: Tensor, model: ImageModel, count: int, length: int) -> int:
    """How many values of each image are given."""
    if known.ndim != 2 or known.is_floating_point() or len(known) != count or known.shape[1] >= length:
        got = f"{known.dtype} {list(known.shape)}"
        raise ValueError(f"known is {got}; accepted: whole numbers [{count}, n], n below the length {length}")
    check_tokens(known.long(), model.levels)
    return known.shape[1]
