"""Import transformers once, when the first test needs it: offline, quiet, with its own cache.

Importing it takes five seconds, so no file here does so at the top.
"""

from __future__ import annotations

import os
import warnings
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def hf(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """linnet.hf."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    os.environ["HF_HOME"] = str(tmp_path_factory.mktemp("hf-home"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages, at their import
        import linnet.hf

    return linnet.hf


@pytest.fixture(scope="session")
def transformers(hf: ModuleType) -> ModuleType:
    import transformers

    return transformers
