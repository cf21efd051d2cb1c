"""Trainer runs unchanged: it reports linnet's loss, and its steps update every parameter."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.hf.nets import HYBRID, N, net, tokens

pytestmark = pytest.mark.slow


def trainer(transformers: ModuleType, model: Any, rows: list[dict[str, Any]], folder: Path, **options: Any) -> Any:
    common: dict[str, Any] = {"max_steps": 2, "logging_steps": 1, "save_strategy": "no", "report_to": []}
    common |= {"use_cpu": True, "disable_tqdm": True, "per_device_train_batch_size": 2, "learning_rate": 1e-2}
    arguments = transformers.TrainingArguments(output_dir=str(folder), **common, **options)
    return transformers.Trainer(model=model, args=arguments, train_dataset=rows)


def test_two_steps_of_a_language_model(hf: ModuleType, transformers: ModuleType, tmp_path: Path) -> None:
    model = net(torch.float32, **HYBRID)
    given = tokens(4)
    labels = given.clone()
    labels[:, 0] = -100  # nothing comes before it; transformers 5.0 would count it all the same
    rows: list[dict[str, Tensor]] = [{"input_ids": x, "labels": y} for x, y in zip(given, labels, strict=True)]
    with torch.no_grad():
        total, count = model.loss({"tokens": given[:, :-1], "targets": given[:, 1:]})
    before = {name: x.detach().clone() for name, x in model.named_parameters()}
    run = trainer(transformers, hf.to_hf(model), rows, tmp_path, gradient_accumulation_steps=2)
    run.train()
    losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    assert len(losses) == 2
    assert losses[0] == pytest.approx(float(total / count), abs=1e-4)  # both batches of two are the four rows
    assert losses[1] < losses[0]
    assert [name for name, x in model.named_parameters() if torch.equal(x, before[name])] == []
    run.save_model(str(tmp_path / "saved"))
    assert hf.LinnetForCausalLM.from_pretrained(tmp_path / "saved").model.fingerprint() == model.fingerprint()


def test_two_steps_of_a_classifier(hf: ModuleType, transformers: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = hf.LinnetConfig(d_model=16, n_layers=1, n_heads=2, vocab_size=N, num_labels=3)
    model = hf.LinnetForSequenceClassification(config)
    rows = [{"input_ids": row, "labels": i % 3} for i, row in enumerate(tokens(4))]
    before = model.classifier.fingerprint()
    trainer(transformers, model, rows, tmp_path).train()
    assert model.classifier.fingerprint() != before


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # it has another name from transformers 6 on
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(hf: ModuleType, transformers: ModuleType, tmp_path: Path, reentrant: bool) -> None:
    ended = []
    for light in ({}, {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}):
        model = net(torch.float32, **HYBRID)
        rows = [{"input_ids": x, "labels": x} for x in tokens(4)]
        run = trainer(transformers, hf.to_hf(model), rows, tmp_path, **light)
        run.train()
        ended.append(([entry["loss"] for entry in run.state.log_history if "loss" in entry], model.fingerprint()))
    assert ended[0] == ended[1]
