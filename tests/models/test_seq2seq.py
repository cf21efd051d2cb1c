"""EncoderDecoder: steps equal the parallel pass, the source is encoded once and is a value, padding changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.layers import CAUSAL_ONLY, MIXERS
from linnet.models import ModelConfig, build
from linnet.models.seq2seq import EncoderDecoder
from linnet.ops.state import KVState, State
from tests.models.heads import EXACT, again, learned, small, stepped

B, S, T, SOURCE, TARGET = 3, 8, 6, 11, 7
LENGTHS = torch.tensor([8, 5, 1])
BOTH_WAYS = [name for name in MIXERS if name not in CAUSAL_ONLY]  # the encoder looks ahead


def translator(**fields: Any) -> Any:
    return small("translate", **{"source_vocab_size": SOURCE, "vocab_size": TARGET, "n_encoder_layers": 1, **fields})


def tokens(n: int, *shape: int) -> Tensor:
    return torch.randint(n, shape, generator=torch.Generator().manual_seed(n))


def batch() -> dict[str, Tensor]:
    target = tokens(TARGET, B, T + 1)
    later = target[:, 1:].clone()
    later[1, 4:] = -100
    return {"source": tokens(SOURCE, B, S), "source_lengths": LENGTHS, "tokens": target[:, :-1], "targets": later}


@pytest.mark.parametrize("mixer", BOTH_WAYS)
def test_steps_equal_the_parallel_pass(mixer: str) -> None:
    model, given = translator(mixer=mixer), batch()
    source = model.encode(given["source"], LENGTHS)
    logits, final = model.decode(given["tokens"], source)
    outs, state = stepped(model, given["tokens"], source)
    torch.testing.assert_close(outs, logits, **EXACT)
    torch.testing.assert_close(state, final, **EXACT)
    first, half = model.decode(given["tokens"][:, :2], source)
    rest, _ = model.decode(given["tokens"][:, 2:], source, half)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), logits, **EXACT)
    whole, _ = model(given["source"], given["tokens"], source_lengths=LENGTHS)
    torch.testing.assert_close(whole, logits, **EXACT)


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "rotary"])
@pytest.mark.parametrize("mixer", ["elu", "rebased", "softmax", "conv"])
def test_padding_of_the_source_changes_nothing(mixer: str, positions: str) -> None:
    model, given = translator(mixer=mixer, positions=positions), batch()
    logits, _ = model(given["source"], given["tokens"], source_lengths=LENGTHS)
    for b, n in enumerate(LENGTHS):
        alone, _ = model(given["source"][b : b + 1, :n], given["tokens"][b : b + 1])
        torch.testing.assert_close(logits[b], alone[0], **EXACT)


@pytest.mark.parametrize("mixer", ["elu", "softmax"])
def test_every_target_token_sees_the_whole_source(mixer: str) -> None:
    model, given = translator(mixer=mixer), batch()
    before, _ = model(given["source"], given["tokens"])
    changed = given["source"].clone()
    changed[:, -1] = (changed[:, -1] + 1) % SOURCE
    after, _ = model(changed, given["tokens"])
    assert (after - before).abs().amax(-1).min() > 1e-6


def test_the_encoder_reads_both_ways() -> None:
    model = translator(positions="sinusoidal")
    x = model.embed_source(tokens(SOURCE, 1, S)).detach().requires_grad_()
    (grad,) = torch.autograd.grad(model.encoder(x)[0][0, 3, 0], x)
    assert grad[0].abs().sum(-1).min() > 0


def test_a_linear_source_has_one_size_and_a_softmax_source_grows() -> None:
    for mixer, kind in (("elu", State), ("softmax", KVState)):
        model = translator(mixer=mixer)
        short, long = (model.encode(tokens(SOURCE, B, n)) for n in (4, 64))
        assert len(short.layers) == model.config.n_layers
        assert all(type(layer) is kind for layer in short.layers)
        assert long.nbytes == short.nbytes if mixer == "elu" else long.nbytes == 16 * short.nbytes


def test_a_source_is_a_value() -> None:
    model, given = translator(), batch()
    source = model.encode(given["source"], LENGTHS)
    kept = [tuple(x.clone() for x in layer) for layer in source.layers]
    logits, _ = model.step(given["tokens"][:, 0], source)
    picked, _ = model.step(given["tokens"][[2, 0, 2], 0], source.select([2, 0, 2]))
    torch.testing.assert_close(picked, logits[[2, 0, 2]], **EXACT)
    assert all(torch.equal(x, y) for a, b in zip(source.layers, kept, strict=True) for x, y in zip(a, b, strict=True))


def test_cross_attention_takes_the_first_mixer_that_can() -> None:
    cross = [block.cross.feature_map for block in translator(mixer=("conv", "rebased")).backbone.blocks]
    assert [type(phi).__name__ for phi in cross] == ["ReBased", "ReBased"]
    assert translator(mixer="conv").backbone.blocks[0].cross.feature_map is None
    assert len(translator(n_encoder_layers=0, n_layers=3).blocks) == 6
    with pytest.raises(ValueError, match="mixer 'window' looks back only"):
        translator(mixer="window")


@pytest.mark.parametrize("tied", [True, False])
def test_loss_and_metrics(tied: bool) -> None:
    model, given = translator(tie_embeddings=tied), batch()
    logp = model(given["source"], given["tokens"], source_lengths=LENGTHS)[0].log_softmax(-1)
    scored = [(b, t) for b in range(B) for t in range(T) if given["targets"][b, t] >= 0]
    total, n = model.loss(given)
    torch.testing.assert_close(total, -sum(logp[b, t, given["targets"][b, t]] for b, t in scored), **EXACT)
    assert n.item() == len(scored) == B * T - 2
    right = sum(int(logp[b, t].argmax() == given["targets"][b, t]) for b, t in scored)
    shown = model.metrics(given)
    assert (shown["accuracy"][0].item(), shown["accuracy"][1].item()) == (right, n.item())
    assert shown["loss"][0].item() == total.item()


@pytest.mark.parametrize("mixer", ["elu", "softmax"])
def test_a_few_pairs_are_learned_by_heart(mixer: str) -> None:
    torch.manual_seed(0)
    shape = {"d_model": 32, "n_layers": 2, "n_heads": 4, "source_vocab_size": SOURCE, "vocab_size": TARGET}
    model = build(ModelConfig(task="translate", mixer=mixer, positions="sinusoidal", **shape))
    assert learned(model, batch(), steps=100) < 0.1


def test_to_a_folder_and_back(tmp_path: Path) -> None:
    model, given = translator(), batch()
    other = again(model, tmp_path)
    assert isinstance(other, EncoderDecoder)
    assert torch.equal(other(given["source"], given["tokens"])[0], model(given["source"], given["tokens"])[0])


def test_bad_input_is_named() -> None:
    model, given = translator(), batch()
    with pytest.raises(ValueError, match=r"token 11 at \[0, 0\] is outside the vocabulary of 11"):
        model.encode(torch.full((1, 2), SOURCE))
    with pytest.raises(ValueError, match=r"token 7 at \[0, 0\] is outside the vocabulary of 7"):
        model.decode(torch.full((1, 2), TARGET), model.encode(given["source"][:1]))
    with pytest.raises(ValueError, match="row 2 has length 9; accepted: 1 to 8"):
        model.loss({**given, "source_lengths": torch.tensor([8, 5, 9])})
