"""Sessions over HTTP: every operation gives the tokens that an uninterrupted session would have."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
import torch

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from linnet.generate import Sampling, Session
from linnet.serve.limits import Limits
from linnet.serve.record import Part, passages, truncate
from linnet.serve.start import Options

from .serving import Server, serving

LONG = "It was the best of times. " * 20
MODEL = "linnet-moby-dick"


def create(server: Server, **body: Any) -> str:
    return str(server.post("/v1/sessions", body)["id"])


def generated(server: Server, id: str, count: int = 30, seed: int = 1, **how: Any) -> list[int]:
    done = server.post(f"/v1/sessions/{id}/generate", {"max_tokens": count, "seed": seed} | how)
    return [entry["token"] for entry in done["tokens"]]


def scored(server: Server, id: str, count: int, seed: int) -> list[tuple[int, float]]:
    """Generate; return each token with its log-probability, which shows a difference in the last bit."""
    done = server.post(f"/v1/sessions/{id}/generate", {"max_tokens": count, "seed": seed, "logprobs": True})
    return [(entry["token"], entry["logprob"]) for entry in done["tokens"]]


def tokens(server: Server, id: str) -> list[int]:
    return [entry["token"] for entry in server.get(f"/v1/sessions/{id}/tokens")["data"]]


def forget_prefixes(server: Server) -> None:
    """Drop all prefix states, so that a rollback has to read again."""
    worker, done = server.service.worker, threading.Event()
    worker.post(lambda: (worker.prefixes.clear(), done.set())[0])
    assert done.wait(30)


def events(response: Any) -> list[tuple[str, Any]]:
    """Return (name, value) of the events of a stream."""
    with response:
        blocks = response.read().decode().split("\n\n")
    parsed = []
    for block in filter(None, blocks):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        parsed.append(
            (lines.get("event", ""), lines["data"] if lines["data"] == "[DONE]" else json.loads(lines["data"]))
        )
    return parsed


def test_a_session_is_what_the_contract_says(server: Server) -> None:
    session = server.post("/v1/sessions", {"text": "Call me", "metadata": {"title": "first"}})
    assert session["state_bytes"] == 4864
    assert session["softmax_bytes"] == 7 * 2 * 2 * 64 * 4
    assert (session["tokens"], session["first"], session["parent"]) == (7, 0, None)
    assert server.get(f"/v1/sessions/{session['id']}") == session
    assert server.post(f"/v1/sessions/{session['id']}/append", {"tokens": [32, 73]})["tokens"] == 9
    listed = server.get("/v1/sessions?limit=1")
    assert (listed["data"][0]["id"], listed["has_more"]) == (session["id"], listed["has_more"])
    assert listed["data"][0]["metadata"] == {"title": "first"}
    status, gone = server.send("DELETE", f"/v1/sessions/{session['id']}")
    assert (status, gone) == (200, {"id": session["id"], "object": "session.deleted", "deleted": True})
    server.get(f"/v1/sessions/{session['id']}", 404)


def test_tokens_have_positions_and_texts(server: Server) -> None:
    id = create(server, text="é!")
    generated(server, id, 4)
    page = server.get(f"/v1/sessions/{id}/tokens")
    assert [entry["position"] for entry in page["data"]] == list(range(7))
    assert [entry["text"] for entry in page["data"]][:3] == ["", "é", "!"]
    assert [entry["sampled"] for entry in page["data"]] == [False] * 3 + [True] * 4
    part = server.get(f"/v1/sessions/{id}/tokens?start=1&end=3")
    assert part["data"] == page["data"][1:3]
    assert (part["start"], part["end"], part["total"]) == (1, 3, 7)
    server.get(f"/v1/sessions/{id}/tokens?start=x", 400)


def test_the_stream_of_a_generation(server: Server) -> None:
    id = create(server, text="Call me")
    stream = events(server.open("POST", f"/v1/sessions/{id}/generate", {"max_tokens": 5, "seed": 2, "stream": True}))
    assert [name for name, _ in stream] == ["start", *["token"] * 5, "done", ""]
    assert stream[0][1] == {"session": id, "start": 7, "seed": 2, "tokens": 7}
    sent = [value for name, value in stream if name == "token"]
    assert [value["position"] for value in sent] == [7, 8, 9, 10, 11]
    done = stream[-2][1]
    assert "".join(value["text"] for value in sent) == done["text"]
    assert (done["finish_reason"], done["session"]["tokens"]) == ("length", 12)
    assert stream[-1][1] == "[DONE]"
    assert tokens(server, id)[7:] == [value["token"] for value in sent]


@pytest.mark.parametrize("cached", [True, False])
def test_rolling_back_and_forking_give_the_same_tokens_again(server: Server, cached: bool) -> None:
    """At places inside a prompt, at its end, inside generated text, with and without prefix states."""
    id = create(server, text=LONG)
    first = scored(server, id, 150, 3)
    server.post(f"/v1/sessions/{id}/append", {"text": " And then "})
    second = scored(server, id, 40, 4)
    whole, middle = [*LONG, *first, *" And then ", *second], len(LONG) + 150 + 10
    assert tokens(server, id) == [x[0] if isinstance(x, tuple) else ord(x) for x in whole]
    for at, seed, end in ((middle + 7, 4, len(whole)), (len(LONG) + 101, 3, middle - 10), (len(LONG), 3, middle - 10)):
        if not cached:
            forget_prefixes(server)
        (fork,) = server.post(f"/v1/sessions/{id}/fork", {"at": at})["data"]
        assert (fork["tokens"], fork["parent"]) == (at, {"session": id, "at": at})
        assert scored(server, fork["id"], end - at, seed) == whole[at:end]
    back = create(server, fork={"session": id})
    server.post(f"/v1/sessions/{back}/rollback", {"tokens": 33})
    assert scored(server, back, 33, 4) == second[-33:]
    inside = server.post(f"/v1/sessions/{back}/rollback", {"to": 300})
    assert inside["tokens"] == 300
    again = create(server, text=LONG[:300])
    assert generated(server, back, 10) == generated(server, again, 10)


def test_an_edit_replaces_the_end(server: Server) -> None:
    edited, wanted = create(server, text=LONG + "wrong"), create(server, text=LONG)
    view = server.post(f"/v1/sessions/{edited}/edit", {"remove": 5, "text": "right"})
    server.post(f"/v1/sessions/{wanted}/append", {"text": "right"})
    assert view["tokens"] == len(LONG) + 5
    assert generated(server, edited) == generated(server, wanted)
    assert server.post(f"/v1/sessions/{edited}/edit", {"remove": view["tokens"] + 30})["tokens"] == 0
    server.post(f"/v1/sessions/{edited}/generate", {"max_tokens": 1}, 400)


def test_a_thousand_forks_read_their_prefix_once(server: Server) -> None:
    id = create(server, text=LONG)
    before = server.metric("linnet_prompt_tokens_read")
    forks = server.post(f"/v1/sessions/{id}/fork", {"count": 1000})["data"]
    assert len({fork["id"] for fork in forks}) == 1000
    texts = {tuple(generated(server, fork["id"], 4, seed)) for seed, fork in enumerate(forks[:20])}
    assert len(texts) > 10
    assert server.metric("linnet_prompt_tokens_read") == before


def test_a_state_file_continues_on_the_server_and_in_the_library(server: Server, tmp_path: Any) -> None:
    id = create(server, text=LONG)
    generated(server, id, 20)
    with server.open("GET", f"/v1/sessions/{id}/state") as response:
        data = response.read()
    wanted = generated(server, id, 25, seed=8)
    status, session = server.send("POST", "/v1/sessions", data, {"Content-Type": "application/octet-stream"})
    assert (status, session["tokens"], session["first"]) == (201, len(LONG) + 20, 0)
    assert generated(server, session["id"], 25, seed=8) == wanted
    assert tokens(server, session["id"]) == tokens(server, id)
    server.post(f"/v1/sessions/{session['id']}/rollback", {"tokens": 25})
    assert generated(server, session["id"], 25, seed=8) == wanted
    worker, path = server.service.worker, tmp_path / "talk.state"
    path.write_bytes(data)
    with Session.load(path, worker.model, server.service.tokenizer) as local:
        assert [local.sample(Sampling(temperature=0)) for _ in range(25)] == generated(
            server, create(server, fork={"session": id, "at": len(LONG) + 20}), 25, temperature=0
        )


def test_an_uploaded_state_without_history_starts_where_it_is(server: Server, tmp_path: Any) -> None:
    worker = server.service.worker
    state = worker.model.read(torch.tensor([[1, 2, 3]]))[1]
    state.save(tmp_path / "x.state", model=worker.model, tokenizer=server.service.tokenizer)
    data = (tmp_path / "x.state").read_bytes()
    status, session = server.send("POST", "/v1/sessions", data, {"Content-Type": "application/octet-stream"})
    assert (status, session["tokens"], session["first"]) == (201, 3, 3)
    server.post(f"/v1/sessions/{session['id']}/generate", {"max_tokens": 1}, 400)
    wanted = generated(server, session["id"], 20, text="ab")
    refused = server.post(f"/v1/sessions/{session['id']}/rollback", {"to": 2}, 400)
    assert "accepted: 3 to 25" in refused["error"]["message"]
    server.post(f"/v1/sessions/{session['id']}/rollback", {"to": 3})
    assert generated(server, session["id"], 20, text="ab") == wanted


def test_hostile_state_files_are_refused(server: Server) -> None:
    id = create(server, text="Call me")
    with server.open("GET", f"/v1/sessions/{id}/state") as response:
        data = response.read()
    octets = {"Content-Type": "application/octet-stream"}
    middle = len(data) // 2
    damaged = [b"", b"x", data[:-1], data[:middle], data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]]
    foreign = data.replace(server.service.worker.model.fingerprint().encode(), b"0" * 8)
    for wrong in (*damaged, foreign, b"\xff" * 100):
        status, value = server.send("POST", "/v1/sessions", wrong, octets)
        assert status == 400, value
        assert value["error"]["type"] == "invalid_request_error"
        assert "/tmp" not in value["error"]["message"]


def test_a_session_in_use_is_refused_and_a_gone_client_stops_it(server: Server) -> None:
    id = create(server, text="Call me")
    response = server.open("POST", f"/v1/sessions/{id}/generate", {"max_tokens": 4096, "stream": True, "seed": 1})
    response.read(200)
    busy = server.post(f"/v1/sessions/{id}/append", {"text": "x"}, 409)
    assert busy["error"]["type"] == "conflict_error"
    assert server.get(f"/v1/sessions/{id}")["tokens"] > 7
    response.close()
    for _ in range(500):
        status, session = server.send("POST", f"/v1/sessions/{id}/append", {"text": "x"})
        if status == 200:
            break
        time.sleep(0.01)
    assert session["tokens"] < 4096
    wanted = create(server, text="Call me")
    assert tokens(server, id)[:-1] == tokens(server, wanted) + generated(server, wanted, session["tokens"] - 8)


def test_limits_of_sessions_and_idle_time() -> None:
    limits = Limits(sessions_per_key=2, idle=0, stop_seconds=1.0, responses_per_key=2)
    with serving(Options(limits=limits)) as server:
        ids = [create(server, text="ab") for _ in range(2)]
        status, value = server.send("POST", "/v1/sessions", {})
        assert (status, value["error"]["code"]) == (429, "too_many_sessions")
        responses = [
            server.post("/v1/responses", {"model": MODEL, "input": "x", "max_output_tokens": 1})["id"] for _ in range(3)
        ]
        kept = [server.send("GET", f"/v1/responses/{id}")[0] for id in responses]
        worker = server.service.worker
        assert asyncio.run(_expired(server)) >= 1
        assert worker.store.count("") <= 3
        server.get(f"/v1/sessions/{ids[0]}", 404)
        assert kept[0] == 404


async def _expired(server: Server) -> int:
    await asyncio.sleep(0.01)
    return await server.service.worker.call(server.service.worker.sessions.expire)


def test_how_parts_are_read() -> None:
    """All but the last token of the session; the first token of a part belongs to how the one after it was read."""
    parts = [Part(0, [1, 2, 3], False), Part(3, [4, 5], True), Part(5, [6, 7, 8], False)]
    assert [(list(x), sampled) for x, sampled in passages(parts, 0, 8)] == [
        ([1, 2], False),
        ([3, 4], True),
        ([5, 6, 7], False),
    ]
    assert [list(x) for x, _ in passages(parts, 3, 8)] == [[4], [5, 6, 7]]
    assert passages(parts, 7, 8) == ()
    assert truncate(parts, 4) == [parts[0], Part(3, [4], True)]
    assert [list(x) for x, _ in passages(truncate(parts, 4), 0, 4)] == [[1, 2], [3]]


def test_sessions_are_listed_in_pages() -> None:
    with serving() as server:
        ids = [create(server, text="ab") for _ in range(5)][::-1]
        pages = [server.get("/v1/sessions?limit=2")]
        while pages[-1]["has_more"]:
            pages.append(server.get(f"/v1/sessions?limit=2&after={pages[-1]['data'][-1]['id']}"))
        assert [[session["id"] for session in page["data"]] for page in pages] == [ids[:2], ids[2:4], ids[4:]]
        server.get("/v1/sessions?after=sess_nothing", 404)
