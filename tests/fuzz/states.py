"""Fuzz what an engine is given to continue from: session files, state files and states in memory.

    python -m tests.fuzz.states --cases 30000 --seed 0 [--workers 2] [--case N]

Options and output are those of long_run.py. Each case changes one thing, most often with the checksum made right again,
and gives it to an engine that other sessions run on. Either it is refused in one sentence, or it loads, steps, and
returns logits of the right shape; the other sessions' memory must not change by a bit. A file whose checksum was left
alone loads only if it says the same.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet.errors import BackendError
from linnet.generate import Engine, Session, open_engine
from linnet.models import LanguageModel, ModelConfig, ModelState, build
from linnet.ops.checks import LONGEST
from linnet.ops.state_file import load_states, read_header
from tests.fuzz import long_run
from tests.fuzz.long_run import Found, Job
from tests.fuzz.mutate import change_safetensors, damage, join_safetensors, split_safetensors
from tests.generate.engines import KINDS, VOCAB, language, tokens
from tests.generate.hostile import memory, resealed, unchanged

OTHERS = {"lsh": {"mixer": "lsh"}}  # torch alone runs this one
POSITIONS = (2**63 - 2, 2**63 - 1, -1, -(2**63), LONGEST, LONGEST - 1, LONGEST + 1, 2**32, 0, 1, 4, 6, 255, 256, 65_535)
NUMBERS = (float("nan"), float("inf"), -1e38, 1e-45, 0.0, 1.0)


class Stage:
    """An engine with three sessions on it, and the file of a fourth."""

    def __init__(self, kind: str, backend: str) -> None:
        self.model = language(kind, torch.float32) if kind in KINDS else _other(kind)
        self.engine: Engine = open_engine(self.model, backend=backend)
        self.sessions = [Session(self.model, engine=self.engine) for _ in range(4)]
        for i, session in enumerate(self.sessions):
            session.feed(tokens(5 + 3 * i, i))
        *_, last = self.sessions
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.state")
            last.save(path)
            self.data = path.read_bytes()
        self.state, self.logits = last.state, last.logits
        self.rows = self.engine.rows
        self.before = memory(self.engine, self.rows)


def _other(kind: str) -> LanguageModel:
    torch.manual_seed(0)
    shape: dict[str, Any] = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": VOCAB, "init_std": 0.2}
    model = build(ModelConfig(**shape, **OTHERS[kind])).eval()
    assert isinstance(model, LanguageModel)
    return model.requires_grad_(False)


@cache
def stage(kind: str, backend: str) -> Stage | None:
    """None where that engine cannot run that model."""
    try:
        return Stage(kind, backend)
    except BackendError:
        return None


def change_tensor(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """Numbers that matter, or that should not: positions, tokens, masks, sums."""
    header, body = split_safetensors(data)
    chosen = rng.choice([name for name in header if name != "__metadata__"] + ["position", "position", "history"])
    kind, (begin, end) = header[chosen]["dtype"], header[chosen]["data_offsets"]
    dtype = {"I64": torch.int64, "F32": torch.float32, "BOOL": torch.bool}[kind]
    values = torch.frombuffer(bytearray(body[begin:end]), dtype=dtype) if end > begin else torch.zeros(0, dtype=dtype)
    if len(values):
        at = rng.randrange(len(values))
        values[at] = {"I64": rng.choice(POSITIONS), "F32": rng.choice(NUMBERS), "BOOL": rng.random() < 0.5}[kind]
        if chosen == "position" and rng.random() < 0.5:
            header["__metadata__"]["tokens"] = str(int(values[at]))
        if kind == "BOOL" and rng.random() < 0.5:
            values.logical_not_()
    return f"tensor {chosen.split('.')[-1]}", join_safetensors(
        header, body[:begin] + values.numpy().tobytes() + body[end:]
    )


def changed_file(rng: random.Random, data: bytes) -> tuple[str, bytes, bool]:
    """(what was done, the file, whether its checksum is right)."""
    how = rng.choice((change_tensor, change_tensor, change_safetensors, damage))
    name, new = how(rng, data)
    if how is damage or rng.random() < 0.1:
        return name, new, False
    try:
        return name, resealed(new), True
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, MemoryError):
        return name, new, False  # not even a header is left


def changed_state(rng: random.Random, state: ModelState) -> tuple[str, Any]:
    """A state in memory with one thing changed."""
    what = rng.choice(("position", "position", "layer", "layer", "value", "dtype", "shape", "strides", "rows", "drop"))
    i = rng.randrange(len(state.layers))
    layer = state.layers[i]
    name = rng.choice([field for field, x in layer._asdict().items() if x is not None])
    x: Tensor = getattr(layer, name)

    def put(new: Any) -> ModelState:
        return state._replace(layers=(*state.layers[:i], layer._replace(**{name: new}), *state.layers[i + 1 :]))

    if what == "position":
        value = torch.tensor([rng.choice(POSITIONS)])
        return what, state._replace(position=rng.choice((value, value, value.double(), value[0], value.repeat(2), [5])))
    if what == "value" and x.numel() and x.is_floating_point():
        new = x.clone()
        new.view(-1)[rng.randrange(x.numel())] = rng.choice(NUMBERS)
        return what, put(new)
    if what == "dtype":
        return what, put(x.to(rng.choice((torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64))))
    if what == "shape":
        return what, put(rng.choice((x[..., :0], x[None], x.flatten(), x[:, :-1], torch.cat([x, x], -1), x.mT)))
    if what == "strides":
        wide = torch.stack([x, x + 1 if x.is_floating_point() else ~x], -1)
        return what, put(rng.choice((wide[..., 0], x[:1, :1].expand_as(x) if x.numel() else x, wide[..., 1])))
    if what == "rows":
        return what, rng.choice((state.select([]), state.select([0, 0]), put(x.repeat(2, *[1] * (x.ndim - 1)))))
    if what == "drop":
        return what, rng.choice((state._replace(layers=state.layers[:-1]), put(None), tuple(state), None, put(3)))
    return "layer", state._replace(layers=(*state.layers[:i], rng.choice(state.layers), *state.layers[i + 1 :]))


def one_sentence(error: Exception) -> None:
    if not str(error).strip() or "\n" in str(error).strip():
        raise AssertionError(f"not one sentence: {error!r}")


def use(row: int, here: Stage, rng: random.Random) -> str:
    """Continue from what was accepted: a few steps, its state, a piece of text."""
    try:
        for _ in range(rng.randrange(1, 4)):
            answer = here.engine.step(torch.tensor([rng.randrange(VOCAB)]), [row])
            assert list(answer.shape) == [1, VOCAB], "an answer of another shape"
        here.engine.state([row])
        here.engine.read(tokens(3), row)
    except ValueError as error:
        one_sentence(error)
        return "loaded, then refused"
    return "loaded"


def run(case: int, seed: int, folder: Path) -> tuple[str, str]:
    """(what was done, what came of it); AssertionError or any other exception is a finding."""
    rng = random.Random(f"{seed}.{case}")
    kind, backend = rng.choice([*KINDS, *OTHERS]), rng.choice(("native", "native", "torch"))
    here = stage(kind, backend) or stage(kind, "torch")
    assert here is not None
    target = rng.choice(("session", "session", "session", "restore", "join", "states"))
    try:
        if target in ("session", "states"):
            name, outcome = _file_case(rng, here, target, folder / "a.state")
        else:
            name, outcome = _state_case(rng, here, target)
    finally:
        here.engine.remove([row for row in here.engine.rows if row not in here.rows])
    assert unchanged(here.before, memory(here.engine, here.rows)), f"{kind}, {backend}: another session has changed"
    return f"{target} {name}", outcome


def _file_case(rng: random.Random, here: Stage, target: str, path: Path) -> tuple[str, str]:
    name, data, sealed = changed_file(rng, here.data)
    path.write_bytes(data)
    try:
        if target == "states":
            for call in rng.sample((load_states, read_header, ModelState.load), 3):
                call(path)
            return name, "loaded"
        session = Session.load(path, here.model, engine=here.engine)
    except (ValueError, OSError) as error:
        one_sentence(error)
        return name, "refused"
    if not sealed:
        same = session.tokens == here.sessions[-1].tokens and torch.equal(session.logits, here.logits)
        assert same, f"{name}: a damaged file loads and says something else"
    return name, use(session._live(), here, rng)


def _state_case(rng: random.Random, here: Stage, target: str) -> tuple[str, str]:
    name, state = changed_state(rng, here.state)
    (row,) = here.engine.add(here.state)
    before = memory(here.engine, [row])
    try:
        rows = [row] if target == "restore" else here.engine.add(state)
        if target == "restore":
            here.engine.restore([row], state)
    except ValueError as error:
        one_sentence(error)
        assert unchanged(before, memory(here.engine, [row])), f"{name}: a refused state left something behind"
        return name, "refused"
    return name, use(rows[0], here, rng) if rows else "loaded"


def share(job: Job) -> tuple[Counter[str], list[Found]]:
    count, found = Counter[str](), []
    with tempfile.TemporaryDirectory() as folder:
        for case in job.cases:
            try:
                count[run(case, job.seed, Path(folder))[1]] += 1
            except Exception as error:
                stage.cache_clear()  # what another session has lost would count again in every later case
                what = f"{type(error).__name__}: {error}"
                again = f"python -m tests.fuzz.states --seed {job.seed} --case {case}: {what}"
                found.append(Found(what[:60], again))
    return count, found


if __name__ == "__main__":
    sys.exit(long_run.run(share, long_run.parser(__doc__.splitlines()[0], cases=1000).parse_args()))
