"""TrainConfig: what is refused and how, JSON there and back, and which fields a resume may change."""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import fields, replace
from itertools import pairwise

import pytest

from linnet.train.config import MAY_CHANGE, TrainConfig


def test_json_there_and_back() -> None:
    config = TrainConfig(steps=7, betas=(0.8, 0.9), schedule="plateau", eval_every=2)
    again = TrainConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert isinstance(again.betas, tuple)
    assert TrainConfig.from_dict({}) == TrainConfig()


def test_every_field_has_a_line_of_help() -> None:
    body = ast.parse(inspect.getsource(TrainConfig)).body[0].body
    documented = [
        field.target.id
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    ]
    assert documented == [field.name for field in fields(TrainConfig)]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"steps": 0}, "steps is 0; accepted: a whole number, 1 or more"),
        ({"steps": 2.0}, "steps is 2.0; accepted: a whole number, 1 or more"),
        ({"batch_size": True}, "batch_size is True; accepted: a whole number, 1 or more"),
        ({"warmup": -1}, "warmup is -1; accepted: a whole number, 0 or more"),
        ({"lr": 0.0}, "lr is 0.0; accepted: a number above 0"),
        ({"lr": float("nan")}, "lr is nan; accepted: a number above 0"),
        ({"lr": "fast"}, "lr is 'fast'; accepted: a number above 0"),
        ({"clip": float("inf")}, "clip is inf; accepted: a number of 0 or more"),
        ({"plateau_factor": 1.0}, "plateau_factor is 1.0; accepted: a number between 0 and 1"),
        ({"betas": (0.9,)}, "betas is (0.9,); accepted: two numbers of 0 or more, below 1"),
        ({"betas": [0.9, 1.0]}, "betas is (0.9, 1.0); accepted: two numbers of 0 or more, below 1"),
        ({"decay_all": 1}, "decay_all is 1; accepted: True or False"),
        ({"batch_size": 8, "accumulate": 3}, "accumulate is 3; accepted: a divisor of batch_size (8)"),
        ({"lr": 1e-3, "min_lr": 1e-2}, "min_lr is 0.01; accepted: at most lr (0.001)"),
        ({"steps": 5, "warmup": 6}, "warmup is 6; accepted: at most steps (5)"),
        ({"schedule": "plateau"}, "eval_every is 0; accepted: 1 or more with schedule 'plateau'"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'?"),
        ({"optimizer": "sgd"}, "unknown optimizer 'sgd'. Accepted: adamw, radam"),
        ({"autocast": "fp16"}, "unknown autocast 'fp16'"),
        ({"stepz": 5}, "unknown field of TrainConfig 'stepz'; did you mean 'steps'?"),
    ],
)
def test_refused_with_one_sentence(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        TrainConfig.from_dict(given)


def test_what_a_resume_may_change() -> None:
    config = TrainConfig()
    changes = {"steps": 2000, "save_every": 5, "eval_every": 5, "keep": 1, "log_every": 7, "accumulate": 2}
    assert replace(config, **changes).difference(config) is None
    assert {field.name for field in fields(TrainConfig)} >= MAY_CHANGE
    for name, value in {"lr": 1e-4, "seed": 1, "batch_size": 8, "clip": 0.5, "betas": (0.9, 0.95)}.items():
        assert replace(config, **{name: value}).difference(config) == name


def test_evaluations_are_fixed_where_they_move_the_learning_rate() -> None:
    config = TrainConfig(schedule="plateau", eval_every=10)
    assert replace(config, eval_every=5).difference(config) == "eval_every"
    assert replace(config, eval_rows=5).difference(config) == "eval_rows"
