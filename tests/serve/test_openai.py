"""The official `openai` client, unmodified, against a server of this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("starlette", reason="the extra `serve` is not installed")
openai = pytest.importorskip("openai", reason="openai is not installed; the extra `test` brings it")

from linnet.generate import Sampling, generate  # noqa: E402

from .serving import Server  # noqa: E402

MODEL = "linnet-moby-dick"


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "linnet"
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
        client.models.retrieve("gpt")


def test_a_completion_is_that_of_the_library(client: Any, server: Server) -> None:
    """At temperature 0 and with a seed. Logits differ by rounding: the server reads the prompt in other pieces."""
    service = server.service
    how = {"model": service.worker.model, "prompts": ["Call me "], "tokenizer": service.tokenizer, "max_tokens": 40}
    for temperature, seed in ((0.0, 1), (0.8, 5)):
        (wanted,) = generate(**how, sampling=Sampling(temperature=temperature, seed=seed))
        done = client.completions.create(
            model=MODEL, prompt="Call me ", max_tokens=40, temperature=temperature, seed=seed
        )
        assert done.choices[0].text == wanted.text
        assert done.choices[0].finish_reason == "length"
        assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (8, 40)


def test_a_stream_is_the_whole(client: Any) -> None:
    how = {"model": MODEL, "prompt": "The sea", "max_tokens": 30, "seed": 3}
    whole = client.completions.create(**how)
    chunks = list(client.completions.create(**how, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage.completion_tokens == 30
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_choices_prompts_and_stops(client: Any) -> None:
    """Several choices differ, each prompt gets what it gets alone, and text ends before a stop string."""
    how = {"model": MODEL, "max_tokens": 60, "seed": 4}
    done = client.completions.create(**how, prompt=["Call me", "The whale"], n=2)
    assert [choice.index for choice in done.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in done.choices}) == 4
    alone = client.completions.create(**how, prompt="The whale", n=2)
    assert [choice.text for choice in alone.choices] == [choice.text for choice in done.choices[2:]]
    text = alone.choices[0].text
    stopped = client.completions.create(**how, prompt="The whale", stop=["\0", text[20:23]])
    assert stopped.choices[0].text == text[: text.index(text[20:23])]
    assert stopped.choices[0].finish_reason == "stop"
    chunks = client.completions.create(**how, prompt="The whale", n=2, stream=True)
    texts = {0: "", 1: ""}
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert list(texts.values()) == [choice.text for choice in alone.choices]


def test_echo_with_logprobs_scores_a_prompt(client: Any, server: Server) -> None:
    """As lm-eval asks for it."""
    prompt = "Call me Ishmael. é"
    done = client.completions.create(model=MODEL, prompt=prompt, max_tokens=0, echo=True, logprobs=2)
    (choice,) = done.choices
    tokens = torch.tensor(server.service.tokenizer.encode(prompt))
    wanted = server.service.worker.model(tokens[None])[0][0].log_softmax(-1)[:-1].gather(-1, tokens[1:, None])[:, 0]
    assert choice.text == prompt
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(wanted.tolist(), abs=1e-3)
    assert choice.logprobs.tokens[-2:] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert choice.logprobs.top_logprobs[0] is None
    assert {len(top) for top in choice.logprobs.top_logprobs[1:]} == {2}
    both = client.completions.create(model=MODEL, prompt=prompt, max_tokens=3, echo=True, logprobs=2, seed=1)
    assert len(both.choices[0].logprobs.tokens) == len(tokens) + 3
    assert both.choices[0].text.startswith(prompt)


def test_chat(client: Any) -> None:
    how = {"model": MODEL, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 20, "seed": 1}
    done = client.chat.completions.create(**how, logprobs=True, top_logprobs=3)
    message = done.choices[0].message
    assert (message.role, done.object) == ("assistant", "chat.completion")
    entries = done.choices[0].logprobs.content
    assert (
        bytes(byte for entry in entries for byte in entry.bytes).decode(errors="replace").removeprefix(" ")
        == message.content
    )
    assert {len(entry.top_logprobs) for entry in entries} == {3}
    assert all(entry.top_logprobs[0].logprob >= entry.logprob for entry in entries)
    chunks = list(client.chat.completions.create(**how, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == message.content
    assert chunks[0].choices[0].delta.role == "assistant"


def test_a_second_turn_reads_only_what_is_new(client: Any) -> None:
    first = [
        {"role": "system", "content": "You are a sailor of the last century."},
        {"role": "user", "content": "Hello"},
    ]
    how = {"model": MODEL, "max_tokens": 12, "seed": 1}
    reply = client.chat.completions.create(**how, messages=first).choices[0].message.content
    second = [*first, {"role": "assistant", "content": reply}, {"role": "user", "content": "And then?"}]
    done = client.chat.completions.create(**how, messages=second)
    shared = len("System: You are a sailor of the last century.\n\nUser: Hello\n\n") - 1
    assert done.usage.prompt_tokens_details.cached_tokens == shared


def test_penalties_biases_and_seeds_reach_the_model(client: Any) -> None:
    how = {"model": MODEL, "prompt": "ab", "max_tokens": 6}
    only = client.completions.create(**how, logit_bias={"65": 100})
    assert only.choices[0].text == "AAAAAA"
    spread = client.completions.create(**how, logit_bias={"65": 100, "66": 100}, presence_penalty=2, temperature=0)
    assert set(spread.choices[0].text) == {"A", "B"}
    texts = {client.completions.create(**how, seed=seed).choices[0].text for seed in range(4)}
    assert len(texts) > 1


def test_a_session_needs_only_the_new_message(client: Any, server: Server) -> None:
    """Through extra_body; and its first answer is that of a chat without a session up to its draws."""
    session = server.post("/v1/sessions")["id"]
    how = {"model": MODEL, "max_tokens": 10, "temperature": 0, "extra_body": {"session": session}}
    first = client.chat.completions.create(**how, messages=[{"role": "user", "content": "Hello"}])
    plain = client.chat.completions.create(
        **(how | {"extra_body": {}}), messages=[{"role": "user", "content": "Hello"}]
    )
    assert first.choices[0].message.content == plain.choices[0].message.content
    second = client.chat.completions.create(**how, messages=[{"role": "user", "content": "Again"}])
    new = len("\n\nUser: Again\n\nAssistant:")
    assert second.usage.prompt_tokens == first.usage.total_tokens + new
    assert second.usage.prompt_tokens_details.cached_tokens == first.usage.total_tokens - 1
    view = server.get(f"/v1/sessions/{session}")
    assert view["tokens"] == len("User: Hello\n\nAssistant:") + 10 + new + 10
    more = client.completions.create(
        model=MODEL, prompt="!", max_tokens=3, extra_body={"session": session}, stream=True
    )
    assert sum(bool(chunk.choices[0].text) for chunk in more) <= 3
    assert server.get(f"/v1/sessions/{session}")["tokens"] == view["tokens"] + 4


def test_sealed_states_continue_as_a_session_does(client: Any, server: Server) -> None:
    """The server keeps nothing, and the same seeds give the same text."""
    session = server.post("/v1/sessions")["id"]
    kept, state = "", ""
    sessions = server.metric("linnet_sessions")
    for i, text in enumerate(("Call me ", "Ishmael", " and")):
        how = {"model": MODEL, "prompt": text, "max_tokens": 9, "seed": i}
        done = client.completions.create(**how, extra_body={"state": state})
        state = done.model_extra["state"]
        with_session = client.completions.create(**how, extra_body={"session": session})
        assert done.choices[0].text == with_session.choices[0].text
        kept += done.choices[0].text
    assert len(kept) == 27
    assert server.metric("linnet_sessions") == sessions
    last = list(client.completions.create(**how, extra_body={"state": state}, stream=True))[-1]
    assert last.model_extra["state"].startswith("lnst1.")
    altered = state[:60] + ("A" if state[60] != "A" else "B") + state[61:]
    for wrong in (altered, "lnst1.", "x", state[:-8], "lnst1." + "é" * 10):
        with pytest.raises(openai.BadRequestError, match="the sealed state is altered"):
            client.completions.create(model=MODEL, prompt="a", extra_body={"state": wrong})


def test_responses(client: Any, server: Server) -> None:
    """Stored ones can be continued twice, read and deleted."""
    how: dict[str, Any] = {"model": MODEL, "max_output_tokens": 10, "extra_body": {"seed": 1}}
    first = client.responses.create(**how, input="Hello", instructions="Be brief.", metadata={"a": "b"})
    assert (first.status, first.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert len(first.output_text) <= 10
    second = client.responses.create(**how, input=[{"role": "user", "content": "More"}], previous_response_id=first.id)
    other = client.responses.create(**how, input="Other", previous_response_id=first.id)
    assert second.usage.input_tokens > first.usage.total_tokens
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1
    assert client.responses.retrieve(other.id).output_text == other.output_text
    client.responses.delete(other.id)
    for missing in (other.id, "resp_nothing"):
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            client.responses.retrieve(missing)
    forgotten = client.responses.create(**how, input="Hello", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(forgotten.id)


def test_a_stream_of_a_response(client: Any) -> None:
    how = {"model": MODEL, "input": "Hello", "max_output_tokens": 10, "extra_body": {"seed": 1}}
    events = list(client.responses.create(**how, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[0].type == "response.created"
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == text


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "part of type 'image_url'"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages\\[0\\].role is 'wizard'"),
        ({"messages": []}, "messages is empty"),
        ({"temperature": -1}, "temperature is -1"),
        ({"n": 0}, "n is 0"),
        ({"top_logprobs": 3}, "top_logprobs needs logprobs"),
        ({"max_tokens": 10**9}, "max_tokens is 1000000000"),
        ({"extra_body": {"wizard": 1}}, "unknown field 'wizard'"),
        ({"logit_bias": {"x": 1}}, "logit_bias is 'x'"),
        ({"logit_bias": {"9999": 1}}, "logit_bias\\[0\\] is 9999"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_refused_by_name(client: Any, how: dict[str, Any], words: str) -> None:
    given = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2} | how
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        client.chat.completions.create(**given)
    assert caught.value.body["type"] == "invalid_request_error"
