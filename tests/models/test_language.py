"""LanguageModel: teacher-forced steps equal the parallel pass, whatever the mixers, split, padding or packing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.layers import MIXERS
from linnet.models import LanguageModel, Model, ModelConfig, build, language

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
B, T, N = 2, 11, 17
HYBRIDS: list[tuple[str, ...]] = [("conv", "rebased"), ("gated_conv", "taylor", "window"), ("softmax", "elu")]


def model(**fields: Any) -> Model:
    torch.manual_seed(0)
    given = {"d_model": 24, "n_layers": 2, "n_heads": 4, "vocab_size": N, "init_std": 0.3, **fields}
    if "window" in given.get("mixer", ()):
        given["mixer_options"] = {"window": {"window": 4}}
    return build(ModelConfig(**given)).double().eval()


def tokens(rows: int = B, length: int = T) -> Tensor:
    return torch.randint(N, (rows, length), generator=torch.Generator().manual_seed(1))


def steps(net: Model, given: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    outs = []
    for t in range(given.shape[1]):
        logits, state = net.step(given[:, t], state)
        outs.append(logits)
    return torch.stack(outs, dim=1), state


VARIANTS: list[dict[str, Any]] = [
    *({"mixer": name} for name in MIXERS),
    *({"mixer": names, "n_layers": 3} for names in HYBRIDS),
    *({"positions": kind} for kind in ("learned", "sinusoidal", "rotary")),
    *({"mlp": kind} for kind in ("relu", "swiglu", "identity", "none")),
    {
        "positions": "rotary",
        "rotary_fraction": 0.7,
        "mixer": ("softmax", "retnet"),
        "mixer_options": {
            "softmax": {"gate": True, "qk_norm": True, "n_heads": 3, "head_dim": 12},
            "retnet": {"rotary": True},
        },
    },
    {
        "mixer": ("rwkv7", "channel_mix"),
        "n_layers": 5,
        "mlp": "none",
        "embed_norm": True,
        "mixer_options": {
            "rwkv7": {"value_residual": True, "rank": 3},
        },
    },
    {
        "mixer": ("rwkv4", "channel_mix"),
        "n_layers": 4,
        "rescale_every": 2,
        "mixer_options": {
            "channel_mix": {"gate": True, "hidden": 7},
        },
    },
    {"norm": "rms", "norm_place": "post", "tie_embeddings": False, "n_kv_heads": 2, "dropout": 0.2},
]


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_steps_equal_the_parallel_pass(fields: dict[str, Any]) -> None:
    net, given = model(**fields), tokens()
    logits, final = net(given)
    stepped, state = steps(net, given)
    torch.testing.assert_close(stepped, logits, **CLOSE)
    torch.testing.assert_close(state, final, **CLOSE)
    head, half = net(given[:, :4])
    tail, end = net(given[:, 4:], half)
    torch.testing.assert_close(torch.cat((head, tail), dim=1), logits, **CLOSE)
    torch.testing.assert_close(end.position, final.position)


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_padding_and_packing_change_nothing(fields: dict[str, Any]) -> None:
    net, given = model(**fields), tokens(1)
    logits, _ = net(given)
    mask = torch.tensor([[False, False, *[True] * T, False]])
    padded = torch.zeros(1, T + 3, dtype=torch.long)
    padded[mask] = given[0]
    out, state = net(padded, mask=mask)
    torch.testing.assert_close(out[mask], logits[0], **CLOSE)
    assert state.position.tolist() == [T]
    after, _ = net.step(given[:, 0], state)
    torch.testing.assert_close(after, net(torch.cat((given, given[:, :1]), dim=1))[0][:, -1], **CLOSE)
    packed, ends = net(torch.cat((given[:, :5], given), dim=1), cu_seqlens=torch.tensor([0, 5, 5 + T]))
    torch.testing.assert_close(packed[:, 5:], logits, **CLOSE)
    torch.testing.assert_close(packed[:, :5], logits[:, :5], **CLOSE)
    assert ends.position.tolist() == [5, T]


def test_rescaling_is_halving_the_residual_path() -> None:
    """The eps of ModelConfig.eps_at against numbers that are really halved, with the matrices that add to them."""
    options = {"channel_mix": {"gate": True}}
    net = model(
        mixer=("rwkv4", "channel_mix"), n_layers=5, mlp="none", rescale_every=2, norm_eps=0.1, mixer_options=options
    )
    plain = model(mixer=("rwkv4", "channel_mix"), n_layers=5, mlp="none", norm_eps=0.1, mixer_options=options)
    plain.load_state_dict(net.state_dict())
    x = plain.embed(tokens())
    with torch.no_grad():
        for i, block in enumerate(plain.backbone.layers):
            block.mixer.out.weight /= 2 ** (i // 2)
            if block.mixer.out.bias is not None:
                block.mixer.out.bias /= 2 ** (i // 2)
            x = block(x)[0] / (2 if (i + 1) % 2 == 0 else 1)
        want = plain.apply_head(plain.backbone.norm(x), tokens())
    torch.testing.assert_close(net(tokens())[0], want, **CLOSE)
    assert not torch.allclose(plain(tokens())[0], want)


def test_later_layers_read_the_values_of_the_first() -> None:
    options = {"rwkv7": {"value_residual": True}}
    net = model(mixer="rwkv7", n_layers=3, mixer_options=options)
    first, *later = (block.mixer for block in net.backbone.layers)
    assert first.value_in is None
    net.loss({"tokens": tokens(), "targets": tokens()})[0].backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
    before = net(tokens())[0]
    for layer in later:
        layer.value_bias.data.fill_(-1e9)  # nothing of them
    assert not torch.allclose(net(tokens())[0], before)
    for layer in later:
        layer.v.weight.data.zero_()
        layer.v.bias.data.zero_()
        layer.value_bias.data.fill_(1e9)  # nothing else
    assert net(tokens())[0].isfinite().all()
    with pytest.raises(ValueError, match="call it as part of its model"):
        later[0](torch.zeros(1, 2, 24, dtype=torch.float64))


def test_the_loss_is_the_mean_cross_entropy_of_real_targets() -> None:
    net, given = model(), tokens()
    targets = given.roll(-1, 1).clone()
    targets[0, 3:] = -100
    total, n = net.loss({"tokens": given, "targets": targets})
    logp = net(given)[0].log_softmax(-1)
    wanted = -sum(logp[b, t, targets[b, t]] for b in range(B) for t in range(T) if targets[b, t] >= 0)
    assert n.item() == 3 + T
    assert total.item() == pytest.approx(wanted.item(), rel=1e-6)
    shown = net.metrics({"tokens": given, "targets": targets})
    assert (shown["bits"][0] / shown["loss"][0]).item() == pytest.approx(1.4426950408889634)


@pytest.mark.parametrize("tied", [True, False])
def test_answers_are_the_likeliest_tokens_where_there_is_a_target(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    net, given = model(mixer=("conv", "rebased"), tie_embeddings=tied), tokens()
    assert isinstance(net, LanguageModel)
    targets = torch.full((B, T), -100)
    targets[0, [2, 7]], targets[1, [0, 3, T - 1]] = torch.tensor([4, 9]), torch.tensor([1, 16, 0])
    predicted, wanted = net.predictions({"tokens": given, "targets": targets})
    assert wanted.tolist() == [4, 9, 1, 16, 0]
    assert torch.equal(predicted, net(given)[0].argmax(-1)[targets != -100])
    assert len(set(predicted.tolist())) > 1
    monkeypatch.setattr(language, "SCORES", 2 * N)  # in blocks of two
    assert torch.equal(net.predictions({"tokens": given, "targets": targets})[0], predicted)
    none, either = net.predictions({"tokens": given, "targets": torch.full((B, T), -100)})
    assert none.shape == either.shape == (0,)
    with pytest.raises(ValueError, match="token 17 at \\[0, 0\\] is outside the vocabulary of 17"):
        net.predictions({"tokens": given, "targets": torch.full((B, T), N)})


def test_a_tiny_text_is_learned_by_heart() -> None:
    torch.manual_seed(0)
    net = build(ModelConfig(d_model=32, n_layers=2, n_heads=4, vocab_size=N, positions="rotary"))
    given = tokens(1, 16)
    batch = {"tokens": given[:, :-1], "targets": given[:, 1:]}
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(60):
        total, n = net.loss(batch)
        optimizer.zero_grad()
        (total / n).backward()
        optimizer.step()
    assert (total / n).item() < 0.05


def test_to_a_folder_and_back(tmp_path: Path) -> None:
    net = model(mixer=("conv", "rebased")).float()
    net.save_pretrained(tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    again = LanguageModel.from_pretrained(tmp_path / "model").eval()
    assert torch.equal(again(tokens())[0], net(tokens())[0])
    assert again.fingerprint() == net.fingerprint()
    again.embed.weight.data[0, 0] += 1
    assert again.fingerprint() != net.fingerprint()


@pytest.mark.parametrize("fields", [{"positions": "sinusoidal"}, {"mixer": "favor"}], ids=str)
def test_single_numbers_are_part_of_the_fingerprint(fields: dict[str, Any]) -> None:
    net = model(**fields)
    before = net.fingerprint()
    single = next(x for x in net.state_dict().values() if x.ndim == 0)
    single += 1
    assert net.fingerprint() != before


def test_states_are_values() -> None:
    net = model(mixer=("conv", "elu"))
    _, state = net(tokens())
    kept = state.clone()
    ahead, _ = net.step(tokens()[:, 0], state)
    torch.testing.assert_close(state, kept)
    row, _ = net.step(tokens()[1:, 0], state.select([1]))
    torch.testing.assert_close(row, ahead[1:], **CLOSE)
    assert state.nbytes == net.state_bytes(T, torch.float64) * B


def test_bad_input_is_named(tmp_path: Path) -> None:
    net = model()
    with pytest.raises(ValueError, match=r"token 17 at \[0, 2\] is outside the vocabulary of 17; accepted: 0 to 16"):
        net(torch.tensor([[0, 1, 17]]))
    with pytest.raises(ValueError, match="token -1 at"):
        net.loss({"tokens": torch.tensor([[0]]), "targets": torch.tensor([[-1]])})
    with pytest.raises(ValueError, match=r"tokens have dtype torch\.float32"):
        net(torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"config\.json does not exist"):
        Model.from_pretrained(tmp_path)
    net.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        Model.from_pretrained(tmp_path)
    model(d_model=48).save_pretrained(tmp_path / "wide")
    (tmp_path / "wide" / "config.json").write_text((tmp_path / "config.json").read_text())
    with pytest.raises(
        ValueError, match=r"'embed\.weight' has shape \[17, 48\] where the configuration says \[17, 24\]"
    ):
        Model.from_pretrained(tmp_path / "wide")
