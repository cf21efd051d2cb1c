"""Nothing that a client has received is lost: a dead worker, kill -9 of a real server, and replicas on one Redis."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from linnet.serve.limits import Limits
from linnet.serve.start import Options, build

from .serving import Server, serving

PATIENCE = 60  # seconds
MANY = 100


def read_tokens(response: Any, count: int) -> list[dict[str, Any]]:
    """Return the first tokens of a stream, as a client would have seen them."""
    seen: list[dict[str, Any]] = []
    while len(seen) < count:
        line = response.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: {") and b'"position"' in line:
            seen.append(json.loads(line[6:]))
    return seen


def start_generation(server: Server, id: str, seed: int, count: int = 4000) -> Any:
    return server.open("POST", f"/v1/sessions/{id}/generate", {"max_tokens": count, "seed": seed, "stream": True})


def known(server: Server, id: str) -> list[int]:
    tokens: list[int] = []
    total = 1
    while len(tokens) < total:
        page = server.get(f"/v1/sessions/{id}/tokens?start={len(tokens)}")
        tokens += [entry["token"] for entry in page["data"]]
        total = page["total"]
    return tokens


def uninterrupted(server: Server, text: str, seed: int, count: int) -> list[int]:
    """Return the tokens of a session that nothing happened to."""
    id = server.post("/v1/sessions", {"text": text})["id"]
    server.post(f"/v1/sessions/{id}/generate", {"max_tokens": count, "seed": seed})
    return known(server, id)


def test_a_dead_worker_leaves_every_token_that_was_sent(tmp_path: Path) -> None:
    """The journal of an unfinished generation counts, and the same seed continues as if nothing had happened."""
    options = Options(store=f"sqlite:{tmp_path / 'sessions.db'}", limits=Limits(stop_seconds=0.1))

    def die() -> None:
        raise KeyboardInterrupt("the test kills the worker")

    with serving(options, dies=True) as server:
        id = server.post("/v1/sessions", {"text": "Call me "})["id"]
        sealed = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "state": ""})["state"]
        stream = start_generation(server, id, 3)
        seen = read_tokens(stream, 40)
        server.service.worker.post(die)
        server.service.worker._thread.join(30)
        assert server.send("GET", "/health")[0] == 503
        stream.close()
    with serving(options) as server:
        kept = known(server, id)
        assert [kept[value["position"]] for value in seen] == [value["token"] for value in seen]
        server.post(f"/v1/sessions/{id}/generate", {"max_tokens": 30, "seed": 3})
        assert known(server, id) == uninterrupted(server, "Call me ", 3, len(kept) - 8 + 30)
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "state": sealed})["choices"]
        with pytest.raises(ValueError, match="another server uses it"):
            build(options)


def test_a_store_of_another_model_is_refused(tmp_path: Path) -> None:
    path = f"sqlite:{tmp_path / 'sessions.db'}"
    with serving(Options(store=path)) as server:
        server.service.worker.post(lambda: server.service.worker.store.write({"server/model": b"another"}))
    with pytest.raises(ValueError, match="sessions of another model"):
        build(Options(store=path))
    for address, words in (("file:x", "accepted: sqlite:PATH"), (f"sqlite:{tmp_path}/no/x.db", "there is no folder")):
        with pytest.raises(ValueError, match=words):
            build(Options(store=address))
    (tmp_path / "not.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ValueError, match="cannot be opened"):
        build(Options(store=f"sqlite:{tmp_path / 'not.db'}"))


@contextmanager
def process(store: str, *more: str) -> Iterator[tuple[Server, subprocess.Popen[str]]]:
    """Run `linnet serve` as a process; kill it at the end if it still runs."""
    command = [sys.executable, "-m", "linnet", "serve", "--port", "0", "--store", store, *more]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert port, line
        server = Server(int(port[1]), None)  # type: ignore[arg-type]
        wait_until(lambda: _answers(server))
        yield server, running
    finally:
        running.kill()
        running.wait(PATIENCE)
        assert running.stdout is not None
        running.stdout.close()


def _answers(server: Server) -> bool:
    try:
        return server.send("GET", "/ready")[0] == 200
    except OSError:
        return False


def wait_until(holds: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [2, pytest.param(MANY, marks=pytest.mark.long)])
def test_kill_9(tmp_path: Path, rounds: int) -> None:
    """Round after round: the tokens that a client received are there, and continue as they would have."""
    store, kept, id = f"sqlite:{tmp_path / 'sessions.db'}", [], ""
    for i in range(rounds):
        with process(store) as (server, running):
            if not id:
                id = server.post("/v1/sessions", {"text": "Call me "})["id"]
            now = known(server, id)
            assert now[: len(kept)] == kept
            stream = start_generation(server, id, 3)
            seen = read_tokens(stream, 5 + 7 * i % 50)
            running.send_signal(signal.SIGKILL)
            running.wait(PATIENCE)
            stream.close()
            kept = now + [value["token"] for value in seen]
    with process(store) as (server, running):
        now = known(server, id)
        assert now[: len(kept)] == kept
        begin = uninterrupted(server, "Call me ", 3, min(4000, len(now) - 8))
        assert now[: len(begin)] == begin
        stream = start_generation(server, id, 3, 200)
        read_tokens(stream, 1)
        running.send_signal(signal.SIGTERM)
        with stream:
            assert b"event: done" in stream.read()  # a graceful stop lets it finish
        running.wait(PATIENCE)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Redis of this test, on a free port."""
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server; on Debian: apt-get install redis-server")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(port))
        yield f"redis://127.0.0.1:{port}/0", running
    finally:
        running.kill()
        running.wait(PATIENCE)


@pytest.fixture
def redis_address(redis_server: tuple[str, subprocess.Popen[bytes]]) -> str:
    return redis_server[0]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_replicas_share_sessions(redis_address: str) -> None:
    """Begun on one, continued on another; forks, rollbacks, seals, deletion and expiry too."""
    options = Options(store=redis_address, limits=Limits(stop_seconds=0.1))
    with serving(options) as one, serving(options) as two:
        id = one.post("/v1/sessions", {"text": "Call me " * 50})["id"]
        one.post(f"/v1/sessions/{id}/generate", {"max_tokens": 70, "seed": 3})
        two.post(f"/v1/sessions/{id}/generate", {"max_tokens": 30, "seed": 3})
        wanted = uninterrupted(one, "Call me " * 50, 3, 100)
        assert known(one, id) == known(two, id) == wanted
        two.post(f"/v1/sessions/{id}/rollback", {"tokens": 50})
        one.post(f"/v1/sessions/{id}/generate", {"max_tokens": 50, "seed": 3})
        assert known(two, id) == wanted
        (fork,) = two.post(f"/v1/sessions/{id}/fork", {"at": 420})["data"]
        assert known(one, fork["id"]) == wanted[:420]
        sealed = one.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "state": ""})["state"]
        two.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "state": sealed})
        stream = start_generation(one, id, 5)
        read_tokens(stream, 3)
        assert two.send("POST", f"/v1/sessions/{id}/append", {"text": "x"})[0] == 409
        stream.close()
        wait_until(lambda: two.send("POST", f"/v1/sessions/{id}/append", {"text": "x"})[0] == 200)
        assert {session["id"] for session in two.get("/v1/sessions")["data"]} >= {id, fork["id"]}
        assert two.send("DELETE", f"/v1/sessions/{id}")[0] == 200
        one.get(f"/v1/sessions/{id}", 404)


@pytest.mark.slow
def test_a_replica_takes_over_from_a_killed_one(redis_address: str) -> None:
    with serving(Options(store=redis_address, limits=Limits(stop_seconds=0.1))) as two:
        with process(redis_address) as (one, running):
            id = one.post("/v1/sessions", {"text": "Call me "})["id"]
            seen = read_tokens(start_generation(one, id, 3), 30)
            running.send_signal(signal.SIGKILL)
            running.wait(PATIENCE)
        kept = known(two, id)
        assert kept[8:38] == [value["token"] for value in seen]
        body = {"max_tokens": 20, "seed": 3}
        wait_until(lambda: two.send("POST", f"/v1/sessions/{id}/generate", body)[0] == 200)  # when the lease has ended
        assert known(two, id) == uninterrupted(two, "Call me ", 3, len(kept) - 8 + 20)


@pytest.mark.slow
def test_a_redis_that_goes_away(redis_server: tuple[str, subprocess.Popen[bytes]]) -> None:
    """Sessions fail with 503, also a running one; what needs no session is answered, and the server lives."""
    address, running = redis_server
    with serving(Options(store=address, limits=Limits(stop_seconds=0.1))) as server:
        id = server.post("/v1/sessions", {"text": "Call me "})["id"]
        stream = start_generation(server, id, 3)
        read_tokens(stream, 3)
        running.kill()
        running.wait(PATIENCE)
        with stream:
            assert b"the store of sessions failed" in stream.read()
        status, value = server.send("POST", f"/v1/sessions/{id}/append", {"text": "x"})
        assert (status, value["error"]["code"]) == (503, "store_error")
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})["choices"]
        assert server.get("/health") == {"status": "ok"}


@pytest.mark.slow
def test_nginx_as_the_guide_has_it(redis_address: str, tmp_path: Path) -> None:
    """A conversation alternates between two replicas, and events arrive one by one."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("there is no nginx; on Debian: apt-get install nginx")
    text = (Path(__file__).parents[2] / "docs" / "guide" / "serve.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```text\n(upstream .*?)```", text, re.DOTALL)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    options = Options(store=redis_address, limits=Limits(stop_seconds=0.1))
    with serving(options) as one, serving(options) as two:
        for listed, here in (("8081", one.port), ("8082", two.port), ("listen 8080", f"listen 127.0.0.1:{port}")):
            assert listed in block
            block = block.replace(listed, str(here))
        temporary = " ".join(
            f"{name}_temp_path {tmp_path};" for name in ("proxy", "client_body", "fastcgi", "uwsgi", "scgi")
        )
        head = f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}"
        (tmp_path / "nginx.conf").write_text(f"{head} http {{ access_log off; {temporary} {block} }}")
        running = subprocess.Popen([program, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)], stderr=-3)
        try:
            wait_until(lambda: _listens(port))
            front = Server(port, one.service)
            id = front.post("/v1/sessions", {"text": "Call me "})["id"]
            for _ in range(6):
                front.post(f"/v1/sessions/{id}/generate", {"max_tokens": 10, "seed": 3})
            assert known(front, id) == uninterrupted(front, "Call me ", 3, 60)
            assert min(x.metric("linnet_sampled_tokens_total") for x in (one, two)) > 0
            stream = start_generation(front, id, 4)
            read_tokens(stream, 3)
            stream.close()
        finally:
            running.terminate()
            running.wait(PATIENCE)


def test_a_redis_that_does_not_answer_is_refused() -> None:
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    with pytest.raises(ValueError, match=r"redis://127\.0\.0\.1:1/0, which does not answer"):
        build(Options(store="redis://user:secret@127.0.0.1:1/0"))
