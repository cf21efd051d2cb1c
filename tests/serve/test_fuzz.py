"""Requests made from the OpenAPI document by schemathesis: whatever is sent, the answer is never a failure (5xx)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from linnet.serve.limits import Limits
from linnet.serve.start import Options

from .serving import serving

OPERATIONS = 22


@pytest.mark.slow
@pytest.mark.parametrize("cases", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_no_request_makes_the_server_fail(cases: int, tmp_path: Path) -> None:
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent)) or shutil.which("schemathesis")
    if program is None:
        pytest.skip("schemathesis is not installed; the extra `test` brings it")
    limits = Limits(tokens=16, rows=8, stop_seconds=0.1)
    with serving(Options(limits=limits)) as server:
        command = [program, "run", f"{server.url}/openapi.json", "--checks", "not_a_server_error", "--seed", "1"]
        command += ["--phases", "fuzzing", "--max-examples", str(-(-cases // OPERATIONS)), "--no-color"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-4000:]
        assert f"Tested: {OPERATIONS}" in done.stdout
        assert server.get("/health") == {"status": "ok"}
        assert server.service.worker.scheduler.live == 0
