"""Prefix states and passages: a request that starts from a kept state gets the same tokens, and reads less."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from linnet.errors import ArgumentError, BackendError
from linnet.generate import Completion, Passage, Passages, PrefixStates, Request, Sampling, Scheduler, open_engine
from linnet.generate.prefixes import STEPS, cut, extend_key
from linnet.generate.sampling import Draws

from .engines import VOCAB, language, tokens

CHUNK = 8


def scheduler(prefixes: PrefixStates | None = None, **how: int) -> Scheduler:
    """Open a scheduler whose results have the same bits in any company, or skip where there is no native engine."""
    try:
        engine = open_engine(language("delta rules", torch.float32), backend="native", exact=False)
    except BackendError as error:
        pytest.skip(str(error))
    return Scheduler(engine, chunk=CHUNK, prefixes=prefixes, **how)


def run(scheduler: Scheduler, request: Request) -> Completion:
    (done,) = run_all(scheduler, [request])
    return done


def run_all(scheduler: Scheduler, requests: list[Request]) -> list[Completion]:
    ids, ended = [scheduler.add(request) for request in requests], {}
    for _ in range(10_000):
        for event in scheduler.step():
            if event.error is not None:
                raise event.error
            if event.completion is not None:
                ended[event.id] = event.completion
        if not scheduler.live:
            return [ended[id] for id in ids]
    raise AssertionError("requests are still running")


def request(sequence: list[int], max_tokens: int = 12, *, sampled: bool = False, **how: object) -> Request:
    *before, last = sequence
    how = {"sampling": Sampling(seed=5), "root": b"key", "logprobs": 2} | how
    return Request(prompt=Passages((Passage(before, sampled),), last), max_tokens=max_tokens, **how)  # type: ignore[arg-type]


def test_a_kept_state_changes_no_number_and_saves_the_reading() -> None:
    prefixes, first = PrefixStates(1 << 20), tokens(45).tolist()
    second = [*first[:30], *tokens(20, seed=1).tolist()]
    plain = [run(scheduler(), request(sequence)) for sequence in (first, second)]
    cached = scheduler(prefixes)
    kept = [run(cached, request(sequence)) for sequence in (first, second, second)]
    for done, wanted in zip(kept, [*plain, plain[1]], strict=True):
        assert (done.tokens, done.logprobs, done.top) == (wanted.tokens, wanted.logprobs, wanted.top)
        assert done.key == wanted.key
    assert [done.cached_tokens for done in kept] == [0, 24, 49]  # whole chunks of the shared 30; all that is read
    assert cached.read_tokens == 44 + 25
    assert cached.cached_tokens == 24 + 49


def test_roots_do_not_share_states() -> None:
    cached, sequence = scheduler(PrefixStates(1 << 20)), tokens(40).tolist()
    run(cached, request(sequence))
    assert run(cached, request(sequence, root=b"another key")).cached_tokens == 0
    assert run(cached, request(sequence, root=None)).cached_tokens == 0
    assert run(cached, request(sequence)).cached_tokens == 39


def test_requests_that_share_a_beginning_read_it_once() -> None:
    """While all of them are being read, with tails of their own."""
    cached, shared = scheduler(PrefixStates(1 << 20), max_rows=6), tokens(64).tolist()
    done = run_all(cached, [request([*shared, i, i + 1], max_tokens=2) for i in range(6)])
    assert cached.read_tokens == 64 + 6
    assert sum(x.cached_tokens for x in done) == 5 * 64


def test_sampled_tokens_are_replayed_as_they_were_stepped() -> None:
    """A continuation, a replay from the start and one from a state kept on the way give the same bits."""
    start = tokens(10).tolist()
    first = run(scheduler(), request(start, 100))
    past = Passages((Passage(start[:-1]), Passage([start[-1], *first.tokens[:79]], sampled=True)), first.tokens[79])
    replayed = run(
        scheduler(), Request(prompt=past, max_tokens=20, sampling=Sampling(seed=5), first_draw=80, root=b"key")
    )
    assert replayed.tokens == first.tokens[80:]
    assert replayed.key != first.key  # cut elsewhere
    cached = scheduler(PrefixStates(1 << 20))
    run(cached, request(start, 100))
    again = run(cached, Request(prompt=past, max_tokens=20, sampling=Sampling(seed=5), first_draw=80, root=b"key"))
    assert again.tokens == first.tokens[80:]
    assert again.cached_tokens == 9 + STEPS
    assert first.state is not None
    more = request([first.tokens[-1]], 20, state=first.state, root=first.key, first_draw=100)
    assert run(scheduler(), more).tokens == run(scheduler(), request(start, 120)).tokens[100:]


def test_reading_only_and_logits() -> None:
    """max_tokens 0 reads; logits replace the last token."""
    sequence = tokens(20).tolist()
    done = run(scheduler(), request(sequence, 0))
    assert (done.tokens, done.finish) == ([], "length")
    assert done.state is not None
    assert done.state.position.tolist() == [19]
    engine = open_engine(language("delta rules", torch.float32), exact=False)
    (row,) = engine.add(done.state)
    logits = engine.step(torch.tensor(sequence[-1:]), [row])[0].clone()
    after = Request(
        prompt=Passages((), None), state=engine.state([row]), logits=logits, max_tokens=9, sampling=Sampling(seed=5)
    )
    assert run(scheduler(), after).tokens == run(scheduler(), request(sequence, 9)).tokens
    with pytest.raises(ArgumentError, match="Passages with a last token, or logits"):
        scheduler().add(Request(prompt=Passages((), None)))


def test_log_probabilities_of_the_prompt() -> None:
    model, sequence = language("delta rules", torch.float32), tokens(20)
    done = run(scheduler(), request(sequence.tolist(), 0, prompt_logprobs=3))
    wanted = model(sequence[None])[0][0].log_softmax(-1)
    assert done.prompt_logprobs == pytest.approx(wanted[:-1].gather(-1, sequence[1:, None])[:, 0].tolist(), abs=1e-4)
    assert done.prompt_top is not None
    assert [[token for token, _ in top] for top in done.prompt_top] == wanted[:-1].topk(3).indices.tolist()


def test_the_least_recently_used_state_is_dropped() -> None:
    state = run(scheduler(), request([1, 2, 3], 0)).state
    assert state is not None
    prefixes = PrefixStates(2 * state.nbytes + 1)
    for key in (b"a", b"b"):
        prefixes.keep(key, state)
    assert prefixes.get(b"a") is state
    prefixes.keep(b"c", state)
    assert [key in prefixes for key in (b"a", b"b", b"c")] == [True, False, True]
    assert prefixes.nbytes == 2 * state.nbytes
    tiny = PrefixStates(state.nbytes - 1)
    tiny.keep(b"a", state)
    assert (len(tiny), tiny.nbytes) == (0, 0)


def test_pieces_are_cut_in_each_passage() -> None:
    pieces = cut((Passage(range(20)), Passage(range(100), sampled=True)), CHUNK, b"root")
    assert [len(piece.tokens) for piece in pieces] == [8, 8, 4, 64, 36]
    assert pieces[0].key == extend_key(b"root", range(8), False)
    assert pieces[-1].key == extend_key(pieces[-2].key, range(64, 100), True)
    assert len({piece.key for piece in pieces}) == 5
    assert extend_key(b"root", [1, 2], True) != extend_key(b"root", [1, 2], False)


def test_an_owner_with_many_requests_does_not_keep_others_waiting() -> None:
    queue = scheduler(max_rows=2, max_queued=20)
    ids = {queue.add(request([1, 2], 4, owner="many", root=None)): "many" for _ in range(8)}
    ids |= {queue.add(request([1, 2], 4, owner="few", root=None)): "few" for _ in range(2)}
    order = []
    for _ in range(1000):
        order += [ids[event.id] for event in queue.step() if event.completion is not None]
        if not queue.live:
            break
    assert order[:4].count("few") == 2  # the first two rows are one of each
    assert Counter(order) == {"many": 8, "few": 2}


@pytest.mark.parametrize("first", [0, 1, 4, 7, 1000])
def test_draws_may_begin_anywhere(first: int) -> None:
    whole, part = Draws(3, 2), Draws(3, 2, first)
    numbers = [whole.next() for _ in range(first + 6)]
    assert [part.next() for _ in range(6)] == numbers[first:]


def test_penalties_and_biases() -> None:
    """A bias forces or forbids a token; with a large penalty no token comes twice."""
    forced = run(scheduler(), request([1, 2], 5, sampling=Sampling(logit_bias=((7, 1e4),))))
    assert forced.tokens == [7] * 5
    for name in ("frequency_penalty", "presence_penalty"):
        done = run(scheduler(), request([1, 2], VOCAB, sampling=Sampling(seed=3, **{name: 1e4})))  # type: ignore[arg-type]
        assert sorted(done.tokens) == list(range(VOCAB))
    with pytest.raises(ArgumentError, match=f"logit_bias\\[0\\] is {VOCAB}"):
        scheduler().add(request([1], sampling=Sampling(logit_bias=((VOCAB, 1.0),))))
    with pytest.raises(ArgumentError, match="frequency_penalty is nan"):
        Sampling(frequency_penalty=float("nan"))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_requests_with_kept_states_get_what_they_get_alone(seed: int) -> None:
    """Shared beginnings, sampled passages, several owners, cancellations, and a budget that drops states."""
    rng = random.Random(seed)
    beginnings = [tokens(rng.randint(1, 60), seed=i).tolist() for i in range(4)]
    state = run(scheduler(), request([1, 2, 3], 0)).state
    assert state is not None
    cached = scheduler(PrefixStates(rng.randint(8, 20) * state.nbytes), max_rows=3, max_queued=100)

    def draw() -> Request:
        shared = rng.choice(beginnings)
        passages = [Passage(shared)]
        for i in range(rng.randint(0, 3)):
            passages.append(Passage(tokens(rng.randint(1, 90), seed=100 + i).tolist(), rng.random() < 0.5))
        return Request(
            prompt=Passages(tuple(passages), rng.randrange(VOCAB)),
            max_tokens=rng.randint(0, 80),
            sampling=Sampling(seed=rng.randrange(3), frequency_penalty=rng.choice([0.0, 0.5])),
            logprobs=rng.choice([None, 1]),
            root=rng.choice([None, b"one", b"two"]),
            owner=rng.choice(["one", "two"]),
            first_draw=rng.randrange(10),
        )

    requests: dict[int, Request] = {}
    ended: dict[int, Completion] = {}
    for _ in range(10_000):
        if len(requests) < 30 and rng.random() < 0.3:
            wanted = draw()
            requests[cached.add(wanted)] = wanted
        if requests and rng.random() < 0.02:
            cached.cancel(rng.choice(list(requests)))
        for event in cached.step():
            assert event.error is None
            if event.completion is not None:
                ended[event.id] = event.completion
        if len(requests) == 30 and not cached.live:
            break
    assert ended.keys() == requests.keys()
    assert cached.cached_tokens > 0
    for id, wanted in list(requests.items())[::3]:
        done, alone = ended[id], run(scheduler(), wanted)
        if done.finish == "interrupted":
            assert done.tokens == alone.tokens[: len(done.tokens)]
            continue
        assert (done.tokens, done.logprobs, done.top, done.key) == (alone.tokens, alone.logprobs, alone.top, alone.key)
        assert done.state is not None
        assert alone.state is not None
        for mine, other in zip(done.state.layers, alone.state.layers, strict=True):
            assert all(torch.equal(x, other.tensors[name]) for name, x in mine.tensors.items())
