"""Hugging Face models around linnet's: the same parameters and forward pass behind another interface.

    LinnetModel                        tokens [B,T] -> hidden states [B,T,E]
    LinnetForCausalLM                  tokens [B,T] -> logits [B,T,N], and generate()
    LinnetForSequenceClassification    tokens [B,T] -> logits [B,C]

attention_mask [B,T], 1 = real token, padding anywhere: it touches neither logits nor state, and its token ids are never
read. Positions count real tokens, so `position_ids` are not needed and ignored.
B batch, T time, E model width, N vocabulary, C classes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn, no_grad
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    SequenceClassifierOutputWithPast,
)

from ..models.activations import RECOMPUTE, Recompute, recomputed
from ..models.backbone import Backbone
from ..models.base import WEIGHTS, read_config
from ..models.folder import find_model
from ..models.language import LanguageModel
from ..models.state import ModelState
from ..models.stream import Classifier
from ..models.weights_file import check_sizes
from .cache import LinnetCache
from .configuration import LinnetConfig
from .generation import LinnetGeneration
from .inputs import check_labels, checked_cache, embed_inputs, given_or_default, refuse_attentions


class LinnetPreTrainedModel(PreTrainedModel):
    """Base class: initialisation, and a pass through the blocks with padding and a cache."""

    config_class = LinnetConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    gradient_checkpointing = False
    _recompute: Recompute = staticmethod(RECOMPUTE)
    _every = 1
    _keep_in_fp32_modules_strict: ClassVar[list[str]] = ["projection"]  # of random features: half would round them all

    def _begin(self) -> None:
        """Finish construction, keeping the initial values that linnet set."""
        if not any(p.is_meta for p in self.parameters()):  # meta: from_pretrained, which fills it next
            for module in self.modules():
                module._is_hf_initialized = True
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Initialise what a checkpoint lacks as in a new model."""
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        missing = [(name, x) for name, x in own if not getattr(x, "_is_hf_initialized", False)]
        if missing:
            where = next(name for name, other in self.named_modules() if other is module)
            new = type(self)(self.config).get_submodule(where)
            for name, x in missing:
                x.data.copy_(getattr(new, name))

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: Recompute = RECOMPUTE, every_n_layers: int = 1
    ) -> None:
        """Recompute every n-th block in the backward pass, keeping only its input."""
        self.gradient_checkpointing = enable
        self._recompute, self._every = gradient_checkpointing_func, every_n_layers

    def _hidden(
        self,
        backbone: Backbone,
        x: Tensor,
        mask: Tensor | None,
        cache: LinnetCache | None,
        use_cache: bool | None,
        output_hidden_states: bool | None,
    ) -> tuple[Tensor, LinnetCache | None, tuple[Tensor, ...] | None]:
        """Return x [B,T,E] after the blocks, the cache advanced by T tokens, and, if requested, each block's input."""
        keep = given_or_default(use_cache, self.config.use_cache and not self.training)
        cache = checked_cache(cache, keep and backbone.causal)
        state = None if cache is None else cache.state
        every: list[Tensor] | None = (
            [] if given_or_default(output_hidden_states, self.config.output_hidden_states) else None
        )
        if x.shape[1] == 1 and mask is None and state is not None:
            h, new = backbone.step(x[:, 0], state, hidden=every)
            h, every = h[:, None], None if every is None else [y[:, None] for y in every]
        else:
            light = self.gradient_checkpointing and self.training
            with recomputed(backbone.blocks[:: self._every], light, self._recompute):
                h, new = backbone(x, state, mask=mask, output_state=cache is not None, hidden=every)
        if cache is not None:
            cache.put(new, x.shape[1], _reader(backbone, x, state, mask) if cache.recording else None)
        return h, cache, None if every is None else tuple(every)


class LinnetModel(LinnetPreTrainedModel):
    """The embedding and the blocks, without a head."""

    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"head\.weight"]

    def __init__(self, config: LinnetConfig) -> None:
        super().__init__(config)
        network = LanguageModel(config.model_config("language").replace(tie_embeddings=True))  # without a head
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
        refuse_attentions(self.config, kwargs)
        x, mask = embed_inputs(self.embed, self.config, input_ids, inputs_embeds, attention_mask)
        h, cache, every = self._hidden(self.backbone, x, mask, past_key_values, use_cache, output_hidden_states)
        out = BaseModelOutputWithPast(last_hidden_state=h, past_key_values=cache, hidden_states=every)
        return _as_output(out, given_or_default(return_dict, self.config.return_dict))


class LinnetForCausalLM(
    LinnetPreTrainedModel, LinnetGeneration, GenerationMixin
):  # GenerationMixin is listed since transformers looks for it
    """A LanguageModel, as `.model`."""

    def __init__(self, config: LinnetConfig, model: LanguageModel | None = None) -> None:
        """`model`: an existing model to wrap; its configuration must match `config`."""
        super().__init__(config)
        self.model = LanguageModel(config.model_config("language")) if model is None else model
        self._begin()

    @classmethod
    def from_linnet(cls, folder: str | os.PathLike[str]) -> LinnetForCausalLM:
        """Load the language model of a linnet folder: save_pretrained, or a training run's best checkpoint."""
        source = find_model(Path(folder))
        config = read_config(source.folder)
        if config.task != "language":
            raise ValueError(f"{source.folder} holds a {config.task!r} model; accepted: a 'language' model")
        check_sizes(config, source.folder / WEIGHTS)
        model = LanguageModel(config)
        model.load_weights(source.folder / WEIGHTS, verified=source.trainer is not None)
        return cls(cls.config_class.of(config), model)

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.model.embed = value
        self.model.config = self.model.config.replace(vocab_size=value.num_embeddings)

    def get_output_embeddings(self) -> nn.Module | None:
        return self.model.head  # None: the embedding itself

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.model.head = value

    def _backbone(self) -> Backbone:
        return self.model.backbone

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
        """Return logits, and the loss for labels [B,T]: the input tokens, -100 for none; they are shifted here."""
        refuse_attentions(self.config, kwargs)
        x, mask = embed_inputs(self.model.embed, self.config, input_ids, inputs_embeds, attention_mask)
        h, cache, every = self._hidden(self.model.backbone, x, mask, past_key_values, use_cache, output_hidden_states)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep  # 0: all
        logits = self.model.apply_head(h[:, keep], x[:, keep])
        loss = None
        if labels is not None:
            size = self.model.config.vocab_size
            check_labels(labels, size)
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=size, **kwargs)
        out = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache, hidden_states=every)
        return _as_output(out, given_or_default(return_dict, self.config.return_dict))


class LinnetForSequenceClassification(LinnetPreTrainedModel):
    """A Classifier of tokens, as `.classifier`: it reads its last real token, or the mean of all if not causal.

    from_pretrained also takes the folder of a LinnetForCausalLM; only the head is then new.
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
        """Load as usual, mapping the names of a language model's parameters."""
        names = {"^model.embed.": "classifier.inputs.embed.", "^model.backbone.": "classifier.backbone."}
        loaded: Any = super().from_pretrained(*args, **{"key_mapping": names, **kwargs})
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # a pair with output_loading_info
        model.__dict__.pop("_weight_conversions", None)  # or saving would reverse the mapping
        return loaded

    def get_input_embeddings(self) -> nn.Module | None:
        return self.classifier.inputs.embed

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.classifier.inputs.embed = value
        self.classifier.config = self.classifier.config.replace(source_vocab_size=value.num_embeddings)

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
        """Return logits, and the loss for labels [B]: classes, or numbers if `problem_type` is "regression"."""
        refuse_attentions(self.config, kwargs)
        x, mask = embed_inputs(self.classifier.inputs.embed, self.config, input_ids, inputs_embeds, attention_mask)
        h, _, every = self._hidden(self.classifier.backbone, x, mask, None, False, output_hidden_states)
        logits = self.classifier.head(self.classifier.pool(h, mask))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        out = SequenceClassifierOutputWithPast(loss=loss, logits=logits, hidden_states=every)
        return _as_output(out, given_or_default(return_dict, self.config.return_dict))


def _as_output(output: Any, return_dict: bool) -> Any:
    return output if return_dict else output.to_tuple()


def _reader(backbone: Backbone, x: Tensor, state: ModelState | None, mask: Tensor | None) -> Any:
    """Return a function that recomputes the state after the first n tokens of a pass."""
    x = x.detach()

    def read(n: int) -> ModelState | None:
        with no_grad():
            return backbone(x[:, :n], state, mask=None if mask is None else mask[:, :n])[1]

    return read
