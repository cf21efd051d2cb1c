"""The JSON of completions and chat: whole answers, and the chunks of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any

from .run import Ended, Order, Token
from .schemas import OpenAI
from .service import Service, finish_reason, session_usage, usage


@dataclass
class Plan:
    """A request that has been checked: what to run, and how to show it."""

    id: str
    owner: str
    body: OpenAI
    orders: list[Order]
    seed: int
    choices: int  # of each prompt
    prompts: list[list[int]] = field(default_factory=list)  # echoed
    echo: bool = False

    @property
    def usage_in_stream(self) -> bool:
        options = self.body.stream_options
        return bool(options and options.include_usage)


class TextShape:
    """The shape of /v1/completions."""

    object = chunk = "text_completion"

    def __init__(self, service: Service, plan: Plan) -> None:
        self.service, self.plan = service, plan
        self.created = int(time())

    def head(self, chunk: bool = True) -> dict[str, Any]:
        plan = self.plan
        head = {"id": plan.id, "object": self.chunk if chunk else self.object, "created": self.created}
        head |= {"model": self.service.name, "system_fingerprint": f"seed-{plan.seed}"}
        if chunk and plan.usage_in_stream:
            head["usage"] = None
        return head

    def usage(self, ended: Sequence[Ended]) -> dict[str, Any]:
        if ended[0].session is not None:
            return session_usage(ended[0].start, ended[0].completion)
        done = [item.completion for item in ended]
        return usage(done, done[:: self.plan.choices])

    def whole(self, ended: Sequence[Ended]) -> dict[str, Any]:
        """Return the answer without a stream."""
        choices = [self.choice(i, item) for i, item in enumerate(ended)]
        return self.head(False) | {"choices": choices, "usage": self.usage(ended)} | self.extra(ended[0])

    def extra(self, item: Ended) -> dict[str, Any]:
        """Return what linnet adds: the session, or the sealed state."""
        if item.session is not None:
            return {"session": item.session["id"]}
        if self.plan.body.state is not None:
            return {"state": self.service.sealed(self.plan.owner, item.completion)}
        return {}

    def choice(self, i: int, item: Ended) -> dict[str, Any]:
        done = item.completion
        echoed = self._echoed(i)
        text = echoed + (done.text or "")
        logprobs = None
        if done.logprobs is not None:
            logprobs = self._logprobs(i, item)
        return {"index": i, "text": text, "logprobs": logprobs, "finish_reason": finish_reason(done)}

    def _echoed(self, i: int) -> str:
        plan = self.plan
        return self.service.tokenizer.decode(plan.prompts[i // plan.choices]) if plan.echo else ""

    def _logprobs(self, i: int, item: Ended) -> dict[str, Any]:
        done, write = item.completion, self.service.token_text
        tokens, scores, tops = list(done.tokens), list(done.logprobs or ()), list(done.top or [[]] * len(done.tokens))
        if self.plan.echo:
            tokens = [*self.plan.prompts[i // self.plan.choices], *tokens]
            scores = [None, *(done.prompt_logprobs or ()), *scores]  # type: ignore[list-item]
            tops = [[], *(done.prompt_top or ()), *tops]
        texts = [write(token) for token in tokens]
        return self._columns(texts, scores, tops, 0 if self.plan.echo else len(self._prompt_text(i)))

    def _prompt_text(self, i: int) -> str:
        return self.service.tokenizer.decode(self.plan.prompts[i // self.plan.choices])

    def _columns(self, texts: Sequence[str], scores: Sequence[Any], tops: Sequence[Any], at: int) -> dict[str, Any]:
        offsets = []
        for text in texts:
            offsets.append(at)
            at += len(text)
        write = self.service.token_text
        best = [{write(token): score for token, score in top} if top else None for top in tops]
        return {"tokens": list(texts), "token_logprobs": list(scores), "top_logprobs": best, "text_offset": offsets}

    def first(self, i: int) -> list[dict[str, Any]]:
        """Return what comes before the first token of a choice."""
        echoed = self._echoed(i)
        return [self._chunk(i, echoed, None, None)] if echoed else []

    def piece(self, i: int, item: Token) -> dict[str, Any]:
        logprobs = None
        if item.logprob is not None:
            text = self.service.token_text(item.token)
            logprobs = self._columns([text], [item.logprob], [item.top], 0)
        return self._chunk(i, item.text, logprobs, None)

    def last(self, i: int, item: Ended) -> dict[str, Any]:
        return self._chunk(i, "", None, finish_reason(item.completion)) | self.extra(item)

    def _chunk(self, i: int, text: str, logprobs: Any, finish: str | None) -> dict[str, Any]:
        choice = {"index": i, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return self.head() | {"choices": [choice]}


class ChatShape(TextShape):
    """The shape of /v1/chat/completions."""

    object, chunk = "chat.completion", "chat.completion.chunk"

    def __init__(self, service: Service, plan: Plan) -> None:
        super().__init__(service, plan)
        self._begun: set[int] = set()  # choices that have some text

    def choice(self, i: int, item: Ended) -> dict[str, Any]:
        done = item.completion
        message: dict[str, Any] = {"role": "assistant", "content": (done.text or "").removeprefix(" "), "refusal": None}
        message["annotations"] = []
        logprobs = None
        if done.logprobs is not None:
            tops = done.top or [[]] * len(done.tokens)
            entries = zip(done.tokens, done.logprobs, tops, strict=True)
            logprobs = {"content": [self._entry(token, score, top) for token, score, top in entries], "refusal": None}
        return {"index": i, "message": message, "logprobs": logprobs, "finish_reason": finish_reason(done)}

    def first(self, i: int) -> list[dict[str, Any]]:
        return [self._delta(i, {"role": "assistant", "content": ""}, None, None)]

    def piece(self, i: int, item: Token) -> dict[str, Any]:
        logprobs = None
        if item.logprob is not None:
            logprobs = {"content": [self._entry(item.token, item.logprob, item.top or [])], "refusal": None}
        text = item.text if i in self._begun else item.text.removeprefix(" ")
        if item.text:
            self._begun.add(i)
        return self._delta(i, {"content": text}, logprobs, None)

    def last(self, i: int, item: Ended) -> dict[str, Any]:
        return self._delta(i, {}, None, finish_reason(item.completion)) | self.extra(item)

    def _delta(self, i: int, delta: dict[str, Any], logprobs: Any, finish: str | None) -> dict[str, Any]:
        choice = {"index": i, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self.head() | {"choices": [choice]}

    def _entry(self, token: int, score: float, top: Sequence[tuple[int, float]]) -> dict[str, Any]:
        best = [self._one(other, value) for other, value in top]
        return self._one(token, score) | {"top_logprobs": best}

    def _one(self, token: int, score: float) -> dict[str, Any]:
        service = self.service
        return {"token": service.token_text(token), "logprob": score, "bytes": service.token_bytes(token)}
