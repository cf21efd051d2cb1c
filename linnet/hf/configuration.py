"""LinnetConfig: a ModelConfig as a Hugging Face configuration, field by field under the same names.

    LinnetConfig(d_model=256, n_layers=8, mixer=["conv", "rebased"])    or hidden_size=256, num_hidden_layers=8, ...
    config.model_config("language")                                     the ModelConfig, checked as always
    LinnetConfig.of(model.config)                                       and back

Two names differ. `vocab_size` is the number of tokens here, and `num_labels` that of the classes, while a ModelConfig
for "classify" has them as `source_vocab_size` and `vocab_size`. And `max_length` is a word of generate(), so that of
learned positions is `max_position_embeddings`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from ..models.config import ModelConfig

LENGTH = "max_position_embeddings"
FIELDS = {  # ours -> here
    f.name: LENGTH if f.name == "max_length" else f.name
    for f in fields(ModelConfig)
    if f.name not in ("task", "source_vocab_size")
}
TASKS = ("language", "classify")


class LinnetConfig(PreTrainedConfig):
    """The fields of ModelConfig, the usual Hugging Face names for some of them, and two of its own: `use_cache`, and
    `begin_token_id`, the token as which a `bos_token_id` past the vocabulary is read.
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
        checked = ModelConfig().but(**ours).to_dict()
        for name, here in FIELDS.items():
            setattr(self, here, checked[name])
        super().__init__(**given)
        self.use_cache = use_cache
        self.bos_token_id, self.eos_token_id, self.pad_token_id = bos_token_id, eos_token_id, pad_token_id
        self.begin_token_id = begin_token_id

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """A file without a config_version is of version 1, as in ModelConfig.from_dict."""
        return super().from_dict({"config_version": 1, **config_dict}, **kwargs)

    @classmethod
    def of(cls, config: ModelConfig) -> LinnetConfig:
        """The configuration of a language model or a classifier of tokens."""
        if config.task not in TASKS or config.input_dim:
            kind = f"{config.task!r} model" + (f" of {config.input_dim} numbers a step" if config.input_dim else "")
            raise ValueError(f"a {kind} has no Hugging Face form; accepted: 'language', or 'classify' on tokens")
        values = {FIELDS[name]: value for name, value in config.to_dict().items() if name in FIELDS}
        if config.task == "language":
            return cls(**values)
        tokens = config.source_vocab_size or config.vocab_size
        return cls(**{**values, "vocab_size": tokens}, num_labels=config.vocab_size)

    def model_config(self, task: str) -> ModelConfig:
        """The ModelConfig of that task; what does not fit is refused here."""
        values = {name: getattr(self, here) for name, here in FIELDS.items()}
        if task == "classify":
            source = 0 if self.vocab_size == self.num_labels else self.vocab_size  # 0: as many as classes
            values |= {"vocab_size": self.num_labels, "source_vocab_size": source}
        return ModelConfig.from_dict({"task": task, **values})
