"""The mutators: the same seed gives the same file, well-formed files stay well formed, nearly all are changed."""

from __future__ import annotations

import json
import random

import torch
from safetensors.torch import load, save

from tests.fuzz.mutate import change_json, change_lines, change_safetensors, damage, join_safetensors, split_safetensors

FILE = save({"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(2)}, {"config": json.dumps({"d": 3, "x": [1]})})
JSON = json.dumps({"a": 1, "b": [1, 2.5, None], "c": {"d": "text"}}).encode()


def test_a_seed_gives_the_same_file_again() -> None:
    for mutate, data in ((damage, JSON), (change_json, JSON), (change_lines, JSON), (change_safetensors, FILE)):
        first, second = ([mutate(random.Random(i), data) for i in range(200)] for _ in range(2))
        assert first == second
        assert sum(out != data for _, out in first) > 150
        assert len({name for name, _ in first}) >= 8


def test_a_safetensors_file_is_taken_apart_and_put_together() -> None:
    again = join_safetensors(*split_safetensors(FILE))
    assert {name: x.tolist() for name, x in load(again).items()} == {name: x.tolist() for name, x in load(FILE).items()}
