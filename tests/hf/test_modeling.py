"""The Hugging Face models equal linnet's: logits, losses, states, with and without padding and a cache."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from linnet.models import Classifier, ModelConfig, build
from tests.hf.nets import HYBRID, PUBLISHED, VARIANTS, N, left_padded, net, tokens

pytestmark = pytest.mark.slow
CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_logits_loss_and_state(hf: ModuleType, fields: dict[str, Any]) -> None:
    model, given = net(**fields), tokens()
    wrapped = hf.to_hf(model)
    with torch.no_grad():
        out, (logits, state) = wrapped(given, labels=given), model(given)
        total, count = model.loss({"tokens": given[:, :-1], "targets": given[:, 1:]})
    torch.testing.assert_close(out.logits, logits, rtol=0, atol=0)
    torch.testing.assert_close(out.past_key_values.state, state, rtol=0, atol=0)
    torch.testing.assert_close(out.loss, (total / count).to(out.loss.dtype), rtol=1e-6, atol=1e-6)  # float32 by default
    with torch.no_grad():
        first = wrapped(given[:, :5])
        second = wrapped(given[:, 5:6], past_key_values=first.past_key_values)
        third = wrapped(given[:, 6:], past_key_values=second.past_key_values)
    parts = torch.cat([first.logits, second.logits, third.logits], dim=1)
    torch.testing.assert_close(parts, logits, **CLOSE)
    assert third.past_key_values.get_seq_length() == given.shape[1]


@pytest.mark.parametrize("pad", [0, N + 5], ids=["a token", "no token at all"])
@pytest.mark.parametrize("mixer", ["elu", "softmax", HYBRID["mixer"]], ids=str)
def test_padding_touches_neither_logits_nor_state(hf: ModuleType, mixer: Any, pad: int) -> None:
    model = net(**{**HYBRID, "mixer": mixer})
    rows = [tokens(1, length, seed=length)[0] for length in (3, 8, 5)]
    ids, mask = left_padded(rows, pad)
    with torch.no_grad():
        out = hf.to_hf(model)(ids, attention_mask=mask)
        for i, row in enumerate(rows):
            logits, state = model(row[None])
            torch.testing.assert_close(out.logits[i, -len(row) :], logits[0], **CLOSE)
            assert int(out.past_key_values.state.position[i]) == len(row)
            more = torch.full((3, 1), 7)
            after, _ = model.step(more[i], state)
            cache = out.past_key_values.fork()
            torch.testing.assert_close(hf.to_hf(model)(more, past_key_values=cache).logits[i, 0], after[0], **CLOSE)


def test_logits_to_keep_and_embeddings(hf: ModuleType) -> None:
    model, given = net(), tokens()
    wrapped = hf.to_hf(model)
    with torch.no_grad():
        every = wrapped(given).logits
        torch.testing.assert_close(wrapped(given, logits_to_keep=2).logits, every[:, -2:], **CLOSE)
        kept = wrapped(given, logits_to_keep=torch.tensor([1, 4])).logits
        torch.testing.assert_close(kept, every[:, [1, 4]], **CLOSE)
        torch.testing.assert_close(wrapped(inputs_embeds=model.embed(given)).logits, every, **CLOSE)
        assert isinstance(wrapped(given, return_dict=False), tuple)


def test_base_model_has_the_last_hidden_state(hf: ModuleType, transformers: ModuleType, tmp_path: Path) -> None:
    model, given = net(tie_embeddings=False), tokens()
    hf.to_hf(model).save_pretrained(tmp_path)
    base = transformers.AutoModel.from_pretrained(tmp_path)
    assert type(base) is hf.LinnetModel
    with torch.no_grad():
        hidden, _ = model.backbone(model.embed(given))
        torch.testing.assert_close(base(given).last_hidden_state, hidden, **CLOSE)


@pytest.mark.parametrize("fields", [{"mixer": "favor", "tie_embeddings": False}, HYBRID, *PUBLISHED], ids=str)
def test_saved_and_loaded_offline(
    hf: ModuleType, transformers: ModuleType, tmp_path: Path, fields: dict[str, Any]
) -> None:
    model = net(torch.float32, **fields)
    hf.to_hf(model).save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is hf.LinnetForCausalLM
    assert again.model.config == model.config
    assert again.model.fingerprint() == model.fingerprint()
    assert not again.training


def test_half_precision_keeps_random_features_whole(hf: ModuleType, tmp_path: Path) -> None:
    model = net(torch.float32, mixer="favor")
    hf.to_hf(model).save_pretrained(tmp_path)
    again = hf.LinnetForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    kinds = {name.rpartition(".")[2]: x.dtype for name, x in again.state_dict().items()}
    assert kinds["projection"] == torch.float32
    assert kinds["weight"] == torch.bfloat16


def test_new_models_begin_as_linnet_begins(hf: ModuleType) -> None:
    config = hf.LinnetConfig(d_model=24, n_layers=2, n_heads=4, vocab_size=N)
    torch.manual_seed(3)
    model = hf.LinnetForCausalLM(config)
    torch.manual_seed(3)
    assert model.model.fingerprint() == build(config.model_config("language")).fingerprint()


def test_classifier_on_padded_tokens(hf: ModuleType) -> None:
    for causal in (True, False):
        torch.manual_seed(0)
        config = ModelConfig(
            task="classify", vocab_size=5, source_vocab_size=N, d_model=24, n_layers=2, n_heads=4, causal=causal
        )
        model = build(config).double().eval()
        rows = [tokens(1, length, seed=length)[0] for length in (4, 9)]
        ids, mask = left_padded(rows, pad=N)
        labels = torch.tensor([2, 4])
        with torch.no_grad():
            out = hf.to_hf(model)(ids, attention_mask=mask, labels=labels)
            wanted = torch.cat([model(row[None])[0] for row in rows])
        torch.testing.assert_close(out.logits, wanted, **CLOSE)
        torch.testing.assert_close(out.loss, torch.nn.functional.cross_entropy(wanted, labels), **CLOSE)


@pytest.mark.parametrize("labels", [3, N], ids=["other sizes", "the size of its head"])
def test_classifier_from_a_language_model(
    hf: ModuleType, transformers: ModuleType, tmp_path: Path, labels: int
) -> None:
    model = net(mixer=("conv", "rebased"), tie_embeddings=False)
    hf.to_hf(model).save_pretrained(tmp_path / "language")
    auto = transformers.AutoModelForSequenceClassification
    made = auto.from_pretrained(tmp_path / "language", num_labels=labels)
    assert isinstance(made.classifier, Classifier)
    for name, x in model.backbone.state_dict().items():
        torch.testing.assert_close(made.classifier.backbone.state_dict()[name], x, rtol=0, atol=0)
    torch.testing.assert_close(made.classifier.inputs.embed.weight, model.embed.weight, rtol=0, atol=0)
    head = made.classifier.head.weight
    assert head.shape == (labels, 24)
    assert not torch.equal(head, made.classifier.inputs.embed.weight[:labels])
    assert model.head is not None
    assert not torch.equal(head, model.head.weight[:labels])
    assert 0.1 < float(head.detach().std()) < 0.6  # init_std, not uninitialised memory
    made.save_pretrained(tmp_path / "classes")
    assert set(load_file(tmp_path / "classes" / "model.safetensors")) == set(made.state_dict())
    again = auto.from_pretrained(tmp_path / "classes")
    assert again.classifier.fingerprint() == made.classifier.fingerprint()


def test_more_tokens(hf: ModuleType) -> None:
    for tied in (True, False):
        wrapped = hf.to_hf(net(tie_embeddings=tied))
        with torch.no_grad():
            before = wrapped(tokens()).logits
            wrapped.resize_token_embeddings(N + 3)
            after = wrapped(torch.cat([tokens(), torch.full((2, 1), N + 2)], dim=1)).logits
        assert after.shape == (2, 10, N + 3)
        assert wrapped.config.vocab_size == wrapped.model.config.vocab_size == N + 3
        torch.testing.assert_close(after[:, :9, :N], before, **CLOSE)


def test_what_is_refused(hf: ModuleType, transformers: ModuleType) -> None:
    wrapped, given = hf.to_hf(net()), tokens()
    for kwargs, words in [
        ({"input_ids": given, "past_key_values": transformers.DynamicCache()}, "is a DynamicCache; accepted: a Linnet"),
        ({"input_ids": given, "attention_mask": torch.ones(2, 1, 9, 9)}, r"shape \[2, 1, 9, 9\]; accepted: \[batch"),
        ({"input_ids": given, "output_attentions": True}, "output_attentions is True; accepted: False"),
        ({"input_ids": given, "labels": given + N}, "outside the vocabulary"),
        ({}, "either input_ids"),
        ({"input_ids": given + N}, "outside the vocabulary"),
    ]:
        with pytest.raises(ValueError, match=words):
            wrapped(**kwargs)
    wrapped.config._attn_implementation = "eager"  # otherwise transformers itself refuses the next line
    wrapped.config.output_attentions = True
    with pytest.raises(ValueError, match="output_attentions is True; accepted: False"):
        wrapped(given)


@pytest.mark.parametrize("fields", [HYBRID, {"norm_place": "post", "positions": "learned"}], ids=str)
def test_hidden_states_by_keyword_and_by_configuration(hf: ModuleType, fields: dict[str, Any]) -> None:
    model, given = net(**fields), tokens()
    wanted = [model.embed(given) + (0 if model.backbone.positions is None else model.backbone.positions.weight[:9])]
    for block in model.backbone.layers:
        turns = model.backbone._rotations(torch.arange(9)[None], wanted[0])
        turn = turns.get(block.mixer.rotary_width)
        wanted.append(block(wanted[-1], output_state=False, positions=turn)[0])
    wanted[-1] = model.backbone.norm(wanted[-1])
    classifier = hf.LinnetForSequenceClassification(hf.to_hf(model).config).double()
    classifier.classifier.inputs.embed, classifier.classifier.backbone = model.embed, model.backbone
    base = hf.LinnetModel(hf.to_hf(model).config).double()
    base.embed, base.backbone = model.embed, model.backbone
    for wrapped in (hf.to_hf(model), classifier, base):
        assert wrapped(given).hidden_states is None
        asked = wrapped(given, output_hidden_states=True)
        wrapped.config.output_hidden_states = True
        for out in (asked, wrapped(given)):
            torch.testing.assert_close(list(out.hidden_states), wanted, **CLOSE)
        assert wrapped(given, output_hidden_states=False).hidden_states is None
        wrapped.config.return_dict = False
        assert isinstance(wrapped(given), tuple)


@pytest.mark.parametrize(("fields", "every"), [(HYBRID, 1), (HYBRID, 2), *((f, 1) for f in PUBLISHED)], ids=str)
def test_checkpointed_blocks_give_the_same_gradients(hf: ModuleType, fields: dict[str, Any], every: int) -> None:
    results = []
    for light in (False, True):
        model = net(torch.float32 if fields is HYBRID else torch.float64, **{**fields, "n_layers": 6}, dropout=0.1)
        wrapped = hf.to_hf(model).train()
        if light:
            wrapped._set_gradient_checkpointing(every_n_layers=every)
        assert wrapped.gradient_checkpointing is light
        seen: list[int] = []
        for block in model.backbone.layers:
            block.mixer.register_forward_hook(lambda *_, into=seen: into.append(1))
        torch.manual_seed(1)
        loss = wrapped(tokens(), labels=tokens()).loss
        loss.backward()
        assert len(seen) == 6 + (6 // every if light else 0)  # those are computed twice
        results.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # it has another name from transformers 6 on
def test_checkpointing_keeps_less_for_the_backward_pass(hf: ModuleType) -> None:
    kept = []
    for light in (False, True):
        wrapped = hf.to_hf(net(torch.float32, n_layers=6)).train()
        if light:
            wrapped.gradient_checkpointing_enable()
        bytes_of: dict[int, int] = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, into=bytes_of: into.setdefault(x.data_ptr(), x.nbytes) and x, lambda x: x
        ):
            loss = wrapped(tokens(2, 200), labels=tokens(2, 200)).loss
        kept.append(sum(bytes_of.values()))
        loss.backward()
        wrapped.gradient_checkpointing_disable()
        assert not wrapped.gradient_checkpointing
    assert kept[1] < 0.6 * kept[0]
