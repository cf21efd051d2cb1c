"""The in-context transformer: tokens equal the paper's sum, the Gram form the token form; files round-trip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from linnet.errors import FileWarning
from linnet.regress.model import KINDS, ICLConfig, ICLTransformer
from tests.regress.problems import Problems, problems

SAME = 1e-10  # relative, float64
SINGLE = 1e-4  # relative, float32
SEEN = 1e-2  # relative: a difference, no rounding
D, N, B = 3, 7, 5

SETTINGS = [(kind, layers, heads) for kind in KINDS for layers in (1, 2, 4) for heads in (1, 2, 3)]


def made(
    kind: str, layers: int = 3, heads: int = 2, dtype: torch.dtype = torch.float64
) -> tuple[ICLTransformer, Problems]:
    """A model each of whose layers changes the tokens by a part of their size, and sequences for it."""
    generator = torch.Generator().manual_seed(layers + 10 * heads)
    batch = problems(1.0, B, D, N, generator, dtype)
    model = ICLTransformer(ICLConfig(kind, layers, D, N, heads), generator, dtype)
    with torch.no_grad():
        for layer in range(layers):
            model.p[layer] *= 0.4 / model.maps(batch.gram.s)[layer].abs().max()
    return model, batch


def error(result: Tensor, wanted: Tensor) -> float:
    return float(((result - wanted).abs().max() / wanted.abs().max()).detach())


def answers(model: ICLTransformer, batch: Problems) -> Tensor:
    return model(batch.x, batch.y, batch.query.unsqueeze(1)).squeeze(-1)


def by_loops(model: ICLTransformer, batch: Problems) -> Tensor:
    """e_i + sum_k sum_{j<=n} (e_jᵀ Q_k e_i) P_k e_j, one token after the other: [L+1,B,n+1,E]."""
    x = torch.cat([batch.x, batch.query.unsqueeze(1)], 1)
    y = torch.cat([batch.y, torch.zeros(B, 1, dtype=batch.y.dtype)], 1)
    e = torch.cat([x, y.unsqueeze(-1)], -1)
    result = [e]
    for p, q in zip(*model.matrices(), strict=True):
        new = e.clone()
        for b in range(B):
            for i in range(N + 1):
                for j in range(N):
                    for p_k, q_k in zip(p, q, strict=True):
                        new[b, i] += (e[b, j] @ q_k @ e[b, i]) * (p_k @ e[b, j])
        e = new
        result.append(e)
    return torch.stack(result)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_the_sum_that_the_paper_writes(kind: str) -> None:
    model, batch = made(kind, layers=2)
    with torch.no_grad():
        assert error(model.tokens(batch.x, batch.y, batch.query.unsqueeze(1)), by_loops(model, batch)) < SAME


@pytest.mark.parametrize(("kind", "layers", "heads"), SETTINGS)
def test_gram_form_is_token_form(kind: str, layers: int, heads: int) -> None:
    model, batch = made(kind, layers, heads)
    w = model.weights(batch.gram.s)
    assert error((w * batch.query).sum(-1), answers(model, batch)) < SAME
    every = model.weights(batch.gram.s, layerwise=True)
    assert every.shape == (layers + 1, B, D)
    assert not every[0].any()
    assert error(every[-1], w) < SAME
    queries = -model.tokens(batch.x, batch.y, batch.query.unsqueeze(1))[1:, :, -1, -1]
    assert error((every[1:] * batch.query).sum(-1), queries) < SAME


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_same_in_both_forms(kind: str) -> None:
    model, batch = made(kind)
    gradients = []
    for answer in ((model.weights(batch.gram.s) * batch.query).sum(-1), answers(model, batch)):
        loss = (answer - batch.target).square().mean()
        gradients.append(torch.autograd.grad(loss, [model.p, model.q]))
    for gram, token in zip(*gradients, strict=True):
        assert error(gram, token) < SAME
        assert gram[:-1].abs().amin() > 0  # every parameter before the last layer matters


def test_dead_numbers_have_no_gradient() -> None:
    """In the last layer only the last row of P acts, and of a single layer only what meets a query without label."""
    model, batch = made("full", layers=2, heads=1)
    p, _ = torch.autograd.grad(model.weights(batch.gram.s).square().sum(), [model.p, model.q])
    assert not p[1, :, :-1].any()
    assert p[1, :, -1].all()
    model, batch = made("full", layers=1, heads=1)
    _, q = torch.autograd.grad(model.weights(batch.gram.s).square().sum(), [model.p, model.q])
    assert not q[..., -1].any()
    assert q[..., :-1].all()


def test_diagonal_matrices() -> None:
    model, _ = made("diag", layers=2, heads=1)
    p, q = model.matrices()
    for matrix, value in ((p, model.p), (q, model.q)):
        x, y = value[1, 0]
        assert torch.equal(matrix[1, 0], torch.diag(torch.stack([x, x, x, y])))
    model, _ = made("gd++", layers=2, heads=2)
    assert torch.equal(model.matrices()[1][..., -1, -1], torch.zeros(2, 2, dtype=torch.float64))


def test_omega_sums_over_heads() -> None:
    model, _ = made("diag", layers=2, heads=3)
    for layer in range(2):
        wanted = sum(torch.outer(p, q) for p, q in zip(model.p[layer], model.q[layer], strict=True))
        assert isinstance(wanted, Tensor)
        assert error(model.omega()[layer], wanted) < SAME
    omega = made("gd++", layers=2, heads=3)[0].omega()
    assert not omega[:, :, 1].any()
    assert omega[:, :, 0].all()


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_the_examples_does_not_matter(kind: str) -> None:
    model, batch = made(kind)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    other = batch._replace(x=batch.x[:, order], y=batch.y[:, order])
    assert error(answers(model, other), answers(model, batch)) < SAME


@pytest.mark.parametrize("kind", KINDS)
def test_only_full_sees_a_rotation_or_a_change_of_sign(kind: str) -> None:
    model, batch = made(kind)
    turn = torch.linalg.qr(torch.randn(D, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    turned = answers(model, batch._replace(x=batch.x @ turn, query=batch.query @ turn))
    negated = -answers(model, batch._replace(y=-batch.y))
    for other in (turned, negated):
        change = error(other, answers(model, batch))
        assert change > SEEN if kind == "full" else change < SAME


@pytest.mark.parametrize("kind", KINDS)
def test_queries_do_not_see_each_other(kind: str) -> None:
    model, batch = made(kind)
    queries = torch.randn(B, 4, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    together = model(batch.x, batch.y, queries)
    assert together.shape == (B, 4)
    alone = torch.cat([model(batch.x, batch.y, queries[:, i : i + 1]) for i in range(4)], 1)
    assert error(together, alone) < SAME


def test_count_is_one_over_n_in_the_attention() -> None:
    model, batch = made("full")
    w, s = model.weights(batch.gram.s), batch.gram.s
    assert error(model.weights(s, count=N), w) < SAME
    assert error(model.weights(2 * s), w) > SEEN
    assert error(model.weights(2 * s, count=2 * N), w) < SAME
    times = torch.arange(1, B + 1, dtype=torch.float64)
    several = model.weights(s * times[:, None, None], count=N * times)
    assert error(several, w) < SAME
    layerwise = model.weights(s * times[:, None, None], count=N * times, layerwise=True)
    assert error(layerwise, model.weights(s, layerwise=True)) < SAME


def test_any_leading_axes() -> None:
    model, batch = made("diag")
    s = batch.gram.s
    assert model.maps(s[0]).shape == (3, D + 1, D + 1)
    assert error(model.weights(s[0]), model.weights(s)[0]) < SAME
    assert error(model.weights(s.expand(2, *s.shape))[1], model.weights(s)) < SAME


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_near_float64(kind: str) -> None:
    model, batch = made(kind, dtype=torch.float32)
    w = model.weights(batch.gram.s)
    assert w.dtype == torch.float32
    wide = ICLTransformer(model.config)
    wide.load_state_dict(model.state_dict())
    assert error(w.double(), wide.weights(batch.gram.s.double())) < SINGLE


def test_parameters_are_as_many_as_in_the_paper() -> None:
    counts = {kind: ICLTransformer(ICLConfig(kind, layers=7)).parameter_count() for kind in KINDS}
    assert counts == {"full": 1694, "diag": 28, "gd++": 21}


def test_start_is_small_and_of_its_seed() -> None:
    first, again, other = (ICLTransformer(ICLConfig("full"), torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.p, again.p)
    assert torch.equal(first.q, again.q)
    assert not torch.equal(first.p, other.p)
    assert float(first.p.std().detach()) == pytest.approx((0.002 / 4 / 11) ** 0.5, rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_file_and_back(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    config = ICLConfig(kind, 2, D, N, 3, made={"noise": "U5", "seed": 1, "loss": 0.25})
    model = ICLTransformer(config, torch.Generator().manual_seed(0), dtype)
    model.save(tmp_path / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    result = ICLTransformer.load(tmp_path / "model.safetensors")
    assert result.config == config
    assert result.p.dtype == result.q.dtype == dtype
    assert torch.equal(result.p, model.p)
    assert torch.equal(result.q, model.q)


HEADER = {"format": "linnet-icl", "version": "1", "config": json.dumps({"kind": "diag", "layers": 1, "d": D, "n": N})}
WHOLE = {"p": torch.ones(1, 1, 2), "q": torch.ones(1, 1, 2)}
REFUSED: dict[str, tuple[dict[str, str], dict[str, Tensor], str]] = {
    "another kind": ({**HEADER, "format": "linnet-state"}, WHOLE, "format 'linnet-state', not 'linnet-icl'"),
    "no header": ({}, WHOLE, "format 'unknown'"),
    "newer": ({**HEADER, "version": "3"}, WHOLE, "version '3' and this linnet reads 1 and 2; update linnet"),
    "no version": ({k: v for k, v in HEADER.items() if k != "version"}, WHOLE, "version None"),
    "no config": ({k: v for k, v in HEADER.items() if k != "config"}, WHOLE, "damaged configuration"),
    "cut config": ({**HEADER, "config": '{"kind": "di'}, WHOLE, "damaged configuration"),
    "list": ({**HEADER, "config": "[1]"}, WHOLE, "damaged configuration"),
    "unknown field": ({**HEADER, "config": '{"width": 3}'}, WHOLE, "damaged configuration.*width"),
    "bad field": ({**HEADER, "config": '{"layers": 0}'}, WHOLE, "damaged configuration.*layers is 0"),
    "other shapes": (HEADER, {**WHOLE, "q": torch.ones(1, 1, 1)}, r"its configuration wants"),
    "missing": (HEADER, {"p": torch.ones(1, 1, 2)}, "its configuration wants"),
    "more": (HEADER, {**WHOLE, "r": torch.ones(1)}, "its configuration wants"),
    "huge": ({**HEADER, "config": '{"layers": 1000000000}'}, WHOLE, "its configuration wants"),
    "made": ({**HEADER, "config": '{"made": 5}'}, WHOLE, "damaged configuration.*made is 5"),
    "whole numbers": (HEADER, {name: value.long() for name, value in WHOLE.items()}, r"int64; accepted: both float32"),
    "two types": (HEADER, {**WHOLE, "p": WHOLE["p"].double()}, "float32 and torch.float64; accepted: both float32"),
    "nan": (HEADER, {**WHOLE, "p": torch.tensor([[[1.0, float("nan")]]])}, "NaN or infinity in its weights"),
}


def test_the_file_behind_the_refused_ones_loads(tmp_path: Path) -> None:
    save_file(WHOLE, tmp_path / "model.safetensors", metadata=HEADER)
    before = torch.get_rng_state()
    with pytest.warns(FileWarning, match="without a checksum"):
        assert ICLTransformer.load(tmp_path / "model.safetensors").config == ICLConfig("diag", 1, D, N)
    assert torch.get_rng_state().equal(before)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder that even root cannot write")
def test_a_place_that_takes_no_file_is_one_sentence() -> None:
    with pytest.raises(OSError, match=r"model.safetensors cannot be written .*choose another path"):
        ICLTransformer(ICLConfig("diag")).save("/proc/model.safetensors")


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_are_refused(tmp_path: Path, case: str) -> None:
    header, tensors, sentence = REFUSED[case]
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, metadata=header)
    with pytest.raises(ValueError, match=sentence) as caught:
        ICLTransformer.load(path)
    assert str(path) in str(caught.value)


def test_what_is_no_model_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a file; accepted: a model that linnet icl wrote"):
        ICLTransformer.load(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="is not a file"):
        ICLTransformer.load(tmp_path)
    cut = tmp_path / "cut.safetensors"
    ICLTransformer(ICLConfig("diag")).save(cut)
    cut.write_bytes(cut.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"is not a whole safetensors file .*; copy it again"):
        ICLTransformer.load(cut)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "daig"}, "unknown kind of model 'daig'; did you mean 'diag'"),
        ({"layers": 0}, "layers is 0; accepted: a whole number, 1 or more"),
        ({"d": -1}, "d is -1"),
        ({"n": 2.5}, "n is 2.5"),
        ({"heads": "2"}, "heads is '2'"),
    ],
)
def test_configurations_that_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ICLConfig(**fields)


def test_calls_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"FULL model has no omegas; linnet.labs.icl.nearest_diag gives"):
        made("full")[0].omega()
    model, batch = made("diag")
    with pytest.raises(ValueError, match="the sums are of 2 features; this model has d = 3"):
        model.weights(batch.gram.s[:, 1:, 1:])
    with pytest.raises(ValueError, match=r"the sums are \[4\]; accepted: \[\.\.\.,E,E\]"):
        model.weights(batch.gram.s[0, 0])
    with pytest.raises(ValueError, match=r"the sums are torch.float32 and the weights torch.float64"):
        model.weights(batch.gram.s.float())
    for count in (0, torch.tensor([N, N, 0, N, N])):
        with pytest.raises(ValueError, match=r"the count is .*0.*; accepted: more than 0 examples"):
            model.weights(batch.gram.s, count=count)


@pytest.mark.parametrize(
    ("x", "y", "query"),
    [
        ((B, N, D + 1), (B, N), (B, 1, D + 1)),
        ((B, N, D), (B, N - 1), (B, 1, D)),
        ((B, N, D), (B, N), (B, D)),
        ((B, N, D), (B, N), (B + 1, 1, D)),
        ((B, 0, D), (B, 0), (B, 1, D)),
        ((D,), (), (D,)),
    ],
)
def test_shapes_that_are_refused(x: tuple[int, ...], y: tuple[int, ...], query: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"accepted: x \[B,n,3\], y \[B,n\] and query \[B,m,3\]"):
        made("diag")[0](*(torch.zeros(shape, dtype=torch.float64) for shape in (x, y, query)))


def test_no_number_is_refused() -> None:
    model, batch = made("diag")
    batch.y[0, 0] = float("nan")
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        answers(model, batch)
