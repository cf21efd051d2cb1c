"""The fixture of tests/hf, for lm-eval's Hugging Face model."""

from __future__ import annotations

from tests.hf.conftest import hf as hf
