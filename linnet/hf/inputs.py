"""What a Hugging Face forward pass is given, as linnet's blocks take it, and what of it is refused.

    x, mask = entered(embed, config, ids, embeds, attention_mask)      x [B,T,E], mask [B,T] or None where all are real

A token that no embedding exists for is refused, with one exception: the beginning of a text. A vocabulary of bytes has
no token for it, so a converted tokenizer's `bos_token_id` lies past the vocabulary, and is read as `begin_token_id`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..models.language import IGNORE, check_tokens
from .cache import LinnetCache
from .configuration import LinnetConfig


def entered(
    embed: nn.Module | None,
    config: LinnetConfig,
    ids: Tensor | None,
    embedded: Tensor | None,
    attention_mask: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """x [B,T,E] of ids [B,T] or as given, and the mask of these T tokens: bool, or None where all are real."""
    if (ids is None) == (embedded is None):
        raise ValueError("accepted: either input_ids [B,T] or inputs_embeds [B,T,E], and only one of them")
    given = ids if embedded is None else embedded
    assert given is not None
    mask = real(attention_mask, given.shape[1])
    if embedded is not None:
        return embedded, mask
    assert isinstance(embed, nn.Embedding)
    ids = given if mask is None else given.masked_fill(~mask, 0)  # whatever the tokenizer pads with
    begin, known = config.bos_token_id, embed.num_embeddings
    if isinstance(begin, int) and begin >= known and config.begin_token_id is not None:
        ids = ids.masked_fill(ids == begin, config.begin_token_id)
    check_tokens(ids, known)
    return embed(ids), mask


def real(attention_mask: Tensor | None, length: int) -> Tensor | None:
    """[B,past + T] or [B,T] -> [B,T]; None where all tokens are real."""
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2 or attention_mask.shape[1] < length:
        got = list(attention_mask.shape)
        raise ValueError(f"attention_mask has shape {got}; accepted: [batch, time] with {length} columns or more")
    mask = attention_mask[:, attention_mask.shape[1] - length :].bool()
    if torch.compiler.is_compiling():  # a graph cannot look at values
        return mask
    return None if bool(mask.all()) else mask


def checked_cache(cache: Any, keep: bool) -> LinnetCache | None:
    if cache is None:
        return LinnetCache() if keep else None
    if not isinstance(cache, LinnetCache):
        raise ValueError(f"past_key_values is a {type(cache).__name__}; accepted: a LinnetCache, or None to begin")
    return cache


def check_labels(labels: Tensor, size: int) -> None:
    """Labels are tokens of the model, or -100."""
    check_tokens(labels, size, ignore=IGNORE)


def no_attentions(config: LinnetConfig, kwargs: dict[str, Any]) -> None:
    """Most mixers never form a matrix of attention."""
    wanted = kwargs.pop("output_attentions", None)
    if config.output_attentions if wanted is None else wanted:
        raise ValueError(
            "output_attentions is True; accepted: False, for a linnet model forms no attention matrix; "
            "output_hidden_states=True gives what every layer reads"
        )


def wants(given: bool | None, default: bool | None) -> bool:
    """A keyword, or where it is not given what the configuration says."""
    return bool(default if given is None else given)
