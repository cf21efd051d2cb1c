"""The choice of precision: measured in a child, whatever the child does. bfloat16 itself never runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from linnet.train import autocast
from linnet.train.autocast import choose_autocast, has_bf16, largest_linear, measure_speedup

MODEL = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 16))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with bfloat16 on paper, and nothing measured yet."""
    measure_speedup.cache_clear()
    monkeypatch.setattr(autocast, "has_bf16", lambda: True)
    yield
    measure_speedup.cache_clear()


def child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(autocast, "CHILD", code)


def test_none_is_float32_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "raise SystemExit(9)")
    assert choose_autocast("none", MODEL).name == "none"
    assert measure_speedup.cache_info().misses == 0


def test_auto_takes_bfloat16_when_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "print('[2.0, 1.0]')")
    choice = choose_autocast("auto", MODEL)
    assert choice == ("bf16", "bfloat16: 2.00x as fast as float32 for layers of width 8")
    assert choose_autocast("auto", MODEL) == choice
    assert measure_speedup.cache_info().misses == 1  # once per process
    assert torch.get_num_threads() == 1


def test_auto_takes_float32_when_there_is_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "print('[1.1, 1.0]')")
    assert choose_autocast("auto", MODEL) == (
        "none",
        "float32: bfloat16 is 1.10x as fast for layers of width 8, and 1.2x is required",
    )


def test_a_crash_means_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert choose_autocast("auto", MODEL) == (
        "none",
        "float32: bfloat16 does not run on this machine (the trial ended with signal 4)",
    )
    with pytest.raises(ValueError, match=r"autocast is 'bf16', but bfloat16 does not run.*signal 4.*accepted: 'none'"):
        choose_autocast("bf16", MODEL)


def test_a_child_that_hangs_means_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(autocast, "TIME_LIMIT", 0.3)
    assert "no result after 0.3 s" in choose_autocast("auto", MODEL).text


def test_forced_bfloat16_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "print('[1.0, 4.0]')")
    assert choose_autocast("bf16", MODEL) == ("bf16", "bfloat16, as requested: 0.25x as fast as float32 here")


def test_a_resumed_run_keeps_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "print('[1.0, 1.0]')")  # today's measurement says otherwise
    assert choose_autocast("auto", MODEL, before="bf16").name == "bf16"
    child(monkeypatch, "print('[9.0, 1.0]')")
    measure_speedup.cache_clear()
    assert choose_autocast("auto", MODEL, before="none").name == "none"


def test_without_the_instructions_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags : sse avx2 fma\n")
    assert not has_bf16(tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("flags : avx512_bf16\n")
    assert has_bf16(tmp_path / "cpuinfo")
    assert has_bf16(tmp_path / "missing")
    monkeypatch.setattr(autocast, "has_bf16", lambda: False)
    assert choose_autocast("auto", MODEL) == ("none", "float32: this machine has no bfloat16 instructions")


@pytest.mark.slow
def test_the_real_child_returns_a_speedup_or_a_reason() -> None:
    choice = choose_autocast("auto", MODEL)
    assert choice.name in ("none", "bf16")
    assert choice.text


def test_the_context_is_on_only_for_bf16() -> None:
    for name in ("none", "bf16"):
        with autocast.Choice(name, "").context():
            assert torch.is_autocast_enabled("cpu") == (name == "bf16")


def test_largest_layer() -> None:
    assert largest_linear(MODEL) == (8, 16)
    assert largest_linear(nn.LayerNorm(3)) == (256, 256)
