"""The probe looks where the task says the answers are, at the very inputs the mixer has inside the model."""

from __future__ import annotations

import torch

from linnet.labs.recall.config import TEST_ROWS, RecallConfig
from linnet.labs.recall.iou import attention_iou
from linnet.labs.recall.probe_iou import asked, given, iou, last_mixer
from linnet.models import LanguageModel

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
SMALL = RecallConfig(mixer="rebased", first="shift", d_model=16, key_dim=4, n_heads=2, seq_len=32, pairs=4)


def model(config: RecallConfig) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(config.model()).eval()


def test_the_value_asked_for_stands_where_it_is_looked_for() -> None:
    drawn = SMALL.source("test").draw(range(6))
    queries, values = asked(drawn)
    assert queries.shape == values.shape == (6, 4)
    assert torch.equal(drawn.tokens.gather(1, values), drawn.targets.gather(1, queries))
    assert torch.equal(drawn.tokens.gather(1, values - 1), drawn.tokens.gather(1, queries))  # its key is before it


def test_given_is_what_the_mixer_has_inside_the_model() -> None:
    trained = model(SMALL)
    tokens = SMALL.source("test").draw(range(2)).tokens
    x = given(trained, tokens)
    first, last = trained.backbone.layers
    h, _ = first(trained.embed_inputs(tokens))
    torch.testing.assert_close(x, last.norm1(h), **CLOSE)
    assert not last_mixer(trained)._forward_pre_hooks


def test_of_the_rows_that_are_reported() -> None:
    trained = model(SMALL)
    result = iou(trained, SMALL)
    drawn = SMALL.source("test").draw(range(TEST_ROWS, 2 * TEST_ROWS))
    maps = last_mixer(trained).attention_map(given(trained, drawn.tokens))
    again = attention_iou(maps.detach(), *asked(drawn), 2 * SMALL.pairs).to_dict()
    assert result["queries"] == again["queries"] == TEST_ROWS * SMALL.pairs
    assert len(result["heads"]) == 2
    for name in ("p", "iou", "hit", "entropy", "empty"):
        torch.testing.assert_close(result["mean"][name], again["mean"][name], **CLOSE)


def test_a_mixer_without_a_map_has_nothing_to_say() -> None:
    config = SMALL.replace(mixer="conv", first="", n_heads=1, key_dim=None)
    assert iou(model(config), config) == {}
