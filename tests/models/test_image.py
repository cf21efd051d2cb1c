"""ImageModel: steps equal the parallel pass with both heads, the loss is the sum over pixels, samples follow it."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
import torch
from torch import Tensor

from linnet.layers import MIXERS
from linnet.models import ModelConfig, build, mixture
from linnet.models.image import ImageModel
from tests.models.heads import EXACT, again, learned, small, stepped

B, T, L = 3, 12, 17
HEADS = ["categorical", "mixture"]


def pixels(rows: int = B, levels: int = L) -> Tensor:
    return torch.randint(levels, (rows, T), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_steps_equal_the_parallel_pass(mixer: str, head: str) -> None:
    model = small("image", mixer=mixer, head=head, vocab_size=L, n_mixtures=3)
    inputs = torch.cat([torch.full((B, 1), model.start), pixels()[:, :-1]], dim=1)
    params, final = model(inputs)
    outs, state = stepped(model, inputs)
    torch.testing.assert_close(outs, params, **EXACT)
    torch.testing.assert_close(state, final, **EXACT)
    first, half = model(inputs[:, :4])
    rest, end = model(inputs[:, 4:], half)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), params, **EXACT)
    torch.testing.assert_close(end.position, final.position)
    assert params.shape == (B, T, L if head == "categorical" else 9)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_loss_is_the_sum_over_pixels(head: str, tied: bool) -> None:
    """Generate pixel by pixel with `step`, the first after the start token."""
    model, image = small("image", head=head, vocab_size=L, n_mixtures=3, tie_embeddings=tied), pixels()
    want, state, token = torch.zeros((), dtype=torch.float64), None, torch.full((B,), model.start)
    for t in range(T):
        params, state = model.step(token, state)
        table = mixture.log_probs(params, levels=L) if head == "mixture" else params.log_softmax(-1)
        token = image[:, t]
        want -= sum(table[b, token[b]] for b in range(B))
    total, n = model.loss({"tokens": image, "labels": torch.zeros(B)})
    torch.testing.assert_close(total, want, **EXACT)
    assert n.item() == B * T
    shown = model.metrics({"tokens": image})
    assert shown["loss"][0].item() == total.item()
    assert shown["bits_per_dim"][0].item() == pytest.approx(total.item() / log(2))
    assert not shown["loss"][0].requires_grad


@pytest.mark.parametrize("head", HEADS)
def test_no_pixel_sees_itself_or_the_future(head: str) -> None:
    model, image = small("image", head=head, vocab_size=L), pixels(1)
    inputs = torch.cat([torch.tensor([[model.start]]), image[:, :-1]], dim=1)
    weight = model.embed.weight.detach()[inputs].requires_grad_()
    h, _ = model.backbone(weight)
    (grad,) = torch.autograd.grad(h[0, 5, 0], weight)
    assert grad[0, :6].abs().sum(-1).min() > 0
    assert grad[0, 6:].abs().max() == 0


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_samples_follow_the_tempered_distribution(head: str, temperature: float) -> None:
    model = small("image", head=head, vocab_size=L)
    params, _ = model.step(torch.tensor([model.start]))
    scores = model.log_prob(params.expand(L, -1), torch.arange(L)) / temperature
    n = 40_000
    drawn = model.sample(params.expand(n, -1), torch.Generator().manual_seed(0), temperature)
    seen = torch.bincount(drawn, minlength=L) / n
    torch.testing.assert_close(seen.double(), scores.softmax(0), rtol=0, atol=0.012)
    assert model.sample(params, None, 0.0).item() == scores.argmax().item()
    with pytest.raises(ValueError, match=r"temperature is -1\.0; accepted: 0"):
        model.sample(params, None, -1.0)


@pytest.mark.parametrize("head", HEADS)
def test_an_image_is_learned_by_heart(head: str) -> None:
    torch.manual_seed(0)
    model = build(ModelConfig(task="image", d_model=32, n_layers=2, n_heads=4, vocab_size=L, head=head, n_mixtures=4))
    assert learned(model, {"tokens": pixels(1)}, steps=200) < 0.3 * log(L)  # of log(L) nats, those of a guess


@pytest.mark.parametrize("head", HEADS)
def test_to_a_folder_and_back(head: str, tmp_path: Path) -> None:
    model = small("image", head=head, vocab_size=L)
    other = again(model, tmp_path)
    assert isinstance(other, ImageModel)
    assert torch.equal(other(pixels())[0], model(pixels())[0])


def test_bad_pixels_are_named() -> None:
    model = small("image", vocab_size=L)
    image = pixels()
    image[1, 4] = 17
    with pytest.raises(ValueError, match=r"token 17 at \[1, 4\] is outside the vocabulary of 17; accepted: 0 to 16"):
        model.loss({"tokens": image})
    with pytest.raises(ValueError, match=r"token 18 at \[0\] is outside"):
        model.step(torch.tensor([18]))
