"""Chat templates: messages to passages of text, one per message, so that the state after each can be reused.

A model folder may have its own template (chat_template.jinja, or tokenizer_config.json); it runs in a sandbox.
generation_config.json may name `stop_strings` that end an answer. Otherwise the plain one is used, which a base model
understands best:

    System: Be brief.

    User: What is a whale?

    Assistant:
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..json_file import read_object
from .errors import ApiError
from .schemas import Message

ROLES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}
TEMPLATE, CONFIG, GENERATION = "chat_template.jinja", "tokenizer_config.json", "generation_config.json"
USER = "\nUser:"  # where a base model begins to write the next message itself
Turn = dict[str, str]  # role and content


class PlainTemplate:
    """Roles and colons, and a blank line between messages."""

    name = "plain"

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.stop = (USER, *stop)

    def render(self, turns: Sequence[Turn], *, after: str | None = None) -> list[str]:
        """Return the text of each message, and the beginning of the answer.

        `after`: the messages continue a conversation, whose last answer this stop string ended ("": none did).
        """
        texts = [f"{ROLES[turn['role']]}: {turn['content']}\n\n" for turn in turns]
        if after == USER and turns and turns[0]["role"] == "user":
            texts[0] = f" {turns[0]['content']}\n\n"
        elif after is not None and not after.endswith("\n\n") and texts:
            texts[0] = "\n\n" + texts[0]
        return [*texts, "Assistant:"]


class JinjaTemplate:
    """The template of a tokenizer."""

    name = "tokenizer"

    def __init__(self, source: str, tokens: dict[str, str], stop: Sequence[str] = ()) -> None:
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        self._template, self._tokens, self.stop = environment.from_string(source), tokens, tuple(stop)

    def render(self, turns: Sequence[Turn], *, after: str | None = None) -> list[str]:
        """Return the text in pieces that end where messages end."""
        whole = self._text(turns, True)
        ends = [text for i in range(1, len(turns) + 1) if whole.startswith(text := self._text(turns[:i], False))]
        cuts = [0, *sorted({len(text) for text in ends if text}), len(whole)]
        return [whole[start:end] for start, end in pairwise(cuts) if end > start]

    def _text(self, turns: Sequence[Turn], answer: bool) -> str:
        import jinja2

        try:
            text = self._template.render(messages=list(turns), add_generation_prompt=answer, **self._tokens)
        except (jinja2.TemplateError, TypeError) as error:
            raise ApiError(400, f"the chat template refuses these messages ({error})", param="messages") from None
        return text.removeprefix(self._tokens.get("bos_token") or "\0")  # the tokenizer adds it


def load_template(folder: Path) -> PlainTemplate | JinjaTemplate:
    """Return the template of a model's folder, or the plain one."""
    config = read_object(folder / CONFIG, "copy it again") if (folder / CONFIG).is_file() else {}
    source: Any = config.get("chat_template")
    if (folder / TEMPLATE).is_file():
        source = (folder / TEMPLATE).read_text(encoding="utf-8")
    more = read_object(folder / GENERATION, "copy it again") if (folder / GENERATION).is_file() else {}
    stop = [text for text in more.get("stop_strings") or () if isinstance(text, str) and text]
    if not isinstance(source, str):
        return PlainTemplate(stop)
    tokens = {name: _token(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    return JinjaTemplate(source, tokens, stop)


def turns_of(messages: Sequence[Message]) -> list[Turn]:
    """Return the messages as plain text; raise ApiError for roles and contents that are not supported."""
    if not messages:
        raise ApiError(400, "messages is empty; accepted: one message or more", param="messages")
    return [_turn(i, message) for i, message in enumerate(messages)]


def _turn(i: int, message: Message) -> Turn:
    where = f"messages[{i}]"
    if message.role not in ROLES:
        accepted = ", ".join(ROLES)
        raise ApiError(400, f"{where}.role is {message.role[:40]!r}; accepted: {accepted}", param=f"{where}.role")
    for name in ("tool_calls", "function_call", "audio"):
        if getattr(message, name):
            raise ApiError(
                400, f"{where}.{name} is not supported; leave it out", param=f"{where}.{name}", code="unsupported"
            )
    return {"role": message.role, "content": text_of(f"{where}.content", message.content)}


def text_of(where: str, content: Any) -> str:
    """Return the text of a message's content, a string or a list of text parts."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            message = f"{where} has a part of type {str(kind)[:40]!r}; accepted: text"
            raise ApiError(400, message, param=where, code="unsupported")
        texts.append(part["text"])
    return "".join(texts)


def _token(value: Any) -> str:
    return value.get("content", "") if isinstance(value, dict) else value or ""


def _refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)
