"""Models, /tokenize, /detokenize, /health, /ready and /metrics."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from .errors import ApiError, not_found
from .http import answer, read_json
from .schemas import Detokenize, Tokenize
from .service import Service


def _model(service: Service) -> dict[str, object]:
    config = service.worker.model.config
    bytes_now = service.worker.model.state_bytes(1)
    return {
        "id": service.name, "object": "model", "created": service.created, "owned_by": "linnet",
        "vocab_size": config.vocab_size, "state_bytes": bytes_now, "max_model_len": service.limits.context or None,
    }  # fmt: skip


async def models(service: Service, request: HttpRequest, owner: str) -> Response:
    """GET /v1/models."""
    return answer({"object": "list", "data": [_model(service)]})


async def model(service: Service, request: HttpRequest, owner: str) -> Response:
    """GET /v1/models/NAME."""
    if request.path_params["name"] != service.name:
        raise not_found("model", str(request.path_params["name"]))
    return answer(_model(service))


async def tokenize(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /tokenize."""
    body = await read_json(request, Tokenize, service.limits.body)
    service.check_model(body.model)
    texts = [text for text in (body.text, body.prompt, body.content) if text is not None]
    if len(texts) != 1:
        raise ApiError(400, "send one of text, prompt and content", param="text")
    tokens = service.encode("text", texts[0], begins=bool(body.add_special_tokens))
    return answer({"tokens": tokens, "count": len(tokens), "max_model_len": service.limits.context or None})


async def detokenize(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /detokenize."""
    body = await read_json(request, Detokenize, service.limits.body)
    service.check_model(body.model)
    text = service.tokenizer.decode(service.checked("tokens", body.tokens))
    return answer({"text": text, "prompt": text, "content": text})


async def health(service: Service, request: HttpRequest) -> Response:
    """GET /health: the process answers and its engine runs."""
    return answer({"status": "ok" if service.worker.alive else "failed"}, 200 if service.worker.alive else 503)


async def ready(service: Service, request: HttpRequest) -> Response:
    """GET /ready: new requests are accepted."""
    worker = service.worker
    good = worker.alive and not worker.stopping
    return answer({"status": "ready" if good else "stopping"}, 200 if good else 503)


async def metrics(service: Service, request: HttpRequest, owner: str) -> Response:
    """GET /metrics."""
    text = await service.worker.call(service.metrics.text, service.worker)
    return Response(text, media_type="text/plain; version=0.0.4")
