"""Which form and backend run, why, and in which words the others are refused."""

from __future__ import annotations

import pytest
import torch

import linnet
from linnet import BackendError, explain_dispatch
from linnet import feature_maps as maps
from linnet.native import linear_attention as native
from linnet.native.library import info

SHAPE = (1, 128, 4, 16)
needs_native = pytest.mark.skipif(not info()["loaded"], reason=f"no native backend: {info()['reason']}")


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(native, "reason", lambda: "there is no compiled library here")


@needs_native
def test_auto_is_native_where_it_can_run() -> None:
    found = explain_dispatch(SHAPE)
    assert found[:2] == ("chunked", "native")
    assert str(found).startswith("chunked form on the native backend: ")


@pytest.mark.parametrize(("length", "form"), [(0, "chunked"), (1, "recurrent"), (2, "chunked"), (100_000, "chunked")])
@pytest.mark.usefixtures("no_native")
def test_auto_on_torch(length: int, form: str) -> None:
    found = explain_dispatch((1, length, 4, 16))
    assert found[:2] == (form, "torch")
    assert "there is no compiled library here" in str(found)


@pytest.mark.usefixtures("no_native")
def test_without_the_library_the_op_runs_on_torch() -> None:
    q = torch.rand(SHAPE)
    out, _ = linnet.linear_attention(q, q, q)
    want, _ = linnet.linear_attention(q, q, q, form="recurrent", backend="torch")
    assert torch.allclose(out, want, rtol=2e-5)


@pytest.mark.parametrize("form", ["parallel", "chunked", "recurrent"])
def test_a_requested_form_is_the_form_that_runs(form: str) -> None:
    assert explain_dispatch(SHAPE, form=form).form == form
    assert explain_dispatch(SHAPE, form=form, backend="torch")[:2] == (form, "torch")


def test_the_reason_names_what_is_in_the_way() -> None:
    assert "requested" in explain_dispatch(SHAPE, backend="torch").reason
    assert "parallel" in explain_dispatch(SHAPE, form="parallel").reason
    if info()["loaded"]:
        assert "float64" in explain_dispatch(SHAPE, dtype=torch.float64).reason
        assert "degree 3" in explain_dispatch(SHAPE, feature_map=maps.Polynomial(16, degree=3)).reason
        assert "meta" in explain_dispatch(SHAPE, device="meta").reason


def test_notes_on_gradients_direction_and_state() -> None:
    text = str(explain_dispatch(SHAPE, value_dim=8, causal=False, requires_grad=True, backend="torch"))
    assert "O(T) memory" in text
    assert "bidirectional" in text
    assert f"{4 * 16 * 9 * 4:,} bytes" in text  # H F (V + 1) float32
    assert "autograd" in str(explain_dispatch(SHAPE, form="parallel", requires_grad=True))


@pytest.mark.usefixtures("no_native")
def test_native_without_the_library_explains_itself() -> None:
    q = torch.rand(SHAPE)
    with pytest.raises(BackendError, match="there is no compiled library here; use backend='auto' or 'torch'"):
        linnet.linear_attention(q, q, q, backend="native")
    with pytest.raises(BackendError, match="there is no compiled library here"):
        linnet.linear_attention_step(q[:, 0], q[:, 0], q[:, 0], backend="native")


@needs_native
def test_native_refuses_what_it_cannot_do() -> None:
    q = torch.rand(SHAPE)
    with pytest.raises(BackendError, match=r"not torch\.float64"):
        linnet.linear_attention(q.double(), q.double(), q.double(), backend="native")
    with pytest.raises(BackendError, match="degree 3"):
        linnet.linear_attention(q, q, q, feature_map=maps.Polynomial(16, degree=3), backend="native")


@pytest.mark.parametrize("form", ["parallel", "recurrent"])
def test_native_has_no_other_form(form: str) -> None:
    with pytest.raises(BackendError, match=rf"form='{form}' at 128 tokens; use form='auto' or backend='torch'"):
        explain_dispatch(SHAPE, form=form, backend="native")


@needs_native
def test_native_takes_a_single_token_in_recurrent_form() -> None:
    assert explain_dispatch((1, 1, 4, 16), form="recurrent", backend="native")[:2] == ("recurrent", "native")


def test_triton_is_refused_with_the_way_out() -> None:
    q = torch.rand(SHAPE)
    with pytest.raises(BackendError, match="no GPU kernel in this version; use backend='torch'"):
        linnet.linear_attention(q, q, q, backend="triton")


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown form 'chunk'; did you mean 'chunked'\?"):
        explain_dispatch(SHAPE, form="chunk")
    with pytest.raises(ValueError, match=r"unknown backend 'Torch'; did you mean 'torch'\?"):
        explain_dispatch(SHAPE, backend="Torch")
    with pytest.raises(ValueError, match="four sizes"):
        explain_dispatch((1, 128))
