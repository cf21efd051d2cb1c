"""`linnet serve`: answer the OpenAI API on this machine, with sessions that cost kilobytes."""

from __future__ import annotations

from getpass import getpass
from pathlib import Path
from typing import Annotated

from ..errors import number, whole
from .common import FLAG

MIB = 1 << 20
EXTRA = "linnet serve needs the extra `serve`; install it with pip install 'linnet[serve]'"


def serve(
    model: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    name: str | None = None,
    checkpoint: str | None = None,
    store: str | None = None,
    api_keys: Path | None = None,
    no_auth: Annotated[bool, FLAG] = False,
    hash_key: Annotated[bool, FLAG] = False,
    weights: str = "float32",
    backend: str = "auto",
    threads: int | None = None,
    rows: int = 32,
    queued: int = 256,
    chunk: int = 128,
    max_tokens: int = 4096,
    max_prompt: int = 131_072,
    max_context: int = 0,
    max_sessions: int = 10_000,
    max_body: int = 8 * MIB,
    idle_days: float = 30.0,
    prefix_mib: int = 256,
    log_prompts: Annotated[bool, FLAG] = False,
) -> None:
    """Serve a language model over HTTP: completions, chat, responses and sessions.

    Parameters
    ----------
    model
        A folder that `linnet train`, `linnet import` or save_pretrained wrote; without one, a small character model of
        Moby-Dick that the package ships.
    host
        Address to listen on. Any other than this machine's own needs --api-keys or --no-auth.
    port
        Port to listen on; 0 takes a free one.
    name
        Name of the model for clients; by default that of its folder.
    checkpoint
        Of a run: best, newest, or a step.
    store
        Where sessions are kept: sqlite:PATH, redis://HOST:PORT/NUMBER, or memory. By default a file for each model and
        its weights in $XDG_STATE_HOME/linnet.
    api_keys
        File of hashed keys; requests without one of them are refused.
    no_auth
        Accept everyone, also on an address that other machines reach: all of them share all sessions.
    hash_key
        Ask for a key and print its line for --api-keys; start no server.
    weights
        float32, bfloat16 or int8.
    backend
        auto, native or torch.
    threads
        CPU threads of the model.
    rows
        Requests that run at once.
    queued
        Requests that may wait; one more gets status 429.
    chunk
        Tokens of prompts read between two steps: less makes streams smoother while a long prompt is read.
    max_tokens
        Tokens that one request may generate.
    max_prompt
        Tokens that one request may send.
    max_context
        Tokens of a session; 0 is no limit. A model whose state grows has 8192 unless given.
    max_sessions
        Sessions of one key.
    max_body
        Bytes of one request.
    idle_days
        Days after which an unused session is deleted.
    prefix_mib
        Memory for states of beginnings that prompts share; 0 turns them off.
    log_prompts
        Write the bodies of requests to the log.
    """
    if hash_key:
        return _print_hash()
    for option, value, least in (
        ("rows", rows, 1), ("queued", queued, 0), ("chunk", chunk, 1), ("max_tokens", max_tokens, 1),
        ("max_prompt", max_prompt, 1), ("max_context", max_context, 0), ("max_sessions", max_sessions, 0),
        ("max_body", max_body, 1024), ("prefix_mib", prefix_mib, 0),
    ):  # fmt: skip
        whole(option, value, least)
    whole("port", port, 0, 65_535)
    number("idle_days", idle_days, above=0)
    try:
        from ..serve.limits import Limits
        from ..serve.start import Options, run
    except ImportError as error:
        raise ImportError(f"{EXTRA} ({error})") from None
    limits = Limits(
        rows=rows, queued=queued, queued_per_key=max(1, queued // 2), chunk=chunk, sessions_per_key=max_sessions,
        body=max_body, prompt=max_prompt, context=max_context, tokens=max_tokens, idle=int(idle_days * 86_400),
        prefix_bytes=prefix_mib * MIB,
    )  # fmt: skip
    options = Options(
        model=model, checkpoint=checkpoint, name=name, host=host, port=port, api_keys=api_keys, no_auth=no_auth,
        store=store, weights=weights, backend=backend, threads=threads,
        log_prompts=log_prompts, limits=limits,
    )  # fmt: skip
    run(options)


def _print_hash() -> None:
    from secrets import token_urlsafe

    from ..serve.keys import hash_key

    key = getpass("key (empty: make a new one): ")
    if not key:
        key = f"sk-{token_urlsafe(24)}"
        print(f"# the key: {key}  (keep it; only its hash belongs into the file)")
    print(hash_key(key))
