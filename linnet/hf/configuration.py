"""LinnetConfig: a ModelConfig as a Hugging Face configuration, field by field under the same names.

    LinnetConfig(d_model=256, n_layers=8, mixer=["conv", "rebased"])    or hidden_size=256, num_hidden_layers=8, ...
    config.model_config("language")                                     the checked ModelConfig
    LinnetConfig.of(model.config)                                       the reverse

Two names differ. `vocab_size` is the number of tokens here and `num_labels` that of classes; a ModelConfig for
"classify" calls them `source_vocab_size` and `vocab_size`. `max_length` is an option of generate(), so the number of
learned positions is `max_position_embeddings`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from ..models.config import ModelConfig

LENGTH = "max_position_embeddings"
FIELDS = {  # name in ModelConfig -> name here
    f.name: LENGTH if f.name == "max_length" else f.name
    for f in fields(ModelConfig)
    if f.name not in ("task", "source_vocab_size")
}
TASKS = ("language", "classify")


class LinnetConfig(PreTrainedConfig):
    """The fields of ModelConfig, with Hugging Face names for some, and two more: `use_cache`, and `begin_token_id`, the
    token that replaces a `bos_token_id` outside the vocabulary.
    """

    model_type = "linnet"
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "num_key_value_heads": "n_kv_heads",
        "intermediate_size": "d_ff",
        "tie_word_embeddings": "tie_embeddings",
    }
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    def __init__(
        self,
        use_cache: bool = True,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        pad_token_id: int | None = None,
        begin_token_id: int | None = None,
        **kwargs: Any,
    ) -> None:
        given = {self.attribute_map.get(name, name): value for name, value in kwargs.items()}
        ours = {name: given.pop(here) for name, here in FIELDS.items() if here in given}
        checked = ModelConfig().replace(**ours).to_dict()
        for name, here in FIELDS.items():
            setattr(self, here, checked[name])
        super().__init__(**given)
        self.use_cache = use_cache
        self.bos_token_id, self.eos_token_id, self.pad_token_id = bos_token_id, eos_token_id, pad_token_id
        self.begin_token_id = begin_token_id

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build from a dictionary; without a config_version it is version 1, as in ModelConfig.from_dict."""
        return super().from_dict({"config_version": 1, **config_dict}, **kwargs)

    @classmethod
    def of(cls, config: ModelConfig) -> LinnetConfig:
        """Convert the configuration of a language model or of a classifier of tokens."""
        if config.task not in TASKS or config.input_dim:
            kind = f"{config.task!r} model" + (f" of {config.input_dim} numbers per step" if config.input_dim else "")
            raise ValueError(f"a {kind} has no Hugging Face form; accepted: 'language', or 'classify' on tokens")
        values = {FIELDS[name]: value for name, value in config.to_dict().items() if name in FIELDS}
        if config.task == "language":
            return cls(**values)
        tokens = config.source_vocab_size or config.vocab_size
        return cls(**{**values, "vocab_size": tokens}, num_labels=config.vocab_size)

    def model_config(self, task: str) -> ModelConfig:
        """Return the ModelConfig for that task; raise ValueError for values that do not fit."""
        values = {name: getattr(self, here) for name, here in FIELDS.items()}
        if task == "classify":
            source = 0 if self.vocab_size == self.num_labels else self.vocab_size  # 0: same as the classes
            values |= {"vocab_size": self.num_labels, "source_vocab_size": source}
        return ModelConfig.from_dict({"task": task, **values})
