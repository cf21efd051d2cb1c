"""Random scripts on an engine: after any history, the outputs of a row equal the unsplit run of its tokens.

A script is a seed: it adds, reads, steps, forks, selects, saves and resumes, rolls back and removes rows, with bad
calls in between. Every output is recorded with the tokens before it; one pass of the model at the end checks them all.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from linnet.generate import Engine
from linnet.models import LanguageModel, ModelState
from tests.generate.engines import KINDS, VOCAB, close, language, opened

SCRIPTS, MOVES = 30, 8  # for each of the ten kinds of model
FEWER = 10


class Script:
    """One engine and the tokens that its rows should have read."""

    def __init__(self, engine: Engine, seed: int, file: Path) -> None:
        self.engine, self.random, self.file = engine, Random(seed), file
        self.rows: dict[int, list[int]] = {}
        self.past: list[tuple[list[int], ModelState]] = []  # earlier states of some row
        self.outputs: list[tuple[list[int], Tensor]] = []  # tokens and the output after them

    def run(self, moves: int) -> None:
        self.join()
        kinds = [self.join, self.read, self.read, self.step, self.step, self.step, self.fork]
        kinds += [self.resume, self.select, self.leave, self.go_back, self.blunder]
        for _ in range(moves):
            self.random.choice(kinds)()
        if self.rows:
            self.step_all()

    def draw(self, most: int) -> list[int]:
        return [self.random.randrange(VOCAB) for _ in range(self.random.randint(1, most))]

    def some(self) -> list[int]:
        """Choose one or more rows, in any order."""
        if not self.rows:
            self.join()
        return self.random.sample(list(self.rows), self.random.randint(1, len(self.rows)))

    def heard(self, row: int, new: list[int], answer: Tensor) -> None:
        self.rows[row] = self.rows[row] + new
        self.outputs.append((self.rows[row], answer))

    def join(self) -> None:
        for row in self.engine.add(rows=self.random.randint(1, 2)):
            self.rows[row] = []

    def read(self) -> None:
        row, new = self.some()[0], self.draw(6)
        self.heard(row, new, self.engine.read(torch.tensor(new), row))

    def step(self) -> None:
        self._step(self.some())

    def step_all(self) -> None:
        self._step(list(self.rows))

    def _step(self, rows: list[int]) -> None:
        new = [self.random.randrange(VOCAB) for _ in rows]
        for row, token, answer in zip(rows, new, self.engine.step(torch.tensor(new), rows), strict=True):
            self.heard(row, [token], answer)

    def fork(self) -> None:
        row = self.some()[0]
        for new in self.engine.fork(row, self.random.randint(1, 2)):
            self.rows[new] = self.rows[row]

    def resume(self) -> None:
        rows, model = self.some(), self.engine.model
        self.engine.state(rows).save(self.file, model=model, tokens=[self.rows[row] for row in rows])
        for row, new in zip(rows, self.engine.add(ModelState.load(self.file, model=model)), strict=True):
            self.rows[new] = self.rows[row]

    def select(self) -> None:
        rows = self.some()
        chosen = [self.random.randrange(len(rows)) for _ in range(self.random.randint(1, 2))]
        for i, new in zip(chosen, self.engine.add(self.engine.state(rows).select(chosen)), strict=True):
            self.rows[new] = self.rows[rows[i]]

    def leave(self) -> None:
        rows = self.some()
        self.engine.remove(rows)
        for row in rows:
            del self.rows[row]

    def go_back(self) -> None:
        """Record the state of a row, and set a row to a recorded state."""
        row = self.some()[0]
        self.past.append((self.rows[row], self.engine.state([row])))
        self.rows[row], state = self.random.choice(self.past)
        self.engine.restore([row], state)

    def blunder(self) -> None:
        row, other = self.some()[0], max(self.rows) + 50
        calls = [
            lambda: self.engine.step(torch.tensor([1, VOCAB]), [row, row]),
            lambda: self.engine.step(torch.tensor([VOCAB]), [row]),
            lambda: self.engine.step(torch.tensor([1, 2]), [row, other]),
            lambda: self.engine.read(torch.tensor([1, 2, -1]), row),
            lambda: self.engine.remove([row, other]),
        ]
        with pytest.raises(ValueError, match=r"row|token"):
            self.random.choice(calls)()


def check(model: LanguageModel, script: Script, near: dict[str, float]) -> None:
    """Compare every output with one pass of the float64 `model`, padded on the right, which it cannot see."""
    whole = pad_sequence([torch.tensor(seen) for seen, _ in script.outputs], batch_first=True)
    with torch.inference_mode():
        wanted = model(whole, output_state=False)[0]
    last = torch.tensor([len(seen) - 1 for seen, _ in script.outputs])
    answers = torch.stack([answer for _, answer in script.outputs])
    torch.testing.assert_close(answers.double(), wanted[torch.arange(len(last)), last], **near)
    assert script.engine.rows == list(script.rows)
    if script.rows:
        counts = script.engine.state(list(script.rows)).position.tolist()
        assert counts == [len(seen) for seen in script.rows.values()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("backend", "dtype", "scripts"),
    [("torch", torch.float64, SCRIPTS), ("torch", torch.float32, FEWER), ("native", torch.float32, SCRIPTS)],
    ids=["torch-float64", "torch-float32", "native-float32"],
)
def test_random_scripts_say_what_the_unsplit_runs_say(
    kind: str, backend: str, dtype: torch.dtype, scripts: int, tmp_path: Path
) -> None:
    model = language(kind, dtype)
    for seed in range(scripts):
        script = Script(opened(model, backend), seed, tmp_path / "a.state")
        script.run(MOVES)
        if script.outputs:
            try:
                check(language(kind), script, close(kind, dtype))
            except AssertionError as error:
                raise AssertionError(f"script {seed} of {kind!r}: {error}") from error
