"""Sampled images follow the distribution of the loss, equal the parallel pass, and are independent of each other."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from linnet.generate.engine import TorchEngine
from linnet.generate.images import sample_images
from linnet.models import mixture
from tests.models.heads import small

L, T, N = 17, 12, 5
SPREAD = 4.0  # accepted distance of a chi-square from its mean, in standard deviations
HEADS = ["categorical", "mixture"]


def pixels(rows: int, n: int, levels: int = L) -> Tensor:
    return torch.randint(levels, (rows, n), generator=torch.Generator().manual_seed(1))


def tables(model: Any, images: Tensor) -> Tensor:
    """Return log P of every value at every place given the earlier ones of `images`, by the parallel pass: [N,T,L]."""
    start = images.new_full((len(images), 1), model.start)
    params, _ = model(torch.cat([start, images[:, :-1]], dim=1))
    values = torch.arange(model.levels).expand(*images.shape, model.levels)
    return model.log_prob(params[:, :, None].expand(*values.shape, -1), values).detach()


def check_chi_square(seen: Tensor, expected: Tensor) -> None:
    """Return Pearson's chi-square over the cells expected at least five times."""
    often = expected >= 5
    freedom = int(often.sum()) - 1
    chi = float(((seen - expected) ** 2 / expected)[often].sum())
    assert freedom >= 8
    assert abs(chi - freedom) < SPREAD * (2 * freedom) ** 0.5


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("head", HEADS)
def test_pairs_of_values_follow_the_loss(head: str, temperature: float) -> None:
    """Compare with all images of two values."""
    levels, n = 5, 5000
    model = small("image", head=head, vocab_size=levels, n_mixtures=3)
    drawn = sample_images(model, n, length=2, batch=1000, temperature=temperature, seed=3)
    pairs = torch.tensor(list(product(range(levels), repeat=2)))
    each = torch.log_softmax(tables(model, pairs) / temperature, dim=-1).gather(-1, pairs[..., None])
    seen = torch.bincount(drawn[:, 0] * levels + drawn[:, 1], minlength=levels**2)
    check_chi_square(seen.double(), n * each.sum((1, 2)).exp())


@pytest.mark.parametrize("head", HEADS)
def test_completions_follow_the_loss(head: str) -> None:
    n, known = 400, torch.tensor([[3, 16, 0]])
    model = small("image", head=head, vocab_size=L, n_mixtures=3)
    drawn = sample_images(model, n, length=4, known=known.expand(n, 3), batch=100)
    assert torch.equal(drawn[:, :3], known.expand(n, 3))
    expected = n * tables(model, torch.cat([known, known[:, :1]], dim=1))[0, 3].exp()
    check_chi_square(torch.bincount(drawn[:, 3], minlength=L).double(), expected)


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("head", HEADS)
def test_every_value_is_the_one_the_parallel_pass_would_draw(head: str, n: int) -> None:
    """Draw with the two numbers of the stream of (seed, image)."""
    model, given = small("image", head=head, vocab_size=L), pixels(N, n)
    images = sample_images(model, N, length=T, known=given if n else None, seed=9, batch=2)
    assert images.shape == (N, T)
    assert torch.equal(images[:, :n], given)
    start = torch.full((N, 1), model.start)
    params, _ = model(torch.cat([start, images[:, :-1]], dim=1))
    uniforms = torch.tensor(np.stack([np.random.default_rng((9, i)).random((T, 2)) for i in range(N)]))
    assert torch.equal(model.sample(params, uniforms=uniforms)[:, n:], images[:, n:])


@pytest.mark.parametrize("head", HEADS)
def test_an_image_depends_on_the_seed_and_its_number_alone(head: str) -> None:
    model = small("image", head=head, vocab_size=L)
    images = sample_images(model, N, length=T, batch=N)
    for batch in (1, 2):
        assert torch.equal(sample_images(model, N, length=T, batch=batch), images)
    assert torch.equal(sample_images(model, 3, length=T), images[:3])
    assert len({tuple(row.tolist()) for row in images}) == N
    assert not (sample_images(model, N, length=T, seed=1) == images).all(1).any()


@pytest.mark.parametrize("head", HEADS)
def test_without_temperature_the_most_probable_value_is_taken(head: str) -> None:
    model = small("image", head=head, vocab_size=L)
    images = sample_images(model, 2, length=T, temperature=0.0, known=pixels(2, 3))
    assert torch.equal(tables(model, images).argmax(-1)[:, 3:], images[:, 3:])


def test_the_engine_is_left_as_it_was() -> None:
    """Also after an interrupt; a row that was there before continues unaffected."""
    model = small("image", vocab_size=L)
    engine = TorchEngine(model)
    (row,) = engine.add()
    engine.step(torch.tensor([model.start]), [row])
    before = engine.state([row])
    images = sample_images(model, 3, length=T, engine=engine, batch=2)
    assert torch.equal(images, sample_images(model, 3, length=T))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_images(model, 3, length=T, engine=engine, on_progress=interrupt)
    assert engine.rows == [row]
    torch.testing.assert_close(engine.state([row]), before, rtol=0, atol=0)


def test_progress_counts_the_values_sampled() -> None:
    reported: list[tuple[int, int]] = []
    model = small("image", vocab_size=L)
    sample_images(model, 3, length=4, known=pixels(3, 2), batch=2, on_progress=lambda *now: reported.append(now))
    assert reported == [(2, 6), (4, 6), (5, 6), (6, 6)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "count is 0; accepted: a whole number, 1 or more"),
        ({"length": 0}, "length is 0; accepted"),
        ({"batch": 0}, "batch is 0; accepted"),
        ({"seed": -1}, "seed is -1; accepted: a whole number, 0 or more"),
        ({"temperature": float("inf")}, "temperature is inf; accepted: 0"),
        ({"temperature": -0.5}, r"temperature is -0\.5; accepted: 0"),
        ({"known": pixels(3, 2)}, r"known is torch\.int64 \[3, 2\]; accepted: integers \[2, n\]"),
        ({"known": pixels(2, T)}, rf"known is torch\.int64 \[2, {T}\]; .* n below the length {T}"),
        ({"known": torch.zeros(2, 2)}, r"known is torch\.float32 \[2, 2\]; accepted"),
        ({"known": torch.full((2, 1), L)}, r"token 17 at \[0, 0\] is outside the vocabulary of 17"),
        ({"model": small("language")}, "a LanguageModel does not generate images; accepted: an ImageModel"),
        ({"engine": TorchEngine(small("image"))}, "the engine runs another model"),
    ],
)
def test_bad_input(changes: dict[str, Any], message: str) -> None:
    given = {"model": small("image", vocab_size=L), "count": 2, "length": T} | changes
    with pytest.raises(ValueError, match=message):
        sample_images(**given)


def test_a_model_that_has_diverged_is_refused() -> None:
    model = small("image", vocab_size=L)
    with torch.no_grad():
        model.embed.weight[L] = torch.nan
    with pytest.raises(ValueError, match="not finite; use an earlier checkpoint"):
        sample_images(model, 2, length=T)


@pytest.mark.parametrize("head", HEADS)
def test_uniforms_decide_what_is_drawn(head: str) -> None:
    """From the least to the greatest value; numbers of another shape or precision are refused."""
    model = small("image", head=head, vocab_size=L, n_mixtures=1)
    params = model.step(torch.tensor([model.start]))[0].detach().expand(99, -1)
    u = torch.linspace(0, 1, 100, dtype=torch.float64)[:-1]
    drawn = model.sample(params, uniforms=torch.stack([u, u], dim=1))
    assert int(drawn[0]) == 0
    assert (drawn.diff() >= 0).all()
    torch.testing.assert_close(drawn, torch.bucketize(u, model_heights(model, params[0]), right=True))
    for wrong in (torch.rand(99, 2), torch.rand(99, 3, dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"accepted: torch\.float64 \[99, 2\]"):
            model.sample(params, uniforms=wrong)


def model_heights(model: Any, params: Tensor) -> Tensor:
    """Return P of at most 0, 1, .. L - 2."""
    scores = mixture.log_probs(params, levels=L) if model.mixture else params.log_softmax(-1)
    return scores.exp().cumsum(-1)[:-1]
