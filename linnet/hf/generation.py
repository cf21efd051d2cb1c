"""What generate() needs from a model beyond its forward pass: the cache, the masks, and undoing a draft.

    model.generate(tokens, assistant_model=small)         drafts by a small model; same tokens as greedy
    model.generate(tokens, prompt_lookup_num_tokens=3)    drafts from the prompt itself
    model.generate(tokens, cache_implementation="static") fixed shapes, for torch.compile

The cache (cache.py) undoes a rejected draft: it keeps the state from before the draft.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import GenerationMixin

from ..models.backbone import Backbone
from .cache import LinnetCache
from .inputs import real

LONG = 1 << 30  # tokens; compare the size of a state here and one token later to see whether it grows
SAME = (None, "dynamic", "dynamic_full")  # names of the default cache


class LinnetGeneration(GenerationMixin):
    """GenerationMixin for a model whose cache is a LinnetCache."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _backbone(self) -> Backbone:
        raise NotImplementedError

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Create the cache that generate() uses; raise ValueError for unsupported options."""
        wanted = generation_config.cache_implementation
        if generation_config.assistant_early_exit is not None:
            raise ValueError(
                f"assistant_early_exit is {generation_config.assistant_early_exit!r}; accepted: None, since a linnet "
                "model has one head, after its last layer; use assistant_model or prompt_lookup_num_tokens"
            )
        if wanted not in (*SAME, "static"):
            raise ValueError(
                f"cache_implementation is {wanted!r}; accepted: none, for a LinnetCache, or 'static', to compile"
            )
        if wanted == "static":
            check_static(self._backbone())
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            cache = model_kwargs["past_key_values"] = LinnetCache(static=wanted == "static")
            if generation_config.is_assistant:
                cache.activate_past_recording()

    @staticmethod
    def create_masks_for_generate(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
        """Return the mask of the tokens of this pass only, [B,T], or None if all are real."""
        embeds: Tensor = kwargs["inputs_embeds"] if "inputs_embeds" in kwargs else kwargs["input_embeds"]  # 5.0
        return real(attention_mask, embeds.shape[1])

    def _assisted_decoding(self, *args: Any, **kwargs: Any) -> Any:
        """Run assisted decoding with a cache that can undo a draft."""
        cache = kwargs.get("past_key_values")
        if not isinstance(cache, LinnetCache):
            return super()._assisted_decoding(*args, **kwargs)
        cache.activate_past_recording()
        try:
            return super()._assisted_decoding(*args, **kwargs)
        finally:
            cache.stop_recording()


def check_static(backbone: Backbone) -> None:
    """Raise ValueError if the state of a mixer grows with the sequence."""
    for i, block in enumerate(backbone.layers):
        if block.mixer.state_bytes(LONG) != block.mixer.state_bytes(LONG + 1):
            name = backbone.config.pattern[i % len(backbone.config.pattern)]
            raise ValueError(
                f"cache_implementation is 'static', but the state of the {name!r} mixer of layer {i} grows with every "
                "token; leave it out, or use a model of mixers with a constant state"
            )
