"""Models of every kind behind the server: states as bytes, caches that grow, chat templates of a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from linnet.data import ByteTokenizer
from linnet.models import ModelConfig, build
from linnet.serve.chat import JinjaTemplate, PlainTemplate, load_template
from linnet.serve.errors import ApiError
from linnet.serve.limits import Limits
from linnet.serve.start import Options
from linnet.serve.start import build as build_service
from linnet.serve.state_bytes import pack_state, unpack_state
from tests.generate.engines import KINDS, language

from .serving import serving

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TURNS = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]


def folder_of(path: Path, **changes: object) -> Path:
    torch.manual_seed(0)
    shape = {"vocab_size": 256, "d_model": 16, "n_layers": 2, "n_heads": 2, "positions": "rotary", "init_std": 0.2}
    build(ModelConfig(**(shape | changes))).save_pretrained(path)  # type: ignore[arg-type]
    ByteTokenizer().save(path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_as_bytes_is_the_state(kind: str) -> None:
    model = language(kind, torch.float32)
    state = model.read(torch.arange(9)[None])[1]
    logits = torch.arange(3.0)
    packed, kept = unpack_state(pack_state(state, logits), model)
    assert kept is not None
    assert torch.equal(kept, logits)
    assert torch.equal(packed.position, state.position)
    for new, old in zip(packed.layers, state.layers, strict=True):
        assert type(new) is type(old)
        assert new.tensors.keys() == old.tensors.keys()
        assert all(torch.equal(x, old.tensors[name]) for name, x in new.tensors.items())
    assert unpack_state(pack_state(state), model)[1] is None


@pytest.mark.parametrize("mixer", ["softmax", ("gated_delta", "window"), "rwkv7"])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_rollback_and_prefixes_of_other_mixers(tmp_path: Path, mixer: str | tuple[str, ...], backend: str) -> None:
    """Also for a cache that grows, whose sessions have a longest length, and where only torch runs."""
    changes = {"mixer": mixer, "mixer_options": {"window": {"window": 5}} if "window" in mixer else {}}
    options = Options(model=folder_of(tmp_path / "model", **changes), backend=backend, limits=Limits(stop_seconds=0.1))
    with serving(options) as server:
        id = server.post("/v1/sessions", {"text": "a" * 200})["id"]
        body = {"max_tokens": 20, "temperature": 0}
        wanted = server.post(f"/v1/sessions/{id}/generate", body)["text"]
        server.post(f"/v1/sessions/{id}/rollback", {"to": 205})
        assert server.post(f"/v1/sessions/{id}/generate", body | {"max_tokens": 15})["text"] == wanted[-15:]
        (fork,) = server.post(f"/v1/sessions/{id}/fork", {"at": 200})["data"]
        assert server.post(f"/v1/sessions/{fork['id']}/generate", body)["text"] == wanted
        grows = mixer == "softmax"
        assert (server.service.limits.context > 0) is grows
        if grows:
            assert server.get(f"/v1/sessions/{id}")["state_bytes"] == server.get(f"/v1/sessions/{id}")["softmax_bytes"]


def test_a_model_that_is_no_language_model_is_refused(tmp_path: Path) -> None:
    build(ModelConfig(task="image", d_model=16, n_layers=1, n_heads=2)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="accepted: a language model"):
        build_service(Options(model=tmp_path))


def test_the_template_of_a_folder(tmp_path: Path) -> None:
    """In pieces that end where messages end; the begin token is the tokenizer's business."""
    config = {"chat_template": CHATML, "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"stop_strings": ["<|end|>", 3]}))
    template = load_template(tmp_path)
    assert isinstance(template, JinjaTemplate)
    assert template.render(TURNS) == ["<|system|>a<|end|>", "<|user|>b<|end|>", "<|assistant|>"]
    assert template.stop == ("<|end|>",)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no system') }}")
    with pytest.raises(ApiError, match="refuses these messages \\(no system\\)"):
        load_template(tmp_path).render(TURNS)
    (tmp_path / "chat_template.jinja").write_text("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(ApiError, match="refuses these messages"):
        load_template(tmp_path).render(TURNS)


def test_the_plain_template_continues_where_an_answer_ended(tmp_path: Path) -> None:
    template = load_template(tmp_path)
    assert isinstance(template, PlainTemplate)
    assert template.render(TURNS) == ["System: a\n\n", "User: b\n\n", "Assistant:"]
    assert template.render(TURNS[1:], after="") == ["\n\nUser: b\n\n", "Assistant:"]
    assert template.render(TURNS[1:], after="\nUser:") == [" b\n\n", "Assistant:"]
    assert template.render(TURNS[1:], after="\n\n") == ["User: b\n\n", "Assistant:"]
