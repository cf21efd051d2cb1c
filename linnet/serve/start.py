"""Start a server: load the model, check the options, print the bounds, run uvicorn until a signal."""

from __future__ import annotations

import logging
import re
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import environ, urandom
from pathlib import Path
from time import time
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette

from ..generate import open_engine
from ..loading import load
from ..models import LanguageModel
from .app import build_app
from .chat import load_template
from .keys import Keys
from .limits import Limits
from .metrics import Metrics
from .seal import Sealer
from .service import Service
from .store import Store, open_store
from .worker import Worker

SHIPPED = Path(__file__).parent / "assets"  # a small character model; its README says how it was trained
LOOPBACK = ("127.0.0.1", "::1", "localhost")
CONTEXT = 8192  # tokens of a session of a model whose state grows
SECRET = "server/secret"  # in the store, so that seals stay valid after a restart and on every replica
OWNER = "server/model"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `linnet serve` was asked to do."""

    model: Path | None = None  # None: the shipped one
    checkpoint: str | None = None
    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: Path | None = None
    no_auth: bool = False
    store: str | None = "memory"  # None: a file for this model
    weights: str = "float32"
    backend: str = "auto"
    threads: int | None = None
    log_prompts: bool = False
    limits: Limits = field(default_factory=Limits)


def build(options: Options) -> tuple[Service, str]:
    """Return the service and what to print about it."""
    if options.host not in LOOPBACK and options.api_keys is None and not options.no_auth:
        raise ValueError(
            f"host is {options.host!r}, which other machines can reach; pass --api-keys FILE, or --no-auth to let "
            "everyone who reaches it read and delete all sessions"
        )
    folder = options.model or SHIPPED
    loaded = load(folder, checkpoint=options.checkpoint)
    model, tokenizer = loaded.language()
    limits = bounded(model, options.limits)
    keys = Keys(None) if options.api_keys is None or options.no_auth else Keys.load(options.api_keys)
    if not keys.required:  # one owner may use the whole queue
        limits = replace(limits, queued_per_key=limits.queued)
    # exact=False: a state as a value is then all of the state, so that continuing from it gives the same bits
    engine = open_engine(
        model, weights=options.weights, backend=options.backend, threads=options.threads, exact=False
    )  # fmt: skip
    name = options.name or ("linnet-moby-dick" if options.model is None else folder.resolve().name)
    store = open_store(options.store or default_store(name, model.fingerprint()))
    try:
        identity = f"{model.fingerprint()} {tokenizer.fingerprint}"
        kept = store.setdefault(OWNER, identity.encode()).decode()
        if kept != identity:
            raise ValueError(f"{store.name} has sessions of another model; choose another --store for this one")
        secret = store.setdefault(SECRET, urandom(32))
        metrics = Metrics()
        worker = Worker(model, tokenizer, engine, store, name, limits, metrics)
        worker.warm_up()
        service = Service(
            name, int(time()), worker, tokenizer, load_template(loaded.folder), keys, limits, metrics,
            Sealer(secret, *identity.split()), options.log_prompts,
        )  # fmt: skip
    except BaseException:
        store.close()
        raise
    return service, summary(service, options, store, loaded.notes)


def default_store(name: str, fingerprint: str) -> str:
    """Return the file for the sessions of these weights; its folder is created."""
    folder = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "linnet"
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:{folder / re.sub(r'[^A-Za-z0-9._-]', '_', name)}-{fingerprint}.db"


def application(options: Options) -> Starlette:
    """Return the ASGI application of a new service, for a server that is not `linnet serve`."""
    return build_app(build(options)[0])


def bounded(model: LanguageModel, limits: Limits) -> Limits:
    """Return the limits with a longest session if the state grows with it, and room for the upload of a state."""
    grows = model.state_bytes(2 * CONTEXT) != model.state_bytes(CONTEXT)
    context = CONTEXT if grows and not limits.context else limits.context
    upload = 2 * model.state_bytes(context or 1) if limits.body == Limits.body else 0  # the file has the tokens too
    return replace(limits, context=context, body=max(limits.body, upload))


def summary(service: Service, options: Options, store: Store, notes: tuple[str, ...]) -> str:
    """Return what the server serves, and the bound of its memory."""
    model, limits = service.worker.model, service.limits
    state = model.state_bytes(max(limits.context, 1))
    bound = limits.rows * state + limits.prefix_bytes
    auth = "keys of a file" if service.keys.required else "none: everyone who reaches this address may do everything"
    longest = f"up to {limits.context:,} tokens each" if limits.context else "of any length"
    engine, where = type(service.worker.engine).__name__, f"http://{options.host}:{options.port}"
    running = f"{limits.rows} running requests and {_bytes(limits.prefix_bytes)} of prefix states"
    fits = f"a gigabyte holds {2**30 // max(state, 1):,}; a key may have {limits.sessions_per_key:,}"
    lines = [
        *notes,
        f"linnet serve: {where}    model {service.name}, {model.parameter_count():,} parameters, {engine}",
        f"  state        {state:,} bytes a session, {longest}",
        f"  memory       at most {_bytes(bound)} of states: {running}",
        f"  sessions     in {store.name}; {fits}",
        f"  keys         {auth}",
        f"  chat         {service.template.name} template",
    ]
    return "\n".join(lines)


def run(options: Options, announce: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("linnet.serve").setLevel(logging.INFO)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    bound = _bind(options.host, options.port)
    _allow_connections()
    try:
        service, text = build(replace(options, port=bound.getsockname()[1]))
        (announce or _print)(text)
        how: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
        stop = int(service.limits.stop_seconds) + 1
        config = uvicorn.Config(
            build_app(service), timeout_graceful_shutdown=stop, timeout_keep_alive=65, lifespan="on",
            h11_max_incomplete_event_size=64 * 1024, **how,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        bound.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise ValueError(f"port {port} of {host} cannot be used ({error.strerror}); choose another --port") from None
    return bound


def _allow_connections() -> None:
    """Use as many file descriptors as the system allows this process: each client has one."""
    with suppress(ImportError, ValueError, OSError):  # not on Windows
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _print(text: str) -> None:
    print(text, flush=True)


def _bytes(count: int) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
