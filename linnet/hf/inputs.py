"""Convert and validate the inputs of a Hugging Face forward pass for linnet's blocks.

    x, mask = embed_inputs(embed, config, ids, embeds, attention_mask)     x [B,T,E], mask [B,T], None if all are real

A token without an embedding is refused, with one exception: the beginning of a text. A byte vocabulary has no token for
it, so a converted tokenizer's `bos_token_id` lies past the vocabulary and is read as `begin_token_id`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..models.language import IGNORE, check_tokens
from .cache import LinnetCache
from .configuration import LinnetConfig


def embed_inputs(
    embed: nn.Module | None,
    config: LinnetConfig,
    ids: Tensor | None,
    embedded: Tensor | None,
    attention_mask: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Return x [B,T,E], embedded from ids [B,T] or as given, and the bool mask of these T tokens, None if all real."""
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
    """Return the mask [B,T] of [B,past + T] or [B,T]; None if all tokens are real."""
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
    """Return the cache, a new one if `keep` and there is none; raise ValueError for one of another class."""
    if cache is None:
        return LinnetCache() if keep else None
    if not isinstance(cache, LinnetCache):
        raise ValueError(f"past_key_values is a {type(cache).__name__}; accepted: a LinnetCache, or None at the start")
    return cache


def check_labels(labels: Tensor, size: int) -> None:
    """Raise ValueError unless labels are tokens of the model, or -100."""
    check_tokens(labels, size, ignore=IGNORE)


def refuse_attentions(config: LinnetConfig, kwargs: dict[str, Any]) -> None:
    """Raise ValueError if attention matrices are requested: most mixers never form one."""
    wanted = kwargs.pop("output_attentions", None)
    if config.output_attentions if wanted is None else wanted:
        raise ValueError(
            "output_attentions is True; accepted: False, since a linnet model computes no attention matrix; "
            "output_hidden_states=True gives the input of every layer"
        )


def given_or_default(given: bool | None, default: bool | None) -> bool:
    """Return a keyword argument, or the configuration's value if it is None."""
    return bool(default if given is None else given)
