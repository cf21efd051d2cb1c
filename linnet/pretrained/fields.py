"""Fields: the config.json of a published model, where every field is either read, ignored by name, or refused.

    fields = Fields(where, values)
    width = fields.whole("hidden_size");   fields.only("hidden_act", "silu")      read and checked
    fields.close("mamba", ignored)                                                refuses a field that was not read

A field that is missing has the default that transformers gives it. Null is the same where transformers has a meaning
for it, and else refused for a number or a flag. So a configuration either means exactly the model that is built, or is
refused by the name of the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from ..errors import brief, is_number, is_whole
from ..models.config import MOST

# Fields of every model that change no logit: notes, ids of tokens, what to return, how to train, options of `generate`
# in files of old versions.
COMMON = frozenset(
    {
        "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation", "_name_or_path",
        "architectures", "attn_implementation", "auto_map", "bos_token_id", "chunk_size_feed_forward",
        "cross_attention_hidden_size", "custom_pipelines", "decoder_start_token_id", "dtype", "eos_token_id",
        "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "id2label", "initializer_range", "is_decoder",
        "keys_to_ignore_at_inference", "label2id", "mask_token_id", "output_attentions", "output_hidden_states",
        "pad_token_id", "prefix", "problem_type", "return_dict", "return_dict_in_generate", "sep_token_id",
        "suppress_tokens", "task_specific_params", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class",
        "torch_dtype", "torchscript", "transformers.js_config", "transformers_version", "unk_token_id", "unsloth_fixed",
        "unsloth_version", "use_bfloat16", "use_cache",
    }
    | {
        "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
        "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "length_penalty", "max_length",
        "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
        "remove_invalid_values", "repetition_penalty", "temperature", "top_k", "top_p", "typical_p",
    }
)  # fmt: skip
MOST_LAYERS = 10_000
REFUSED: dict[str, tuple[Any, ...]] = {  # of every model: another value means another computation
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({},),
    "quantization_config": (None,),
}


class Fields:
    """`where` names the file in errors; `values` are those of its JSON object."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = {name: value for name, value in values.items() if value is not None}
        self.nulls = {name for name, value in values.items() if value is None}
        self.unread = set(self.values)

    def raw(self, name: str, default: Any = None) -> Any:
        """Return a field as it is."""
        self.unread.discard(name)
        return self.values.get(name, default)

    def whole(
        self, name: str, default: int | None = None, least: int = 1, most: int = MOST, *, null: bool = False
    ) -> int:
        """Return a whole number; one without a default must be there. `null`: it may be null for the default."""
        value = self._required(name) if default is None else self._plain(name, default, null)
        if not is_whole(value, least, most):
            raise self.error(name, value, f"a whole number from {least} to {most:,}")
        return int(value)

    def layers(self, default: int | None = None) -> int:
        """Return num_hidden_layers, few enough to list them before the weights are opened."""
        return self.whole("num_hidden_layers", default, most=MOST_LAYERS)

    def number(self, name: str, default: float, *, null: bool = False) -> float:
        """Return a finite number above zero."""
        value = self._plain(name, default, null)
        if not is_number(value) or not 0 < value < inf:
            raise self.error(name, value, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        self._plain(name, default, null=False)
        return bool(self.only(name, default, not default))

    def only(self, name: str, *accepted: Any) -> Any:
        """Return a field that must be one of a few values; the first of them is its default."""
        value = self.raw(name, accepted[0])
        if not any(type(value) is type(other) and value == other for other in accepted):
            some = " or ".join(repr(x) for x in sorted(accepted, key=repr))
            raise self.error(name, value, f"{some}; this is another architecture")
        return value

    def divides(self, name: str, few: int, other: str, many: int) -> None:
        """Check that the first of two fields divides the second."""
        if many % few:
            raise self.error(name, few, f"a divisor of {other}, {many}")

    def derived(self, name: str, value: int) -> None:
        """Check a field that follows from others."""
        given = self.raw(name, value)
        if given != value:
            raise self.error(name, given, f"{value}, which follows from the other fields")

    def limits(self, name: str) -> tuple[float, float]:
        """Return two numbers, the larger maybe infinite: [0.0, Infinity], or [0.0, {"__float__": "Infinity"}]."""
        given = self.raw(name, (0.0, inf))
        pair = (
            [float(x["__float__"]) if _is_special(x) else x for x in given] if isinstance(given, list | tuple) else ()
        )
        if len(pair) != 2 or not all(map(_is_real, pair)) or not 0 <= pair[0] <= pair[1] or pair[1] == 0:
            raise self.error(name, given, "two numbers, 0 <= least <= largest, not both 0")
        return float(pair[0]), float(pair[1])

    def close(self, kind: str, ignored: Iterable[str]) -> None:
        """Raise ValueError for a field that has not been read and is not known to change nothing."""
        for name, accepted in REFUSED.items():
            self.only(name, *accepted)
        for name in sorted(self.unread.difference(COMMON, ignored)):
            raise ValueError(
                f"{self.where}: {name} is {brief(self.values[name])}, which linnet does not know in a {kind!r} model; "
                "accepted: the fields that transformers reads; remove it if it changes nothing"
            )

    def error(self, name: str, value: object, accepted: str) -> ValueError:
        return ValueError(f"{self.where}: {name} is {brief(value)}; accepted: {accepted}")

    def _plain(self, name: str, default: Any, null: bool) -> Any:
        if name in self.nulls and not null:
            raise self.error(name, None, f"a value, or no such field for {default!r}")
        return self.raw(name, default)

    def _required(self, name: str) -> Any:
        if name not in self.values:
            raise ValueError(f"{self.where} has no {name}; accepted: the config.json that belongs to the weights")
        return self.raw(name)


def _is_special(value: Any) -> bool:
    return isinstance(value, dict) and value.get("__float__") in ("Infinity", "-Infinity", "NaN")


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
