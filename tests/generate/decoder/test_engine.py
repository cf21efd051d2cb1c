"""The native decoder against the torch model: every mixer, dtype of weights and batch size, step by step."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linnet.feature_maps as fm
from linnet.errors import BackendError, StateError
from linnet.feature_maps import FEATURE_MAPS
from linnet.generate import open_engine
from linnet.generate.decoder.engine import NativeEngine
from linnet.layers import RECURRENT_MIXERS, SoftmaxAttention
from linnet.layers.norm import RMSNorm
from linnet.models import ModelConfig, ModelState, StreamModel, build, preset
from linnet.native.library import info, library, use_isa

pytestmark = pytest.mark.skipif(library() is None, reason="the native library is not built")

STEPS, ROWS, VOCAB = 1000, 2, 40
# Relative to the largest logit. The float64 pass over the whole sequence is the reference; the float32 pass of torch
# shows the effect of rounding alone, which is large for kernels of both signs.
FLOAT32, TIMES = 2e-5, 20.0
STORED = {
    "float32": 0.0,
    "bfloat16": 0.03,
    "int8": 0.06,
}  # change by rounded weights, of the largest logit


def model_of(mixer: Any, *, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> StreamModel:
    """Return a small model with weights large enough for every part to matter."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 32, "n_layers": 2, "n_heads": 4, "mixer": mixer}
    model = build(ModelConfig(**(shape | changes))).eval()
    assert isinstance(model, StreamModel)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_(torch.randn_like(p) * 0.1) if p.ndim < 2 or "feature_map" in name else p.mul_(4)
    return model.to(dtype)


def tokens_of(rows: int, steps: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB, (rows, steps), generator=torch.Generator().manual_seed(seed))


def decoded(engine: NativeEngine, rows: list[int], tokens: Tensor) -> Tensor:
    return torch.stack([engine.step(tokens[:, t], rows) for t in range(tokens.shape[1])], dim=1)


def largest(x: Tensor) -> float:
    return float(x.abs().max())


def states(state: ModelState) -> list[Tensor]:
    return [x for layer in state.layers for x in layer if x is not None]


WINDOW = "original_max_position_embeddings"
YARN = {"rope_type": "yarn", "factor": 4.0, WINDOW: 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, WINDOW: 64}
PLAIN = (*FEATURE_MAPS, "softmax", "conv", "gated_conv", "channel_mix")
OPTIONS: dict[str, dict[str, Any]] = {name: {"mixer": name} for name in PLAIN} | {
    "window": {"mixer": "window", "mixer_options": {"window": {"window": 19}}},
    "cubic": {"mixer": "polynomial", "mixer_options": {"polynomial": {"degree": 4, "bias": 0.7}}},
    "hedgehog halves": {"mixer": "hedgehog", "mixer_options": {"hedgehog": {"activation": "halves", "bias": True}}},
    "hedgehog exp": {"mixer": "hedgehog", "mixer_options": {"hedgehog": {"activation": "exp", "tie_qk": True}}},
    "antithetic favor": {"mixer": "favor", "mixer_options": {"favor": {"antithetic": True, "num_features": 12}}},
    "per head": {"mixer": "rebased", "mixer_options": {"rebased": {"norm_scope": "per_head", "affine": "shared"}}},
    "rebased square": {"mixer": "rebased", "mixer_options": {"rebased": {"square": "elementwise", "tie_qk": True}}},
    "wide dpfp": {"mixer": "dpfp", "mixer_options": {"dpfp": {"nu": 3}}},
    "taylor of order 3": {"mixer": "taylor_full", "mixer_options": {"taylor_full": {"order": 3}}, "key_dim": 4},
    "based": {"mixer": "based", "key_dim": 5, "head_dim": 9},
    "hybrid learned": {"mixer": ("conv", "rebased", "softmax", "window"), "n_layers": 4, "positions": "learned"},
    "hybrid rotary": {"mixer": ("rebased", "softmax", "window"), "n_layers": 3, "positions": "rotary", "n_kv_heads": 2},
    "sinusoidal post": {"mixer": "elu", "positions": "sinusoidal", "norm_place": "post", "mlp": "relu", "d_model": 36},
    "odd sizes": {"mixer": "elu", "d_model": 37, "n_heads": 3, "head_dim": 5, "key_dim": 7, "tie_embeddings": False},
    "swiglu rms": {"mixer": ("gated_conv", "taylor"), "mlp": "swiglu", "norm": "rms", "d_ff": 70, "bias": False},
    "no mlp": {"mixer": "elu", "mlp": "none"},
    "identity mlp": {"mixer": ("conv", "elu"), "mlp": "identity", "norm_place": "post"},
    "grouped hedgehog": {"mixer": "hedgehog", "n_kv_heads": 2},
    "one key-value head": {"mixer": ("softmax", "elu"), "n_kv_heads": 1},
    "yarn": {"mixer": ("softmax", "elu"), "positions": "rotary", "rotary_scaling": YARN},
    "llama3 and biases": {
        "mixer": ("softmax", "window"), "positions": "rotary", "bias": False, "attention_bias": True, "mlp": "swiglu",
        "rotary_scaling": LLAMA3,
    },
    "bias of the mlp": {"mixer": ("softmax", "elu"), "bias": False, "mlp_bias": True, "mlp": "swiglu"},
    "published attention": {
        "mixer": ("softmax", "window", "elu"), "n_layers": 3, "positions": "rotary", "rotary_fraction": 0.5,
        "mixer_options": {
            "softmax": {"gate": True, "qk_norm": True, "n_kv_heads": 2},
            "window": {"window": 19, "gate": True, "head_dim": 6, "key_dim": 8},
            "elu": {"qk_norm": True, "qk_norm_eps": 0.1},
        },
    },
    "partial yarn": {"mixer": "softmax", "positions": "rotary", "rotary_scaling": YARN, "rotary_fraction": 0.25},
    "retnet rotary": {"mixer": "retnet", "mixer_options": {"retnet": {"rotary": True, "norm": "rms"}}, "key_dim": 6},
    "denominator": {"mixer": "elu", "mixer_options": {"elu": {"denominator_eps": 0.5}}},
} | {name: {"mixer": name} for name in RECURRENT_MIXERS} | {
    "retnet rms": {"mixer": "retnet", "mixer_options": {"retnet": {"norm": "rms", "norm_eps": 1e-3, "gate": False}}},
    "wide retnet": {"mixer": "retnet", "key_dim": 7, "head_dim": 70, "bias": False, "n_heads": 3, "d_model": 36},
    "gla rank": {
        "mixer": "gla", "mixer_options": {"gla": {"rank": 3, "gate_normalizer": 5, "norm": "layer", "scale": 0.7}},
        "key_dim": 11, "head_dim": 19,
    },
    "mamba2 groups": {
        "mixer": "mamba2", "key_dim": 5, "head_dim": 9, "mlp": "none", "positions": "learned", "bias": False,
        "mixer_options": {
            "mamba2": {"n_groups": 2, "kernel_size": 1, "conv_bias": False, "norm_eps": 0.1, "dt_limit": [0.01, 0.05]},
        },
    },
    "delta without convolution": {
        "mixer": "delta", "mixer_options": {"delta": {"conv": 0, "negative": True, "gate": True, "scale": 1.0}},
        "norm_place": "post",
    },
    "delta of few key heads": {
        "mixer": ("delta", "gated_delta"), "key_dim": 12, "head_dim": 40,
        "mixer_options": {
            "delta": {"key_heads": 1, "conv": 2, "conv_bias": True, "norm_eps": 0.1, "qk_eps": 0.5},
            "gated_delta": {"key_heads": 2, "conv": 1, "gate": False, "negative": True},
        },
    },
    "kda rank": {
        "mixer": ("kda", "softmax"), "key_dim": 6, "head_dim": 34, "positions": "rotary", "bias": False,
        "mixer_options": {"kda": {"rank": 5, "gate": False, "key_heads": 2, "negative": True, "conv": 0}},
    },
    "kda": {"mixer": "kda", "head_dim": 40, "mixer_options": {"kda": {"rank": 33}}},
    "mamba sizes": {
        "mixer": "mamba", "d_model": 22, "n_heads": 2, "mlp": "none", "bias": False,
        "mixer_options": {"mamba": {"d_state": 3, "expand": 3, "kernel_size": 1, "dt_rank": 5, "conv_bias": False}},
    },
    "rwkv": {"mixer": ("rwkv4", "rwkv7"), "d_model": 30, "n_heads": 3, "norm_place": "post", "mlp": "swiglu"},
    "rwkv4 model": {
        "mixer": ("rwkv4", "channel_mix"), "mlp": "none", "n_layers": 6, "embed_norm": True, "rescale_every": 2,
        "bias": False, "d_model": 30, "n_heads": 3, "tie_embeddings": False, "norm_eps": 0.1,
        "mixer_options": {"channel_mix": {"gate": True, "hidden": 50}},
    },
    "rwkv7 model": {
        "mixer": ("rwkv7", "channel_mix"), "mlp": "none", "n_layers": 6, "embed_norm": True, "bias": False,
        "mixer_options": {
            "rwkv7": {"value_residual": True, "decay_rank": 5, "rate_rank": 3, "gate_rank": 7, "value_rank": 2},
            "channel_mix": {"bias": True},
        },
    },
    "rwkv7 rank": {
        "mixer": "rwkv7", "key_dim": 35, "head_dim": 18, "bias": False,
        "mixer_options": {"rwkv7": {"rank": 4, "norm_eps": 1e-5}},
    },
}  # fmt: skip
HYBRIDS = [("retnet", "gla", "mamba2"), ("delta", "gated_delta", "kda"), ("mamba", "rwkv4", "rwkv7")]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_mixer_equals_torch_over_a_thousand_steps(name: str) -> None:
    model, tokens = model_of(**OPTIONS[name]), tokens_of(ROWS, STEPS)
    engine = open_engine(model, backend="native", threads=1)
    assert isinstance(engine, NativeEngine)
    rows = engine.add(rows=ROWS)
    got = decoded(engine, rows, tokens)
    with torch.no_grad():
        plain, plain_state = model(tokens)
        want, want_state = model_of(**OPTIONS[name], dtype=torch.float64)(tokens)
    size = largest(want)
    rounding = largest(plain - want) / size
    assert largest(got - want) / size < FLOAT32 + TIMES * rounding
    state = engine.state(rows)
    assert torch.equal(state.position, want_state.position)
    for mine, theirs, true in zip(states(state), states(plain_state), states(want_state), strict=True):
        assert mine.shape == true.shape
        if true.dtype == torch.bool or not true.numel():
            assert torch.equal(mine, true)
            continue
        size = largest(true) + 1e-30
        assert largest(mine - true) / size < FLOAT32 + TIMES * largest(theirs - true) / size


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("mixer", ["elu", "rebased", "softmax", "window", ("conv", "gated_conv"), *HYBRIDS])
def test_a_row_is_the_same_bits_in_every_batch_and_on_any_threads(mixer: Any, weights: str) -> None:
    layers = len(mixer) if isinstance(mixer, tuple) else 2
    model = model_of(mixer, positions="rotary", n_layers=layers)
    most = 256  # from 32 rows per thread, no thread waits for another
    tokens = tokens_of(most, 6)
    seen = {}
    for rows, threads in ((1, 1), (1, 2), (1, 3), (2, 1), (3, 2), (33, 2), (70, 2), (most, 2), (most, 1)):
        engine = open_engine(model, weights=weights, backend="native", threads=threads)
        assert isinstance(engine, NativeEngine)
        seen[rows, threads] = decoded(engine, engine.add(rows=rows), tokens[:rows])
    for out in seen.values():
        assert torch.equal(out, seen[most, 1][: len(out)])


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@pytest.mark.parametrize("mixer", ["elu", "taylor", "softmax", ("conv", "gated_conv"), *RECURRENT_MIXERS])
def test_rounded_weights_change_little_and_something(mixer: Any, weights: str) -> None:
    model, tokens = model_of(mixer), tokens_of(ROWS, 200)
    engine = open_engine(model, weights=weights, backend="native", threads=1)
    assert isinstance(engine, NativeEngine)
    got = decoded(engine, engine.add(rows=ROWS), tokens)
    with torch.no_grad():
        want, _ = model(tokens)
    # A norm right after reading a state, which may hold little, magnifies what rounded weights change in torch as well.
    most = STORED[weights] * (3 if mixer in RECURRENT_MIXERS else 1)
    assert 1e-5 < largest(got - want) / largest(want) < most


def test_bfloat16_weights_are_the_float32_engine_on_rounded_weights() -> None:
    mixers = ("elu", "conv", *RECURRENT_MIXERS)
    model, tokens = model_of(mixers, n_layers=len(mixers)), tokens_of(ROWS, 50)
    stored = open_engine(model, weights="bfloat16", backend="native", threads=1)
    model = deepcopy(model)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(module.weight.bfloat16().float())
    rounded = open_engine(model, backend="native", threads=1)
    # the head is the embedding, rounded for the head only
    assert isinstance(stored, NativeEngine)
    assert isinstance(rounded, NativeEngine)
    for t in range(50):
        stored.step(tokens[:, t], stored.rows or stored.add(rows=ROWS))
        rounded.step(tokens[:, t], rounded.rows or rounded.add(rows=ROWS))
    for a, b in zip(states(stored.state(stored.rows)), states(rounded.state(rounded.rows)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("isa", info()["isas"])
@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("mixers", [("rebased", "softmax", "conv", "elu"), *HYBRIDS])
def test_every_instruction_set_gives_the_same_numbers(mixers: tuple[str, ...], isa: str, weights: str) -> None:
    model, tokens = model_of(mixers, n_layers=len(mixers), mlp="swiglu"), tokens_of(3, 40)
    before = info()["isa"]
    want = decoded_on(model, weights, tokens)
    try:
        use_isa(isa)
        got = decoded_on(model, weights, tokens)
    finally:
        use_isa(before)
    assert largest(got - want) / largest(want) < (FLOAT32 if weights == "float32" else STORED[weights] / 2)


def decoded_on(model: StreamModel, weights: str, tokens: Tensor) -> Tensor:
    engine = open_engine(model, weights=weights, backend="native", threads=1)
    assert isinstance(engine, NativeEngine)
    return decoded(engine, engine.add(rows=len(tokens)), tokens)


@pytest.mark.parametrize("name", ["digits", "stream-small", "mnist"])
def test_other_heads_equal_their_torch_step(name: str) -> None:
    torch.manual_seed(0)
    changes = {"n_layers": 2, "d_model": 32, "d_ff": 64} if name == "mnist" else {}
    model = build(preset(name, **changes)).eval()
    assert isinstance(model, StreamModel)
    engine, state = open_engine(model, backend="native", threads=1), None
    rows = engine.add(rows=3)
    for t in range(60):
        x = torch.randn(3, 1) if name == "stream-small" else torch.randint(0, 17, (3,))
        got = engine.step(x, rows)
        with torch.no_grad():
            want, state = model.step(x, state)
        assert got.shape == want.shape
        assert largest(got - want) < FLOAT32 * max(1.0, largest(want)), t


def test_forecasts_are_added_to_the_present_value() -> None:
    config = preset("stream-small", input_dim=3, output_dim=2, output_channels=(2, 0), horizon=4)
    model = build(config).eval()
    assert isinstance(model, StreamModel)
    engine = open_engine(model, backend="native", threads=1)
    x = torch.randn(2, 3)
    with torch.no_grad():
        want, _ = model.step(x)
    assert largest(engine.step(x, engine.add(rows=2)) - want) < FLOAT32


@pytest.mark.parametrize("position", [255, 256, 65535, 65536, 2**24 + 77, 2**33 + 5])
@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_far_positions_turn_as_far_as_in_torch(positions: str, position: int) -> None:
    model = model_of("elu", positions=positions)
    state = model.backbone.empty_state(1)._replace(position=torch.tensor([position]))
    engine = open_engine(model, backend="native", threads=1)
    row = engine.add(state)
    for _ in range(3):
        token = torch.tensor([7])
        got = engine.step(token, row)
        with torch.no_grad():
            want, state = model.step(token, state)
        assert largest(got - want) < FLOAT32 * largest(want)


def test_states_go_there_and_back_bit_for_bit() -> None:
    mixers = ("elu", "softmax", "window", "conv", *RECURRENT_MIXERS)
    options = {"window": {"window": 5}, "mamba2": {"kernel_size": 1}, "kda": {"conv": 0}}
    model = model_of(mixers, n_layers=len(mixers), mixer_options=options)
    engine = open_engine(model, backend="native", threads=1)
    for length in (1, 2, 4, 5, 6, 63, 64, 65, 130):
        with torch.no_grad():
            _, state = model(tokens_of(3, length))
        rows = engine.add(state)
        back = engine.state(rows)
        assert torch.equal(back.position, state.position)
        for mine, theirs in zip(states(back), states(state), strict=True):
            assert torch.equal(mine, theirs)
        engine.remove(rows)


def test_memory_does_not_grow_for_linear_models_and_is_used_again() -> None:
    mixers = ("elu", "conv", *RECURRENT_MIXERS)
    engine = open_engine(model_of(mixers, n_layers=len(mixers)), backend="native", threads=1)
    assert isinstance(engine, NativeEngine)
    rows = engine.add(rows=4)
    size = engine.nbytes
    for t in range(200):
        engine.step(torch.full((4,), t % VOCAB), rows)
    engine.remove(rows[:2])
    engine.add(rows=2)
    assert engine.nbytes == size


@pytest.mark.parametrize(("mixer", "kinds"), [("elu", 7), ("retnet", 1)])
def test_sums_do_not_drift_where_tokens_repeat(mixer: str, kinds: int) -> None:
    """Equal tokens round the same way each time: a plain float32 sum is off by 4e-5 after this many."""
    steps, heads = 20_000, {"n_heads": 8, "head_dim": 4}
    model = model_of(mixer, n_layers=1, **heads)
    tokens = tokens_of(1, steps) % kinds
    engine = open_engine(model, backend="native", threads=1)
    rows = engine.add()
    for t in range(steps):
        engine.step(tokens[:, t], rows)
    with torch.no_grad():
        _, true = model_of(mixer, n_layers=1, dtype=torch.float64, **heads)(tokens)
    for mine, exact in zip(states(engine.state(rows)), states(true), strict=True):
        if exact.numel():
            assert largest(mine - exact) / largest(exact) < 1e-6


@pytest.mark.parametrize("mixer", ["elu", "taylor", "retnet"])
def test_without_gathered_errors_states_are_half_as_large_and_short_streams_the_same(mixer: str) -> None:
    model, tokens = model_of(mixer, n_kv_heads=None if mixer == "retnet" else 2), tokens_of(3, 60)
    plain, gathered = (open_engine(model, backend="native", threads=1, exact=exact) for exact in (False, True))
    assert isinstance(plain, NativeEngine)
    assert isinstance(gathered, NativeEngine)
    got, want = (decoded(engine, engine.add(rows=3), tokens) for engine in (plain, gathered))
    assert largest(got - want) < FLOAT32 * largest(want)
    assert plain.nbytes == gathered.nbytes / 2
    rows = plain.add(gathered.state(gathered.rows))
    assert largest(decoded(plain, rows, tokens) - decoded(gathered, gathered.rows, tokens)) < FLOAT32 * largest(want)


def test_a_cache_that_disagrees_with_its_position_is_refused() -> None:
    model = model_of(("softmax", "elu"))
    with torch.no_grad():
        _, state = model(tokens_of(1, 5))
    engine = open_engine(model, backend="native")
    with pytest.raises(StateError, match="layer 0 holds 5 tokens of row 0, which has seen 9"):
        engine.add(state._replace(position=torch.tensor([9])))
    assert engine.rows == []


def test_what_the_native_decoder_cannot_run_is_said_and_torch_runs_it() -> None:
    model = model_of("elu")
    for dtype in (torch.float64, torch.bfloat16):
        with pytest.raises(BackendError, match=rf"is {dtype}; use model.float\(\)"):
            open_engine(model_of("elu", dtype=dtype), backend="native")
    for threads in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=f"threads is {threads}; accepted"):
            open_engine(model, threads=threads)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown weights 'int4'"):
        open_engine(model, weights="int4")
    with pytest.raises(BackendError, match="need the native decoder"):
        open_engine(model, weights="int8", backend="torch")
    with pytest.raises(ValueError, match="unknown backend 'cuda'"):
        open_engine(model, backend="cuda")

    class Own(fm.Elu):
        def prepare_q(self, x: Tensor) -> Tensor:
            return x * 2

    mixer: Any = model.backbone.layers[0].mixer
    mixer.feature_map = Own(8)
    with pytest.raises(BackendError, match="feature map Own"):
        open_engine(model, backend="native")
    assert type(open_engine(model)).__name__ == "TorchEngine"


def test_a_mixer_without_an_adapter_is_left_to_torch() -> None:
    """Nor has a subclass of a layer with an adapter: it may compute something else."""

    class Own(SoftmaxAttention):
        pass

    for mixer, name in (("lsh", "LSHAttention"), ("softmax", "Own")):
        model = model_of(mixer)
        if name == "Own":
            model.backbone.layers[1].mixer.__class__ = Own
        with pytest.raises(BackendError, match=f"does not know the mixer {name}; use backend 'torch'"):
            open_engine(model, backend="native")
        assert type(open_engine(model)).__name__ == "TorchEngine"


@pytest.mark.parametrize("mixer", RECURRENT_MIXERS)
def test_an_option_that_an_adapter_does_not_know_is_left_to_torch(mixer: str) -> None:
    """An attribute, a parameter, a submodule or a norm that is new to a layer may change what it computes."""
    for name, value in (("partial", 0.5), ("added", nn.Parameter(torch.ones(1))), ("other", nn.Linear(2, 2))):
        model = model_of(mixer)
        layer: Any = model.backbone.layers[1].mixer
        setattr(layer, name, None)
        layer.unused = False
        open_engine(model, backend="native")
        setattr(layer, name, value)
        with pytest.raises(BackendError, match=f"the option '{name}' of {type(layer).__name__}; use backend 'torch'"):
            open_engine(model, backend="native")
        assert type(open_engine(model)).__name__ == "TorchEngine"


def test_a_norm_of_a_block_that_it_does_not_know_is_left_to_torch() -> None:
    class Centred(RMSNorm):
        pass

    for change, message in (("option", "the option 'centred' of RMSNorm"), ("class", "the norm Centred")):
        model = model_of("gla", norm="rms")
        norm: Any = model.backbone.layers[1].norm1
        if change == "class":
            norm.__class__ = Centred
        else:
            norm.centred = True
        with pytest.raises(BackendError, match=message):
            open_engine(model, backend="native")


@pytest.mark.parametrize("norm", ["rms", "l2"])
def test_a_norm_that_it_does_not_know_is_left_to_torch(norm: str) -> None:
    model = model_of("rebased", mixer_options={"rebased": {"norm": norm}})
    with pytest.raises(BackendError, match=f"does not know ReBased with norm '{norm}'; use backend 'torch'"):
        open_engine(model, backend="native")
    assert type(open_engine(model)).__name__ == "TorchEngine"


def test_weights_that_changed_are_not_mixed_with_packed_ones() -> None:
    model = model_of("elu")
    engine = open_engine(model, backend="native", threads=1)
    (row,) = engine.add()
    with torch.no_grad():
        model.backbone.layers[0].norm1.weight.mul_(2)
    for call in (engine.add, lambda: engine.read(torch.tensor([1, 2]), row)):
        with pytest.raises(StateError, match="weights have changed since this engine was opened"):
            call()
    assert engine.rows == [row]


def test_the_end_of_learned_positions_is_named_before_anything_moves() -> None:
    model = model_of("elu", positions="learned", max_length=4)
    engine = open_engine(model, backend="native", threads=1)
    rows = engine.add(rows=1)
    for _ in range(4):
        engine.step(torch.tensor([1]), rows)
    before = states(engine.state(rows))
    with pytest.raises(ValueError, match="position 4 is beyond the 4 learned positions"):
        engine.step(torch.tensor([1]), rows)
    for a, b in zip(before, states(engine.state(rows)), strict=True):
        assert torch.equal(a, b)
