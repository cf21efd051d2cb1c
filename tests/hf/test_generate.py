"""generate() of LinnetForCausalLM: the tokens of linnet's own step, for every decoding mode, at constant memory."""

from __future__ import annotations

from importlib.metadata import version
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.hf.nets import HYBRID, VARIANTS, N, greedy, left_padded, net, tokens

pytestmark = pytest.mark.slow
CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12}


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_greedy_tokens_and_state_are_those_of_step(hf: ModuleType, fields: dict[str, Any]) -> None:
    model, prompt = net(**fields), tokens()
    out = hf.to_hf(model).generate(prompt, **GREEDY, return_dict_in_generate=True)
    wanted, state = greedy(model, prompt, GREEDY["max_new_tokens"])
    assert out.sequences.tolist() == wanted.tolist()
    torch.testing.assert_close(out.past_key_values.state, state, **CLOSE)


@pytest.mark.parametrize("how", [GREEDY, {**GREEDY, "num_beams": 3}, {**GREEDY, "prefill_chunk_size": 4}], ids=str)
def test_left_padded_rows_are_answered_as_alone(hf: ModuleType, how: dict[str, Any]) -> None:
    wrapped = hf.to_hf(net(**HYBRID))
    rows = [tokens(1, length, seed=length)[0] for length in (3, 8, 5)]
    ids, mask = left_padded(rows, pad=N)
    together = wrapped.generate(ids, attention_mask=mask, **how)[:, ids.shape[1] :]
    alone = [wrapped.generate(row[None], **how)[0, len(row) :].tolist() for row in rows]
    assert together.tolist() == alone


@pytest.mark.parametrize("mixer", ["elu", "softmax", HYBRID["mixer"]], ids=str)
def test_beams_with_and_without_a_cache(hf: ModuleType, mixer: Any) -> None:
    wrapped = hf.to_hf(net(**{**HYBRID, "mixer": mixer}))
    once = {**GREEDY, "repetition_penalty": 3.0}  # new models repeat themselves
    how = {**once, "num_beams": 4, "num_return_sequences": 2}
    with_cache = wrapped.generate(tokens(), **how)
    assert with_cache.shape == (4, 9 + 12)
    assert with_cache.tolist() == wrapped.generate(tokens(), **how, use_cache=False).tolist()
    assert with_cache[::2].tolist() != wrapped.generate(tokens(), **once).tolist()  # rows were reordered


def test_sampling_is_that_of_the_seed(hf: ModuleType) -> None:
    wrapped = hf.to_hf(net())
    how = {"do_sample": True, "temperature": 1.3, "top_p": 0.9, "max_new_tokens": 20}
    drawn = []
    for cache in (True, False, True):
        torch.manual_seed(5)
        drawn.append(wrapped.generate(tokens(), **how, use_cache=cache).tolist())
    assert drawn[0] == drawn[1] == drawn[2]
    torch.manual_seed(6)
    assert wrapped.generate(tokens(), **how).tolist() != drawn[0]


def test_goes_on_from_a_returned_cache(hf: ModuleType) -> None:
    wrapped, prompt = hf.to_hf(net(**HYBRID)), tokens()
    first = wrapped.generate(prompt, **GREEDY, return_dict_in_generate=True)
    kept = first.past_key_values.fork()
    both = wrapped.generate(first.sequences, past_key_values=first.past_key_values, **GREEDY)
    whole = wrapped.generate(prompt, do_sample=False, max_new_tokens=24)
    assert both.tolist() == whole.tolist()
    assert kept.get_seq_length() == 9 + 12 - 1  # the last token has not been read
    assert wrapped.generate(first.sequences, past_key_values=kept, **GREEDY).tolist() == whole.tolist()


def test_prompt_in_chunks_and_as_embeddings(hf: ModuleType) -> None:
    model = net(**HYBRID)
    wrapped, prompt = hf.to_hf(model), tokens()
    wanted = wrapped.generate(prompt, **GREEDY)
    assert wrapped.generate(prompt, **GREEDY, prefill_chunk_size=4).tolist() == wanted.tolist()
    embedded = wrapped.generate(inputs_embeds=model.embed(prompt).detach(), **GREEDY)
    assert embedded.tolist() == wanted[:, 9:].tolist()


def test_stream_of_tokens(hf: ModuleType, transformers: ModuleType) -> None:
    class Kept(transformers.generation.streamers.BaseStreamer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.tokens: list[int] = []

        def put(self, value: torch.Tensor) -> None:
            self.tokens += value.reshape(-1).tolist()

        def end(self) -> None:
            self.tokens.append(-1)

    wrapped, prompt, streamer = hf.to_hf(net()), tokens(1), Kept()
    out = wrapped.generate(prompt, **GREEDY, streamer=streamer)
    assert streamer.tokens == [*out[0].tolist(), -1]


@pytest.mark.parametrize("mixer", ["elu", ("conv", "rebased"), "window"], ids=str)
def test_cache_has_one_size_at_20_and_200_tokens(hf: ModuleType, mixer: Any) -> None:
    wrapped = hf.to_hf(net(mixer=mixer))
    sizes = []
    for new in (20, 200):
        how = {"do_sample": False, "max_new_tokens": new, "return_dict_in_generate": True}
        sizes.append(wrapped.generate(tokens(), **how).past_key_values.nbytes)
    assert sizes[0] == sizes[1] > 0


def test_cache_of_softmax_grows_by_its_keys_and_values(hf: ModuleType) -> None:
    wrapped = hf.to_hf(net(mixer=("elu", "softmax")))
    how = {"do_sample": False, "return_dict_in_generate": True}
    few, many = (wrapped.generate(tokens(), max_new_tokens=new, **how).past_key_values.nbytes for new in (20, 200))
    assert many - few == 180 * 2 * (24 + 24) * 8  # tokens, rows, k and v of one layer, bytes


DRAFTS: dict[str, Any] = {"another model": {"mixer": "elu", "init_std": 0.28}, "the same model": {}, "the prompt": None}


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("mixer", ["rebased", "softmax", HYBRID["mixer"]], ids=str)
def test_drafts_change_nothing_but_the_number_of_passes(hf: ModuleType, mixer: Any, draft: str) -> None:
    if DRAFTS[draft] is None and version("transformers").startswith("5.0."):
        pytest.skip("prompt lookup of transformers 5.0 asks for an eos token, which this model does not have")
    fields = {**HYBRID, "mixer": mixer}
    model, prompt = net(**fields), tokens(1)
    wrapped, wanted = hf.to_hf(model), greedy(model, prompt, 16)[0]
    how: dict[str, Any] = {"prompt_lookup_num_tokens": 3}
    if DRAFTS[draft] is not None:
        how = {"assistant_model": hf.to_hf(net(**(fields | DRAFTS[draft])))}
        how["assistant_model"].generation_config.num_assistant_tokens = 4
    widths: list[int] = []
    hook = model.backbone.register_forward_pre_hook(lambda _, given: widths.append(given[0].shape[1]))
    out = wrapped.generate(prompt, do_sample=False, max_new_tokens=16, **how, return_dict_in_generate=True)
    hook.remove()
    assert out.sequences.tolist() == wanted.tolist()
    cache = out.past_key_values
    read = cache.get_seq_length()
    torch.testing.assert_close(cache.state, model(wanted[:, :read])[1], **CLOSE)
    assert (cache.recording, cache.passes) == (False, [])
    assert max(widths[1:]) > 1  # drafts were read
    if draft == "the same model":
        assert len(widths) < 16


def test_a_draft_after_padding_and_by_sampling(hf: ModuleType) -> None:
    wrapped, small = hf.to_hf(net(**HYBRID)), hf.to_hf(net())
    row = tokens(1, 7)[0]
    ids = torch.cat([torch.full((3,), N), row])[None]
    mask = (ids < N).long()
    out = wrapped.generate(ids, attention_mask=mask, **GREEDY, assistant_model=small)
    assert out[0, 10:].tolist() == wrapped.generate(row[None], **GREEDY)[0, 7:].tolist()
    drawn = wrapped.generate(row[None], do_sample=True, max_new_tokens=8, assistant_model=small)
    assert drawn.shape == (1, 15)


def test_hidden_states_of_every_step(hf: ModuleType) -> None:
    model, prompt = net(**HYBRID), tokens()
    how = {**GREEDY, "return_dict_in_generate": True, "output_hidden_states": True}
    out = hf.to_hf(model).generate(prompt, **how)
    assert [len(step) for step in out.hidden_states] == [4] * 12
    wanted: list[torch.Tensor] = []
    model.backbone(model.embed(out.sequences[:, :-1]), hidden=wanted)
    for layer, whole in enumerate(wanted):
        torch.testing.assert_close(torch.cat([step[layer] for step in out.hidden_states], dim=1), whole, **CLOSE)


def test_compiled_steps_meet_one_shape(hf: ModuleType) -> None:
    """One graph for the prompt and two for a step, the second with the number of tokens as a symbol; then no more."""
    from torch._dynamo.testing import CompileCounter

    model, prompt = net(torch.float32, **HYBRID), tokens()
    wrapped, counter = hf.to_hf(model), CompileCounter()
    torch._dynamo.reset()
    wrapped.forward = torch.compile(wrapped.forward, backend=counter, fullgraph=True)
    out = wrapped.generate(prompt, do_sample=False, max_new_tokens=24, cache_implementation="static")
    assert out.tolist() == greedy(model, prompt, 24)[0].tolist()
    assert counter.frame_count <= 3
    torch._dynamo.reset()


def test_padded_rows_in_a_static_cache(hf: ModuleType) -> None:
    wrapped = hf.to_hf(net(**HYBRID))
    rows = [tokens(1, length, seed=length)[0] for length in (3, 8)]
    ids, mask = left_padded(rows, pad=N)
    out = wrapped.generate(ids, attention_mask=mask, **GREEDY, cache_implementation="static")
    assert out.tolist() == wrapped.generate(ids, attention_mask=mask, **GREEDY).tolist()


def test_what_generate_refuses(hf: ModuleType) -> None:
    wrapped, grows = hf.to_hf(net()), hf.to_hf(net(mixer=("elu", "softmax")))
    for model, rows, how, words in [
        (wrapped, 2, {"assistant_model": hf.to_hf(net())}, "only supported for batch_size = 1"),
        (wrapped, 1, {"assistant_early_exit": 1}, "assistant_early_exit is 1; accepted: None"),
        (wrapped, 1, {"cache_implementation": "quantized"}, "'quantized'; accepted: none, for a LinnetCache"),
        (grows, 1, {"cache_implementation": "static"}, "the state of the 'softmax' mixer of layer 1 grows"),
        (wrapped, 1, {"output_attentions": True, "return_dict_in_generate": True}, "output_attentions"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.generate(tokens(rows), **GREEDY, **how)
