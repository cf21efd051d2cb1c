"""Bad input and bad clients: each gets an error in OpenAI's format, and other streams are not disturbed."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from linnet.serve.keys import Keys, hash_key
from linnet.serve.limits import Limits
from linnet.serve.start import Options

from .serving import Server, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MODEL = "linnet-moby-dick"
DEEP = b'{"prompt":' + b"[" * 5000 + b"]" * 5000 + b"}"


def refused(server: Server, path: str, body: Any, status: int = 400, method: str = "POST") -> dict[str, Any]:
    """Return the error, which has OpenAI's format."""
    got, value = server.send(method, path, body)
    assert got == status, value
    assert set(value) == {"error"}
    assert set(value["error"]) == {"message", "type", "param", "code"}
    assert "Traceback" not in value["error"]["message"]
    return dict(value["error"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "is not JSON"),
        (b'{"prompt": "\xff"}', "is not JSON"),
        (b"[1]", "expected `object`"),
        (b'{"prompt": "a", "prompt": "b"}', "is not JSON"),
        (b'{"max_tokens": NaN}', "is not JSON"),
        (b'{"seed": 1e999}', "is not JSON"),
        (DEEP, "is not JSON"),
        (b'{"prompt": "\\ud800"}', "surrogate"),
        (b'{"prompt": "a", "max_tokens": "3"}', "expected `int | null`, got `str`"),
        (b'{"prompt": "a", "max_tokens": true}', "got `bool`"),
        (b'{"prompt": "a", "wizard": 1}', "unknown field 'wizard'"),
        (b'{"prompt": {"a": 1}}', "prompt has another type"),
        (b'{"prompt": [1, "a"]}', "prompt\\[1\\] is 'a'"),
        (b'{"prompt": [256]}', "prompt\\[0\\] is 256"),
        (b'{"prompt": [-1]}', "prompt\\[0\\] is -1"),
        (b'{"prompt": [[1], [1.5]]}', "1.5"),
        (b'{"prompt": "a", "temperature": -1}', "temperature is -1"),
        (b'{"prompt": "a", "top_p": 0}', "top_p is 0"),
        (b'{"prompt": "a", "stop": [""]}', "stop is ''"),
        (b'{"prompt": "a", "stop": ["0","1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g"]}', "is 17"),
        (b'{"prompt": "a", "n": 1000}', "n is 1000"),
        (b'{"prompt": "a", "logprobs": -1}', "logprobs is -1"),
        (b'{"prompt": "a", "frequency_penalty": 3}', "frequency_penalty is 3"),
        (b'{"prompt": "a", "seed": 18446744073709551616}', "is not JSON|seed is"),
        (b'{"prompt": "a", "session": "sess_x", "state": ""}', "session and state are both given"),
    ],
)  # fmt: skip
def test_a_bad_body_is_refused_with_the_reason(server: Server, body: bytes, words: str) -> None:
    import re

    message = refused(server, COMPLETIONS, body)["message"]
    assert re.search(words, message), message


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/sessions/../../etc/passwd", 404),
        ("GET", "/v1/sessions/%2e%2e%2fserver%2fsecret", 404),
        ("GET", "/v1/sessions/%00", 404),
        ("GET", "/v1/sessions/" + "x" * 5000, 404),
        ("GET", "/v1/sessions/%C3%A9%FF", 404),
        ("GET", "/v1/responses/sess_x", 404),
        ("DELETE", "/v1/sessions/sess_nothing", 404),
        ("GET", "/v1/sessions?limit=0", 400),
        ("GET", "/v1/sessions?limit=1e3", 400),
        ("GET", "/v1/models/../secret", 404),
        ("DELETE", "/v1/chat/completions", 405),
        ("PUT", "/v1/sessions", 405),
    ],
)
def test_odd_paths(server: Server, method: str, path: str, status: int) -> None:
    refused(server, path, None, status, method)


def test_a_body_that_is_too_large_is_refused_early() -> None:
    with serving(body=1000) as server:
        for headers in ({}, {"Transfer-Encoding": "chunked"}):
            data = json.dumps({"prompt": "a" * 2000}).encode()
            if headers:
                data = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)
            with server.open("POST", COMPLETIONS, data, headers) as response:
                assert response.status == 413
                assert json.loads(response.read())["error"]["code"] == "body_too_large"


def test_limits_of_tokens() -> None:
    with serving(prompt=10, tokens=5, context=20) as server:
        assert refused(server, COMPLETIONS, {"prompt": "a" * 11})["code"] == "context_length_exceeded"
        assert (
            "accepted: a whole number from 0 to 5"
            in refused(server, COMPLETIONS, {"prompt": "a", "max_tokens": 6})["message"]
        )
        id = server.post("/v1/sessions", {"text": "a" * 10})["id"]
        server.post(f"/v1/sessions/{id}/append", {"text": "a" * 6})
        assert refused(server, f"/v1/sessions/{id}/generate", {"max_tokens": 5})["code"] == "context_length_exceeded"
        server.post(f"/v1/sessions/{id}/generate", {"max_tokens": 4})


def test_a_full_queue_asks_to_retry() -> None:
    with serving(rows=1, queued=1) as server:
        running = server.open("POST", COMPLETIONS, {"prompt": "a", "max_tokens": 4000, "stream": True})
        running.read(100)
        waiting = threading.Thread(target=server.post, args=(COMPLETIONS, {"prompt": "a", "max_tokens": 1}))
        waiting.start()
        for _ in range(200):
            if server.service.worker.scheduler.waiting:
                break
            time.sleep(0.01)
        response = server.open("POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1})
        with response:
            error = json.loads(response.read())["error"]
        assert (response.status, error["type"], response.getheader("Retry-After")) == (429, "rate_limit_error", "1")
        refused(server, "/v1/sessions", {"text": "abc"}, 429)
        assert server.get("/v1/sessions")["data"] == []  # a session that was not read is not left behind
        running.close()  # a gone client frees its row
        waiting.join(30)
        assert not waiting.is_alive()


def test_keys_are_isolated(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# two keys\n{hash_key('one')} first\n{hash_key('two')}\n")
    with serving(Options(api_keys=file, limits=Limits(stop_seconds=1.0))) as server:
        assert refused(server, "/v1/models", None, 401, "GET")["code"] == "invalid_api_key"
        one, two = (Server(server.port, server.service, key) for key in ("one", "two"))
        refused(Server(server.port, server.service, "three"), "/v1/models", None, 401, "GET")
        session = one.post("/v1/sessions", {"text": "a secret " * 40})["id"]
        response = one.post("/v1/responses", {"model": MODEL, "input": "x", "max_output_tokens": 1})["id"]
        sealed = one.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1, "state": ""})["state"]
        missing = session[:-4] + "0000"
        for path, method, body in (
            ("", "GET", None), ("/tokens", "GET", None), ("/state", "GET", None), ("", "DELETE", None),
            ("/append", "POST", {"text": "x"}), ("/generate", "POST", {}), ("/rollback", "POST", {"to": 1}),
            ("/fork", "POST", {}), ("/edit", "POST", {"remove": 1}),
        ):  # fmt: skip
            mine = refused(two, f"/v1/sessions/{session}{path}", body, 404, method)
            other = refused(two, f"/v1/sessions/{missing}{path}", body, 404, method)
            assert mine | {"message": ""} == other | {"message": ""}
            assert mine["message"].replace(session, missing) == other["message"]
        refused(two, "/v1/sessions", {"fork": {"session": session}}, 404)
        refused(two, CHAT, {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "session": session}, 404)
        refused(two, f"/v1/responses/{response}", None, 404, "GET")
        refused(two, "/v1/responses", {"model": MODEL, "input": "x", "previous_response_id": response}, 404)
        assert "another model or key" in refused(two, COMPLETIONS, {"prompt": "x", "state": sealed})["message"]
        assert two.get("/v1/sessions")["data"] == []
        cached = [key.post("/v1/sessions", {"text": "a secret " * 40})["id"] for key in (two, one)]
        read = [
            key.post(f"/v1/sessions/{id}/generate", {"max_tokens": 1})
            for key, id in zip((two, one), cached, strict=True)
        ]
        assert all(done["usage"]["completion_tokens"] == 1 for done in read)
        assert server.service.worker.scheduler.cached_tokens == 359  # key one read it before, key two had to read it
        server.get("/health")
        server.get("/ready")
        refused(server, "/metrics", None, 401, "GET")


@pytest.mark.parametrize("text", ["", "# nothing\n", "secret\n", "sha256:12 x\n"])
def test_a_bad_key_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ValueError, match="--hash-key"):
        Keys.load(tmp_path / "keys")


def test_slow_half_closed_and_vanishing_clients_disturb_nobody(server: Server) -> None:
    """While they misbehave, a stream gets the tokens that it gets alone."""
    body = {"prompt": "The whale", "max_tokens": 300, "seed": 5}
    wanted = server.post(COMPLETIONS, body)["choices"][0]["text"]
    sockets = []
    for sent in (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",  # the rest never comes
        b"POST /v1/compl",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    ):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        connection.sendall(sent)
        sockets.append(connection)
    sockets[0].shutdown(socket.SHUT_WR)
    reader = socket.create_connection(("127.0.0.1", server.port), timeout=10)  # asks for a stream and never reads it
    asked = json.dumps(body | {"stream": True, "max_tokens": 2000}).encode()
    reader.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(asked), asked))
    for _ in range(5):
        server.open("POST", COMPLETIONS, body | {"stream": True}).close()
    assert server.post(COMPLETIONS, body)["choices"][0]["text"] == wanted
    for connection in (*sockets, reader):
        connection.close()
    for _ in range(500):
        if not server.service.worker.scheduler.live:
            break
        time.sleep(0.01)
    assert server.service.worker.scheduler.live == 0


def test_many_requests_at_once_each_get_what_they_get_alone(server: Server) -> None:
    bodies = [{"prompt": "The whale"[: 1 + i % 9], "max_tokens": 20, "seed": i} for i in range(60)]
    with ThreadPoolExecutor(30) as pool:
        together = list(pool.map(lambda body: server.send("POST", COMPLETIONS, body), bodies))
    assert {status for status, _ in together} == {200}
    for body, (_, done) in list(zip(bodies, together, strict=True))[::7]:
        assert server.post(COMPLETIONS, body)["choices"] == done["choices"]


def test_an_address_that_others_reach_needs_keys() -> None:
    from linnet.serve.start import build

    with pytest.raises(ValueError, match="--api-keys FILE, or --no-auth"):
        build(Options(host="0.0.0.0"))


def test_logs_have_no_prompts_unless_asked(caplog: pytest.LogCaptureFixture) -> None:
    for shown in (False, True):
        caplog.clear()
        with caplog.at_level("INFO", logger="linnet.serve"), serving(Options(log_prompts=shown)) as server:
            server.post(COMPLETIONS, {"prompt": "a secret", "max_tokens": 1})
            refused(server, COMPLETIONS, b'{"prompt": "a secret"')
        assert ("a secret" in caplog.text) is shown
        assert '"route":"/v1/completions","status":200' in caplog.text


def test_metrics_health_and_the_openapi_document(server: Server) -> None:
    sampled = server.metric("linnet_sampled_tokens_total")
    server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 7})
    assert server.metric("linnet_sampled_tokens_total") == sampled + 7
    assert server.get("/health") == {"status": "ok"}
    assert server.get("/ready") == {"status": "ready"}
    document = server.get("/openapi.json")
    assert document["paths"]["/v1/sessions/{id}/generate"]["post"]["requestBody"]["required"]
    assert "max_tokens" in document["components"]["schemas"]["Generate"]["properties"]


def test_tokenize_and_detokenize(server: Server) -> None:
    tokens = server.post("/tokenize", {"prompt": "aé"})
    assert (tokens["tokens"], tokens["count"]) == ([97, 195, 169], 3)
    assert server.post("/detokenize", {"tokens": tokens["tokens"]})["text"] == "aé"
    refused(server, "/tokenize", {})
    refused(server, "/detokenize", {"tokens": [256]})
