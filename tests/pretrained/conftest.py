"""The fixture `transformers`, shared with tests/hf: imported once, quiet and offline."""

from tests.hf.conftest import hf as hf
from tests.hf.conftest import transformers as transformers
