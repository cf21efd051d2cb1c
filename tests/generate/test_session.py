"""Session: its logits are those of the model; rollbacks are exact, forks independent, and files continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from linnet.data import ByteTokenizer, Tokenizer
from linnet.errors import StateError
from linnet.generate import Engine, Sampling, Session
from linnet.generate import session as session_file
from linnet.models import LanguageModel, ModelConfig, ModelState, build
from tests.generate.engines import KINDS, LENGTH, TOLERANCE, VOCAB, close, everywhere, language, opened, tokens, unsplit

EXACT = TOLERANCE[torch.float64]
TEXT = "Call me Ishmael. Some years ago"


def session(kind: str = "elu", **how: Any) -> Session:
    model = language(kind)
    return Session(model, engine=opened(model, "torch"), **how)


@pytest.fixture(scope="module")
def bytes_model() -> LanguageModel:
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, n_layers=2, n_heads=2, mixer=("conv", "elu"), init_std=0.2, positions="rotary")
    model = build(config).double().eval().requires_grad_(False)
    assert isinstance(model, LanguageModel)
    return model


def agrees_with_the_model(s: Session) -> bool:
    """Check the logits of a session; return whether its state has as many tokens."""
    assert s.logits is not None
    assert_close(s.logits, unsplit(s.model, s.tokens)[-1], **close("rebased", s.logits.dtype))
    return s.state.position.tolist() == [len(s.tokens)]


@everywhere
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("keep", "every"), [(0, 1), (4, 1), (2, 5)])
def test_feeding_equals_the_unsplit_model(
    kind: str, keep: int, every: int, backend: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_file, "READ", 6)
    model = language(kind, dtype)
    s = Session(model, engine=opened(model, backend), keep=keep, every=every)
    x, near = tokens(23), close(kind, dtype)
    wanted = unsplit(model, x)
    for start, stop in ((0, 1), (1, 9), (9, 10), (10, 23)):
        assert_close(s.feed(x[start:stop].tolist() if start else x[:stop]), wanted[stop - 1], **near)
    assert s.tokens == x.tolist()
    assert len(s._kept) <= keep


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollback_is_exact_to_the_last_bit(kind: str) -> None:
    s = session(kind, keep=5)
    s.feed(tokens(4))
    places = []
    for token in tokens(5, 1).tolist():
        places.append((s.tokens, s.logits, s.state))
        s.feed([token])
    for i in reversed(range(5)):
        s.rollback(1) if i % 2 else s.replace(1, [3])
        if not i % 2:
            s.rollback(1)
        seen, logits, state = places[i]
        assert s.tokens == seen
        assert logits is not None
        assert torch.equal(s.logits, logits)
        for x, y in zip(s.state.layers, state.layers, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(x, y, strict=True) if a is not None)


@pytest.mark.parametrize(("keep", "every", "read", "reach"), [(3, 1, 9, 3), (3, 1, 2, 2), (2, 4, 9, 5), (2, 4, 8, 8)])
def test_how_far_back(keep: int, every: int, read: int, reach: int) -> None:
    for n in range(reach + 1):
        s = session(keep=keep, every=every)
        s.feed(tokens(read))
        s.rollback(n)
        assert s.tokens == tokens(read)[: read - n].tolist()
        if s.tokens:
            assert agrees_with_the_model(s)
        else:
            assert s.logits is None
        s.feed(tokens(3, 5))
        assert agrees_with_the_model(s)
    s = session(keep=keep, every=every)
    s.feed(tokens(read))
    for n in (reach + 1, -1, 1.0, True):
        with pytest.raises(StateError, match=rf"cannot roll back {n!r} tokens; accepted here: 0 to {reach} \(keep is"):
            s.rollback(n)  # type: ignore[arg-type]
    assert s.tokens == tokens(read).tolist()
    assert agrees_with_the_model(s)


def test_no_states_are_kept_unless_asked() -> None:
    s = session()
    s.feed(tokens(4))
    with pytest.raises(StateError, match=r"accepted here: 0 to 0 \(keep is 0, every is 1\); use a larger keep"):
        s.rollback(1)
    s.rollback(0)
    assert len(s.tokens) == 4


def test_a_rollback_never_goes_back_before_where_a_session_began() -> None:
    first = session()
    first.feed(tokens(4))
    s = Session(first.model, engine=first.engine, keep=9, state=first.state)
    s.feed(tokens(2, 1))
    with pytest.raises(StateError, match="accepted here: 0 to 2"):
        s.rollback(3)
    s.rollback(2)
    assert s.tokens == []
    s.feed([5])
    assert_close(s.logits, unsplit(s.model, [*tokens(4).tolist(), 5])[-1], **EXACT)


@everywhere
def test_a_hundred_continuations_of_one_prompt(backend: str, dtype: torch.dtype) -> None:
    kind = "grouped elu and softmax"
    model = language(kind, dtype)
    engine = opened(model, backend)
    with Session(model, engine=engine) as prompt:
        prompt.feed(tokens(20))
        branches = prompt.fork(100)
    ways = [tokens(1 + i % 4, i) for i in range(100)]
    for branch, way in zip(branches, ways, strict=True):  # different continuations, one after another
        branch.feed(way)
    for branch, way in zip(branches, ways, strict=True):
        whole = torch.cat([tokens(20), way])
        assert branch.tokens == whole.tolist()
        assert_close(branch.logits, unsplit(model, whole)[-1], **close(kind, dtype))
        branch.close()
    assert engine.rows == []


def test_forks_are_independent() -> None:
    s = session("conv, window and rebased", keep=3)
    s.feed(tokens(6))
    (other,) = s.fork()
    s.feed([1, 2])
    other.rollback(2)
    other.feed([3, 4, 5])
    assert (len(s.tokens), len(other.tokens)) == (8, 7)
    assert agrees_with_the_model(s)
    assert agrees_with_the_model(other)
    s.rollback(3)
    other.replace(1, [9])
    assert s.tokens == tokens(6)[:5].tolist()
    assert agrees_with_the_model(s)
    assert agrees_with_the_model(other)


def test_sampling_reads_what_it_chose_and_repeats_itself() -> None:
    s = session(keep=8)
    s.feed(tokens(3))
    how = Sampling(temperature=0.9, seed=4)
    first = [s.sample(how) for _ in range(6)]
    assert s.tokens == tokens(3).tolist() + first
    assert agrees_with_the_model(s)
    s.rollback(6)
    assert [s.sample(how) for _ in range(6)] == first
    s.rollback(6)
    assert [s.sample(Sampling(temperature=0.9, seed=5)) for _ in range(6)] != first
    logits = s.logits
    assert logits is not None
    assert s.sample(Sampling(temperature=0)) == int(logits.argmax())


def test_the_repetition_penalty_knows_every_token() -> None:
    s = session()
    logits = s.feed(tokens(8, 3))
    seen = torch.zeros(VOCAB, dtype=torch.bool).scatter(0, tokens(8, 3), True)
    penalised = torch.where(seen, torch.where(logits > 0, logits / 9, logits * 9), logits)
    assert int(penalised.argmax()) != int(logits.argmax())
    assert s.sample(Sampling(temperature=0, repetition_penalty=9.0)) == int(penalised.argmax())


def test_nothing_to_sample_from() -> None:
    with pytest.raises(StateError, match="no logits to sample from: no token was read yet; feed one or more first"):
        session().sample()


def test_text_in_and_out(bytes_model: LanguageModel) -> None:
    with Session(bytes_model, tokenizer=ByteTokenizer(), keep=8) as s:
        s.feed(TEXT)
        assert s.text == TEXT
        s.replace(3, "before")
        assert s.text == TEXT[:-3] + "before"
        assert_close(s.logits, unsplit(bytes_model, s.tokens)[-1], **EXACT)


class Begun(ByteTokenizer):
    prefix = (1,)


def test_what_stands_before_every_prompt_is_put_there_once(bytes_model: LanguageModel) -> None:
    s = Session(bytes_model, tokenizer=Begun(), keep=9)
    s.feed("ab")
    s.feed("c")
    assert s.tokens == [1, *b"abc"]
    s.replace(4, "x")
    assert s.tokens == [1, *b"x"]
    s.replace(1, "y")
    assert s.tokens == [1, *b"y"]
    t = Session(bytes_model, tokenizer=Begun(), state=s.state)
    t.feed("z")
    assert t.tokens == [*b"z"]


def test_a_session_goes_on_from_its_file(bytes_model: LanguageModel, tmp_path: Path) -> None:
    path, how = tmp_path / "a.state", Sampling(seed=1)
    s = Session(bytes_model, tokenizer=ByteTokenizer())
    s.feed(TEXT)
    s.save(path)
    wanted = [s.sample(how) for _ in range(8)]
    again = Session.load(path, bytes_model, ByteTokenizer(), keep=2)
    assert again.text == TEXT
    assert [again.sample(how) for _ in range(8)] == wanted
    again.rollback(2)
    assert again.tokens == s.tokens[:-2]
    torch.manual_seed(1)
    with pytest.raises(StateError, match=r"a\.state: fingerprint of the weights is"):
        Session.load(path, build(bytes_model.config).double())
    with pytest.raises(StateError, match=r"tokenizer is '\w+' in the file, 'another' is wanted"):
        Session.load(path, bytes_model, Other())


class Other(ByteTokenizer):
    fingerprint = "another"  # type: ignore[assignment]


def test_a_file_of_a_state_alone_begins_a_session(bytes_model: LanguageModel, tmp_path: Path) -> None:
    s = Session(bytes_model)
    s.feed(tokens(5))
    s.state.save(tmp_path / "a.state", model=bytes_model)
    t = Session.load(tmp_path / "a.state", bytes_model)
    assert (t.tokens, t.logits) == ([], None)
    t.feed([7])
    s.feed([7])
    assert t.sample(Sampling(seed=2)) == s.sample(Sampling(seed=2))
    t.save(tmp_path / "b.state")  # without the tokens, which are unknown
    assert Session.load(tmp_path / "b.state", bytes_model).tokens == []
    assert_close(t.logits, unsplit(bytes_model, s.tokens)[-1], **EXACT)


def unchanged(s: Session, seen: list[int]) -> None:
    assert s.tokens == seen
    assert agrees_with_the_model(s)
    s.rollback(2)  # the states kept are still those of these tokens
    assert agrees_with_the_model(s)


@pytest.mark.parametrize("call", ["feed", "replace"])
def test_what_fails_changes_nothing(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "READ", 50)
    s = session("rebased", keep=3)
    s.feed(tokens(9))
    do = s.feed if call == "feed" else (lambda given: s.replace(2, given))
    for bad, message in (
        ([1, VOCAB], f"token {VOCAB} at"),
        ([], "accepted: 1 or more"),
        ([[1]], r"shape \[1, 1\]"),
        ([0.5], "float32"),
        ("text", "text needs a tokenizer; open the session with tokenizer="),
        (tokens(LENGTH), "learned positions"),  # in the last piece of several
    ):
        with pytest.raises(ValueError, match=message):
            do(bad)
        assert s.tokens == tokens(9).tolist()
    unchanged(s, tokens(9).tolist())


def test_an_interrupt_in_the_middle_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    s = session(keep=3)
    s.feed(tokens(9))
    read, steps = type(s.engine).step, 0

    def interrupted(engine: Engine, *given: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 2:
            raise KeyboardInterrupt
        return read(engine, *given)

    with monkeypatch.context() as patch:
        patch.setattr(type(s.engine), "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            s.feed(tokens(8, 1))
    unchanged(s, tokens(9).tolist())


def test_closed_sessions_leave_the_engine_and_say_so() -> None:
    s = session()
    s.feed(tokens(3))
    (other,) = s.fork()
    with s:
        pass
    s.close()
    assert s.engine.rows == [1]
    for call in (lambda: s.feed([1]), lambda: s.fork(), lambda: s.state, lambda: s.sample()):
        with pytest.raises(StateError, match="this session is closed; open another"):
            call()
    other.feed([1])
    assert agrees_with_the_model(other)


def test_sessions_share_an_engine() -> None:
    model = language("softmax")
    engine = opened(model, "torch")
    a, b = Session(model, engine=engine), Session(model, engine=engine)
    a.feed(tokens(3, 1))
    b.feed(tokens(5, 2))
    a.feed(tokens(2, 3))
    assert engine.rows == [0, 1]
    assert agrees_with_the_model(a)
    assert agrees_with_the_model(b)


def bad_options() -> list[tuple[dict[str, Any], str]]:
    two: ModelState = language("elu").backbone.empty_state(2)
    tokenizer: Tokenizer = ByteTokenizer()
    return [
        ({"keep": -1}, "keep is -1; accepted: a whole number, 0 or more"),
        ({"every": 0}, "every is 0; accepted: a whole number, 1 or more"),
        ({"tokenizer": tokenizer}, f"the tokenizer has 256 tokens, the model {VOCAB}"),
        ({"engine": opened(language("conv"), "torch")}, "the engine runs another model"),
        ({"state": two}, r"the state has 2 rows; accepted: one; use state\.select"),
    ]


@pytest.mark.parametrize("case", range(5))
def test_options_that_do_not_fit_are_refused(case: int) -> None:
    options, message = bad_options()[case]
    with pytest.raises(ValueError, match=message):
        Session(language("elu"), **options)


def test_only_language_models_have_sessions() -> None:
    model: Any = build(ModelConfig(task="image", d_model=16, n_layers=1, n_heads=2))
    with pytest.raises(ValueError, match="a session cannot run a ImageModel; accepted: a language model"):
        Session(model)
