"""Hugging Face models around linnet's own: the same parameters and the same forward pass, another interface.

    LinnetModel                        tokens [B,T] -> hidden states [B,T,E]
    LinnetForCausalLM                  tokens [B,T] -> logits [B,T,N], and generate()
    LinnetForSequenceClassification    tokens [B,T] -> logits [B,C]

attention_mask [B,T], 1 = real token, padding anywhere: it touches neither logits nor state, and its token ids are never
read. Positions count real tokens, so `position_ids` are not needed and not looked at.
B batch, T time, E model width, N vocabulary, C classes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)

from ..models.backbone import Backbone
from ..models.base import WEIGHTS, newest, read_config
from ..models.language import LanguageModel, check_tokens
from ..models.stream import Classifier
from .cache import LinnetCache
from .configuration import LinnetConfig


class LinnetPreTrainedModel(PreTrainedModel):
    """What the three have in common: how they begin, and a pass through the blocks with padding and a cache."""

    config_class = LinnetConfig
    base_model_prefix = "model"
    _is_stateful = True  # generate() then refuses to decode with an assistant, which would need to step back
    _keep_in_fp32_modules_strict: ClassVar[list[str]] = ["projection"]  # of random features: half would round them all

    def _begin(self) -> None:
        """At the end of a constructor: a new model keeps the values linnet gave it."""
        if not any(p.is_meta for p in self.parameters()):  # meta: from_pretrained, which fills it next
            for module in self.modules():
                module._is_hf_initialized = True
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """What a checkpoint did not bring begins as in a new model."""
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        missing = [(name, x) for name, x in own if not getattr(x, "_is_hf_initialized", False)]
        if missing:
            where = next(name for name, other in self.named_modules() if other is module)
            new = type(self)(self.config).get_submodule(where)
            for name, x in missing:
                x.data.copy_(getattr(new, name))

    def _hidden(
        self, backbone: Backbone, x: Tensor, mask: Tensor | None, cache: LinnetCache | None, use_cache: bool | None
    ) -> tuple[Tensor, LinnetCache | None]:
        """x [B,T,E] -> [B,T,E], and the cache, moved on by T tokens."""
        keep = (self.config.use_cache and not self.training) if use_cache is None else use_cache
        cache = _checked_cache(cache, keep and backbone.causal)
        state = None if cache is None else cache.state
        if x.shape[1] == 1 and mask is None and state is not None:
            h, state = backbone.step(x[:, 0], state)
            h = h[:, None]
        else:
            h, state = backbone(x, state, mask=mask, output_state=cache is not None)
        if cache is not None:
            cache.put(state, x.shape[1])
        return h, cache


class LinnetModel(LinnetPreTrainedModel):
    """The embedding and the blocks, without a head."""

    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"head\.weight"]

    def __init__(self, config: LinnetConfig) -> None:
        super().__init__(config)
        network = LanguageModel(config.model_config("language").but(tie_embeddings=True))  # no head to leave out
        self.embed, self.backbone = network.embed, network.backbone
        self._begin()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embed = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: LinnetCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        _no_hidden_states(output_hidden_states)
        x, mask = _entered(self.embed, input_ids, inputs_embeds, attention_mask)
        h, cache = self._hidden(self.backbone, x, mask, past_key_values, use_cache)
        return _given(BaseModelOutputWithPast(last_hidden_state=h, past_key_values=cache), return_dict)


class LinnetForCausalLM(LinnetPreTrainedModel, GenerationMixin):
    """A LanguageModel, as `.model`."""

    def __init__(self, config: LinnetConfig, model: LanguageModel | None = None) -> None:
        """`model`: one that exists already, taken as it is; its configuration must be that of `config`."""
        super().__init__(config)
        self.model = LanguageModel(config.model_config("language")) if model is None else model
        self._begin()

    @classmethod
    def from_linnet(cls, folder: str | os.PathLike[str]) -> LinnetForCausalLM:
        """The language model in a folder that linnet wrote: save_pretrained, or a training run's newest checkpoint."""
        where = newest(Path(folder))
        config = read_config(where)
        if config.task != "language":
            raise ValueError(f"{where} holds a {config.task!r} model; accepted: a 'language' model")
        model = LanguageModel(config)
        model.load_weights(where / WEIGHTS)
        return cls(cls.config_class.of(config), model)

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.model.embed = value
        self.model.config = self.model.config.but(vocab_size=value.num_embeddings)

    def get_output_embeddings(self) -> nn.Module | None:
        return self.model.head  # None: the embedding itself

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.model.head = value

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """What generate() asks for before its first pass."""
        wanted = generation_config.cache_implementation
        if wanted is not None:
            raise ValueError(f"cache_implementation is {wanted!r}; a linnet model keeps a LinnetCache: leave it out")
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = LinnetCache()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: LinnetCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """labels [B,T]: the tokens themselves, -100 where nothing is scored; they are shifted by one here."""
        _no_hidden_states(output_hidden_states)
        x, mask = _entered(self.model.embed, input_ids, inputs_embeds, attention_mask)
        h, cache = self._hidden(self.model.backbone, x, mask, past_key_values, use_cache)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep  # 0: all
        logits = self.model.leave(h[:, keep], x[:, keep])
        loss = None
        if labels is not None:
            size = self.model.config.vocab_size
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=size, **kwargs)
        return _given(CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache), return_dict)


class LinnetForSequenceClassification(LinnetPreTrainedModel):
    """A Classifier of tokens, as `.classifier`: it reads its last real token, or the mean of all if not causal.

    from_pretrained also takes the folder of a LinnetForCausalLM: only the head is new then.
    """

    base_model_prefix = "classifier"
    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"model\.head\.weight"]

    def __init__(self, config: LinnetConfig, model: Classifier | None = None) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.classifier = Classifier(config.model_config("classify")) if model is None else model
        self._begin()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As everywhere; what a language model brings is found under the names it has there."""
        names = {"^model.embed.": "classifier.inputs.embed.", "^model.backbone.": "classifier.backbone."}
        found: Any = super().from_pretrained(*args, **{"key_mapping": names, **kwargs})
        model = found[0] if isinstance(found, tuple) else found  # with output_loading_info there are two
        model.__dict__.pop("_weight_conversions", None)  # or saving would turn the names back
        return found

    def get_input_embeddings(self) -> nn.Module | None:
        return self.classifier.inputs.embed

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.classifier.inputs.embed = value
        self.classifier.config = self.classifier.config.but(source_vocab_size=value.num_embeddings)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """labels [B]: classes; or numbers, if the configuration's `problem_type` is "regression"."""
        _no_hidden_states(output_hidden_states)
        x, mask = _entered(self.classifier.inputs.embed, input_ids, inputs_embeds, attention_mask)
        h, _ = self._hidden(self.classifier.backbone, x, mask, None, False)
        logits = self.classifier.head(self.classifier.pooled(h, mask))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return _given(SequenceClassifierOutputWithPast(loss=loss, logits=logits), return_dict)


def _entered(
    embed: nn.Module | None, ids: Tensor | None, embedded: Tensor | None, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """x [B,T,E] of ids [B,T] or as given, and the mask of these T tokens: bool, or None where all are real."""
    if (ids is None) == (embedded is None):
        raise ValueError("accepted: either input_ids [B,T] or inputs_embeds [B,T,E], and only one of them")
    given = ids if embedded is None else embedded
    assert given is not None
    mask = _real(attention_mask, given.shape[1])
    if embedded is not None:
        return embedded, mask
    assert isinstance(embed, nn.Embedding)
    ids = given if mask is None else given.masked_fill(~mask, 0)  # whatever the tokenizer pads with
    check_tokens(ids, embed.num_embeddings)
    return embed(ids), mask


def _real(attention_mask: Tensor | None, length: int) -> Tensor | None:
    """[B,past + T] or [B,T] -> [B,T]"""
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2 or attention_mask.shape[1] < length:
        got = list(attention_mask.shape)
        raise ValueError(f"attention_mask has shape {got}; accepted: [batch, time] with {length} columns or more")
    mask = attention_mask[:, attention_mask.shape[1] - length :].bool()
    return None if bool(mask.all()) else mask


def _checked_cache(cache: Any, keep: bool) -> LinnetCache | None:
    if cache is None:
        return LinnetCache() if keep else None
    if not isinstance(cache, LinnetCache):
        raise ValueError(f"past_key_values is a {type(cache).__name__}; accepted: a LinnetCache, or None to begin")
    return cache


def _no_hidden_states(wanted: bool | None) -> None:
    if wanted:
        raise ValueError("output_hidden_states is True; accepted: False; LinnetModel gives the last hidden state")


def _given(output: Any, return_dict: bool | None) -> Any:
    return output.to_tuple() if return_dict is False else output
