"""A tiny language model with dropout and a source of made-up text, for the tests of the loop."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from linnet.models import LanguageModel, ModelConfig
from linnet.train import TrainConfig

VOCAB = 11


class Letters:
    """Rows of the sequence 3 x + row mod VOCAB with a few letters changed: learnable, the same each time."""

    unit = "tokens"

    def __init__(self, length: int = 40, seq_len: int = 12, seed: int = 0) -> None:
        self.length, self.seq_len, self.seed = length, seq_len, seed
        self.fingerprint = f"letters-{length}-{seq_len}-{seed}"

    def row(self, i: int) -> Tensor:
        g = torch.Generator().manual_seed(1000 * self.seed + i)
        ids = (torch.arange(self.seq_len + 1) * 3 + i) % VOCAB
        return torch.where(torch.rand(len(ids), generator=g) < 0.1, torch.randint(VOCAB, ids.shape, generator=g), ids)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        ids = torch.stack([self.row(i) for i in rows])
        targets = ids[:, 1:].clone()
        for b, i in enumerate(rows):
            targets[b, : i % 5] = -100  # counts differ from row to row
        return {"tokens": ids[:, :-1].contiguous(), "targets": targets}

    def units(self, batch: dict[str, Tensor]) -> int:
        return int((batch["targets"] != -100).sum())


def small_model(seed: int = 0, **changes: object) -> LanguageModel:
    torch.manual_seed(seed)
    shape = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": VOCAB, "dropout": 0.1}
    return LanguageModel(ModelConfig().replace(**(shape | changes)))


def settings(**changes: object) -> TrainConfig:
    usual = {"steps": 6, "batch_size": 8, "lr": 1e-2, "warmup": 2, "autocast": "none"}
    return TrainConfig.from_dict(usual | changes)
