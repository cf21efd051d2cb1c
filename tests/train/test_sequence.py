"""Sequence parallel: a sequence split over processes that relay their states is the sequence, forward and backward."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linnet.models.config import ModelConfig
from linnet.models.language import LanguageModel
from linnet.ops.state import ConvState, KVState, State
from linnet.train.distributed import ProcessGroup
from linnet.train.sequence import StateRelay, _forms, attach, time_slice
from tests.train.processes import close, together

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 has an opinion on fork

TOLERANCE = 1e-10
B, T, N, E = 3, 24, 11, 16


def model(mixer: Any, positions: str) -> LanguageModel:
    torch.manual_seed(0)
    options = {"window": {"window": 10}, "rwkv7": {"value_residual": True}}  # longer than what a rank of three holds
    options = {name: one for name, one in options.items() if name in mixer}
    sizes = {"vocab_size": N, "d_model": E, "n_heads": 2, "n_layers": 3, "max_length": T}
    made = LanguageModel(ModelConfig(mixer=mixer, positions=positions, mixer_options=options, **sizes))
    return made.double()


def batch(seed: int) -> dict[str, Tensor]:
    """Every third row is scored in its first half only: a rank with no count still has states to pass back through."""
    draw = torch.Generator().manual_seed(seed)
    tokens, targets = torch.randint(N, (2, B, T), generator=draw)
    targets[::3, T // 2 :] = -100
    return {"tokens": tokens, "targets": targets}


def work(group: ProcessGroup, mixer: Any, positions: str) -> dict[str, Tensor]:
    """Loss and gradients over two micro-batches; then outputs and the gradient of the inputs of the backbone."""
    net = model(mixer, positions)
    loss = group.wrap(net)
    sums = []
    for seed in (1, 2):
        total, n = loss(group.shard(batch(seed)))
        total.backward()
        sums.append(torch.stack([total.detach(), n.double()]))
    (total,) = group.sum(torch.stack(sums).sum(0))
    norm = group.clip(net, 7.0)
    grads = {f"gradient of {name}": p.grad.clone() for name, p in net.named_parameters()}
    x, weight = torch.randn(2, B, T, E, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    mine = group.shard({"values": x, "targets": weight})
    x = mine["values"].requires_grad_()
    out, _ = net.backbone(x, output_state=False)
    (out * mine["targets"]).sum().backward()
    with torch.no_grad():
        again, _ = net.backbone(x, output_state=False)  # nothing to send back: no pass may wait for it
    assert torch.equal(again, out)
    return {"loss": total, "norm": torch.tensor([norm]), "out": out, "gradient of inputs": x.grad, **grads}


@pytest.mark.parametrize(
    ("mixer", "positions", "world"),
    [
        ("elu", "none", 2),
        ("elu", "learned", 3),
        ("rebased", "rotary", 2),
        (["conv", "rebased"], "sinusoidal", 2),
        (["window", "conv", "elu"], "none", 3),
        (["rwkv7", "channel_mix"], "none", 2),
    ],
    ids=str,
)
def test_processes_together_are_one_process(mixer: Any, positions: str, world: int, tmp_path: Path) -> None:
    wanted = work(ProcessGroup.alone(), mixer, positions)
    ranks = together(world, "sequence", tmp_path, work, mixer, positions)
    joined = {name: torch.cat([r.pop(name) for r in ranks], dim=1) for name in ("out", "gradient of inputs")}
    for rank in ranks:  # sums and gradients are the same everywhere
        close({**rank, **joined}, wanted, TOLERANCE)


def hurried(group: ProcessGroup) -> dict[str, Tensor]:
    """Rank 0 sends much and leaves, while rank 1 has not yet begun to listen."""
    relay = StateRelay(group.rank, 2)
    group._relay = relay
    like = State(torch.zeros(1, 1, 1000, 1000), torch.zeros(1, 1, 1000))
    time.sleep(0.3 * group.rank)
    for value in (1.0, 2.0, 3.0):
        given = relay.receive(0, like)
        assert given is None or all(bool((x == value).all()) for x in given)
        relay.send(0, torch.zeros(1), State(*(torch.full_like(x, value) for x in like)))
    return {}


def test_messages_arrive_though_the_sender_has_left(tmp_path: Path) -> None:
    together(2, "sequence", tmp_path, hurried)


def refused(group: ProcessGroup) -> dict[str, Tensor]:
    loss = group.wrap(model(["elu", "softmax"], "none"))
    with pytest.raises(ValueError, match=r'layer 1 keeps every token it has read.*use "ddp" or "fsdp"'):
        loss(group.shard(batch(0)))
    return {}


def test_a_growing_state_is_refused(tmp_path: Path) -> None:
    together(2, "sequence", tmp_path, refused)
    with pytest.raises(ValueError, match="layer 4 keeps every token"):
        StateRelay(0, 2).receive(4, KVState(torch.zeros(1, 0, 1, 1), torch.zeros(1, 0, 1, 1)))


def test_parts_of_a_batch() -> None:
    whole = {"values": torch.randn(2, 6, 3), "targets": torch.randn(2, 6, 4, 1)}
    parts = [time_slice(whole, rank, 3) for rank in range(3)]
    for name, x in whole.items():
        assert torch.equal(torch.cat([p[name] for p in parts], dim=1), x)
        assert all(p[name].is_contiguous() for p in parts)
    with pytest.raises(ValueError, match="6 tokens do not divide over 4 processes; use a multiple of 4"):
        time_slice(whole, 0, 4)
    for odd in ({**whole, "lengths": torch.ones(2)}, {"values": whole["values"]}):
        with pytest.raises(ValueError, match=r'a batch of .*values cannot be split along time; .*"ddp" or "fsdp"'):
            time_slice(odd, 0, 2)


def test_only_a_causal_backbone_relays_states() -> None:
    causal = model("elu", "none")
    relay = StateRelay(0, 2)
    attach(causal, relay)
    assert causal.backbone.relay is relay
    causal.backbone.causal = False
    for other in (causal, nn.Linear(2, 2)):
        with pytest.raises(ValueError, match=f'{type(other).__name__} is not a causal backbone.*"ddp", "fsdp"'):
            attach(other, relay)


def test_a_state_of_another_form_than_announced_is_refused() -> None:
    relay = StateRelay(1, 2)
    relay._forms[0] = _forms(ConvState(torch.zeros(1, 3, 2)))
    with pytest.raises(ValueError, match=r"layer 0 ends with a state of \['\[1, 2, 2\] torch.float64'\].*\[1, 3, 2\]"):
        relay.send(0, torch.zeros(1), ConvState(torch.zeros(1, 2, 2, dtype=torch.float64)))


def test_the_first_rank_receives_and_the_last_rank_sends_nothing() -> None:
    state = State(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2))
    alone = StateRelay(0, 1)
    assert alone.receive(0, state) is None
    x = torch.ones(2)
    assert alone.send(0, x, state) is x
    assert [StateRelay(rank, 3).offset(5) for rank in range(3)] == [0, 5, 10]
