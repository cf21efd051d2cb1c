"""What is said of Based's floor, against its attention map and its kernel written out."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.recall.config import TEST_ROWS, RecallConfig
from linnet.labs.recall.probe_floor import EDGES, floor, part, spread, without_floor
from linnet.labs.recall.probe_iou import asked, given, last_mixer
from linnet.labs.recall.score import ratio, score
from linnet.layers import LinearAttention
from linnet.models import LanguageModel

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
SMALL = RecallConfig(mixer="based", d_model=16, key_dim=4, n_heads=2, seq_len=32, pairs=4)


@pytest.fixture
def based() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(SMALL.model()).eval()


def test_weights_are_those_of_the_layer(based: LanguageModel) -> None:
    drawn = SMALL.source("test").draw(range(TEST_ROWS, TEST_ROWS + 8))
    queries, values = asked(drawn)
    mixer, x = last_mixer(based), given(based, drawn.tokens)
    maps = mixer.attention_map(x).detach()  # [B,H,T,T]
    row = torch.arange(8)[:, None]
    right = maps[row, :, queries, values].transpose(1, 2)  # [B,H,Q]
    q, k, *_ = mixer.project(x, None)
    dots = torch.einsum("bqhd,bthd->bhqt", q[row, queries], k).detach()
    result = part(mixer, dots, queries, values)
    torch.testing.assert_close(result.rest, 1 - right.flatten(), **CLOSE)
    torch.testing.assert_close(result.weight, ((1 - right) / queries[:, None]).flatten(), **CLOSE)
    assert (result.floor < result.rest).all()
    assert result.s.numel() == 2 * int(queries.sum())  # of t + 1 tokens at position t, one is asked for


def test_the_floor_by_hand() -> None:
    """One query at position 2, the value at 0, s = 0, -1, 1: weights 1, 1/2, 5/2."""
    mixer = LinearAttention(4, 1, feature_map="based", key_dim=4)
    s = torch.tensor([0.0, -1.0, 1.0, 9.0])  # the last is after the query
    result = part(mixer, (2 * s).view(1, 1, 1, 4), torch.tensor([[2]]), torch.tensor([[0]]))
    assert float(result.rest) == pytest.approx(3 / 4)
    assert float(result.weight) == pytest.approx(3 / 8)
    assert float(result.floor) == pytest.approx(2 * 0.5 / 4)
    assert result.s.tolist() == [-1.0, 1.0]


def test_spread_by_hand() -> None:
    result = spread(torch.tensor([-9.0, -1.2, -0.8, 0.0, 9.0]))
    assert result["near"] == pytest.approx(2 / 5)
    assert result["quantiles"] == pytest.approx([-9.0, -7.44, -1.2, -0.8, 0.0, 7.2, 9.0], abs=1e-6)
    shares = dict(zip((-float("inf"), *EDGES), result["histogram"], strict=True))  # by the lower edge of the bin
    assert {edge for edge, share in shares.items() if share} == {-float("inf"), -1.5, -1.0, 0.0, 4.0}
    assert sum(result["histogram"]) == pytest.approx(1)


def test_without_is_the_same_model_with_half_taken_off_every_kernel(based: LanguageModel) -> None:
    """By hand: weights (kappa - 1/2) over their sum, on the values of the trained layer."""
    tokens = SMALL.source("test").draw(range(4)).tokens
    block = based.backbone.layers[-1]
    with torch.no_grad():
        h, _ = based.backbone.layers[0](based.embed_inputs(tokens))
        q, k, v, _ = block.mixer.project(block.norm1(h), None)
        s = torch.einsum("bqhd,bthd->bhqt", q, k) / 2
        kappa = ((1 + s + s**2 / 2) - 0.5).tril()
        mixed = torch.einsum("bhqt,bthd->bqhd", kappa / kappa.sum(-1, keepdim=True), v)
        by_hand = based.apply_head(based.backbone.norm(h + block.mixer.out(mixed.flatten(2))), tokens)
        torch.testing.assert_close(without_floor(based, SMALL)(tokens)[0], by_hand, rtol=1e-3, atol=1e-4)
        assert not torch.allclose(based(tokens)[0], by_hand, rtol=1e-3, atol=1e-1)  # the floor is felt


def test_accuracy_is_that_of_the_reported_rows(based: LanguageModel) -> None:
    with torch.no_grad():
        based.backbone.layers[-1].mixer.out.weight *= 50  # else a model with random weights names the token it reads
    scores = score(without_floor(based, SMALL), SMALL.source("test"), range(TEST_ROWS, 2 * TEST_ROWS))
    result = floor(based, SMALL)
    assert result["without"] == ratio(scores["all"]) > 0
    assert set(result) == {"rest", "weight", "floor", "without", "near", "quantiles", "histogram"}


def test_only_of_based() -> None:
    for config in (SMALL.replace(mixer="rebased"), SMALL.replace(mixer="softmax"), SMALL.replace(options={"order": 4})):
        assert floor(LanguageModel(config.model()), config) == {}
