"""RecallConfig: one recall run as plain values, from the sequences to the last step; its dict is the key of its row.

    model    a first layer that sees the previous tokens (conv), then the mixer under test; no MLP; tied embedding
    data     fresh sequences at every step from the stream of `seed`; held-out ones from the test split (tasks/mqar.py)

Two configurations that differ only in the mixer see the same sequences in the same order: seeds are paired.
Arora et al. 2023, arXiv:2312.04927; Aksenov et al. 2024, arXiv:2402.10644. Only values that differ
from the default are stored, so that a field added later does not change the keys of old rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ...errors import unknown, whole
from ...models import ModelConfig
from ...train import TrainConfig
from .tasks import MQAR, Forgetting, Haystack

EXPERIMENT = "recall"
TASKS = ("mqar", "forgetting", "haystack")
TEST_ROWS = 512  # test sequences, after as many validation sequences that choose the learning rate
EVERY = 50  # steps between the evaluations of a run that ends by `patience`
CUT = 0.2  # factor on its learning rate when the validation loss has stopped falling; the second time it ends
Task = MQAR  # or a subclass


@dataclass(frozen=True, kw_only=True)
class RecallConfig:
    """One recall run; the comment after each field says what it is."""

    mixer: str = "rebased"  # under test
    options: Mapping[str, Any] = field(default_factory=dict)  # of that mixer
    first: str = "conv"  # the layer before it; "" for none
    depth: int = 1  # layers of the mixer under test, each with the first layer before it
    d_model: int = 64
    n_heads: int = 1
    key_dim: int | None = None
    head_dim: int | None = None
    positions: str = "none"
    max_length: int | None = None  # for learned positions; seq_len when None
    dropout: float = 0.0

    task: str = "mqar"
    vocab_size: int = 256
    seq_len: int = 64
    pairs: int = 16
    power: float = 0.01
    filler: str = "zero"
    updates: int = 0  # keys that the forgetting task writes twice
    depth_in_text: float = 0.5  # where the haystack task puts the pairs

    steps: int = 600
    batch_size: int = 64
    lr: float = 1e-2
    beta2: float = 0.98  # 0.999 in the papers, with which a few hundred steps take twice as long to start learning
    weight_decay: float = 0.1
    decay_all: bool = True  # gains and biases too, as the papers' AdamW does
    warmup: float = 0.05  # share of the steps
    examples: int = 0  # size of a fixed training set, as in the papers; 0: fresh sequences at every step
    seed: int = 0  # of the weights and of the stream of sequences
    stop_at: float = 0.0  # accuracy at which a search run ends; 0 for a reported run
    patience: int = 0  # evaluations without a lower loss until the rate is cut, then until the run ends; 0: all steps
    probes: tuple[str, ...] = ()  # names of probes.PROBES to measure at the end

    def __post_init__(self) -> None:
        if isinstance(self.probes, list):
            object.__setattr__(self, "probes", tuple(self.probes))
        if self.task not in TASKS:
            raise unknown("task", self.task, TASKS)
        for name, low, high in (("stop_at", 0.0, 1.0), ("warmup", 0.0, 1.0)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)!r}; accepted: a number from {low:g} to {high:g}")
        if self.depth < 1:
            raise ValueError(f"depth is {self.depth!r}; accepted: 1 or more layers of the mixer under test")
        whole("patience", self.patience, 0, hint="it is a number of evaluations; 0 takes all steps")
        self.source("train")
        self.model()
        self.training()

    def replace(self, **changes: Any) -> RecallConfig:
        names = [f.name for f in fields(self)]
        for name in changes:
            if name not in names:
                raise unknown("field of RecallConfig", name, names)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their default, and always those that tables show."""
        default = {f.name: f.default for f in fields(self)} | {"options": {}}
        shown = ("mixer", "d_model", "seq_len", "pairs", "lr", "seed", "steps")
        values = asdict(self) | {"options": dict(self.options), "probes": list(self.probes)}
        kept = {name: value for name, value in values.items() if name in shown or value not in (default[name], [])}
        return {"experiment": EXPERIMENT, **kept}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RecallConfig:
        return cls().replace(**{name: value for name, value in values.items() if name != "experiment"})

    def model(self) -> ModelConfig:
        pattern = (self.first, self.mixer) if self.first else (self.mixer,)
        return ModelConfig(
            mixer=pattern,
            mixer_options={self.mixer: dict(self.options)} if self.options else {},
            config_version=1,  # the mixer defaults with which the committed rows were measured
            n_layers=len(pattern) * self.depth,
            d_model=self.d_model,
            n_heads=self.n_heads,
            key_dim=self.key_dim,
            head_dim=self.head_dim,
            mlp="none",
            bias=False,
            positions=self.positions,
            max_length=self.max_length or max(self.seq_len, 1),
            dropout=self.dropout,
            vocab_size=self.vocab_size,
            init_std=self.d_model**-0.5,
        )

    def source(self, split: str) -> Task:
        """Return the training stream, or the held-out sequences: validation rows first, then test rows."""
        about: dict[str, Any] = {"vocab_size": self.vocab_size, "seq_len": self.seq_len, "pairs": self.pairs}
        about |= {"power": self.power, "filler": self.filler, "seed": self.seed, "split": split}
        if split == "test":
            about["size"] = 2 * TEST_ROWS
        elif self.examples:
            about["size"] = self.examples
        if self.task == "forgetting":
            return Forgetting(**about, updates=self.updates)
        if self.task == "haystack":
            return Haystack(**about, depth=self.depth_in_text)
        return MQAR(**about)

    def training(self) -> TrainConfig:
        every = min(EVERY, self.steps) if self.patience else max(1, self.steps // 20)
        return TrainConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            lr=self.lr,
            warmup=round(self.warmup * self.steps),
            betas=(0.9, self.beta2),
            weight_decay=self.weight_decay,
            decay_all=self.decay_all,
            seed=self.seed,
            eval_every=every,
            eval_rows=128,
            log_every=every,
            autocast="none",
            **self._schedule(),
        )

    def _schedule(self) -> dict[str, Any]:
        if not self.patience:
            return {}
        return {"schedule": "plateau", "plateau_patience": self.patience, "plateau_factor": CUT}
