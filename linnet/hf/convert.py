"""Convert a linnet model to a Hugging Face model and back, without copying: both share the network.

    hf = to_hf(model);   from_hf(hf) is model
    hf, tokenizer = to_hf(model, tokenizer)

They share every parameter, so training one trains the other.
"""

from __future__ import annotations

from typing import overload

from transformers import PreTrainedTokenizerFast

from ..data.tokenizer import Tokenizer
from ..models.base import Model
from ..models.language import LanguageModel
from ..models.stream import Classifier
from .configuration import LinnetConfig
from .modeling import LinnetForCausalLM, LinnetForSequenceClassification
from .tokenizer import set_special_tokens, tokenizer_to_hf

HFModel = LinnetForCausalLM | LinnetForSequenceClassification


@overload
def to_hf(model: Model) -> HFModel: ...


@overload
def to_hf(model: Model, tokenizer: Tokenizer) -> tuple[HFModel, PreTrainedTokenizerFast]: ...


def to_hf(model: Model, tokenizer: Tokenizer | None = None) -> HFModel | tuple[HFModel, PreTrainedTokenizerFast]:
    """Wrap a LanguageModel or a Classifier of tokens as a Hugging Face model; with a tokenizer, return both."""
    if not isinstance(model, LanguageModel | Classifier):
        accepted = "a LanguageModel, or a Classifier of tokens"
        raise ValueError(f"a {type(model).__name__} has no Hugging Face form; accepted: {accepted}")
    config = LinnetConfig.of(model.config)
    tokens = config.vocab_size
    if tokenizer is not None and tokenizer.vocab_size > tokens:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} tokens and the model {tokens}; use the one it was trained with"
        )
    converted = None if tokenizer is None else tokenizer_to_hf(tokenizer)
    if tokenizer is not None and converted is not None:
        set_special_tokens(config, tokenizer, converted)
    wrapped: HFModel
    if isinstance(model, LanguageModel):
        wrapped = LinnetForCausalLM(config, model)
    else:
        wrapped = LinnetForSequenceClassification(config, model)
    wrapped.train(model.training)
    return wrapped if converted is None else (wrapped, converted)


def from_hf(model: HFModel) -> LanguageModel | Classifier:
    """Return the linnet model inside."""
    if isinstance(model, LinnetForCausalLM):
        return model.model
    if isinstance(model, LinnetForSequenceClassification):
        return model.classifier
    accepted = "LinnetForCausalLM or LinnetForSequenceClassification"
    raise ValueError(f"the model is a {type(model).__name__}; accepted: a {accepted}")
