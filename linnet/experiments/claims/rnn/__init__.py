"""Claims of "Transformers are RNNs" (Katharopoulos et al. 2020, arXiv:2006.16236)."""

from __future__ import annotations

from ..claim import Claim
from .copy import CLAIM as COPY
from .digits import CLAIM as DIGITS
from .equal_time import CLAIM as EQUAL_TIME
from .forms import CLAIM as FORMS
from .gradients import CLAIM as GRADIENTS
from .latency import CLAIM as LATENCY
from .memory import CLAIM as MEMORY
from .numerics import CLAIM as NUMERICS
from .per_token import CLAIM as PER_TOKEN
from .scaling import CLAIM as SCALING
from .speech import CLAIM as SPEECH
from .state_safety import CLAIM as STATE
from .throughput import CLAIM as THROUGHPUT

CLAIMS: tuple[Claim, ...] = (
    FORMS,  # T1
    GRADIENTS,
    MEMORY,
    SCALING,
    PER_TOKEN,  # T5
    COPY,  # T6
    LATENCY,  # T7
    THROUGHPUT,  # T8
    DIGITS,  # T9
    EQUAL_TIME,  # T10
    SPEECH,  # T11
    NUMERICS,  # T16
    STATE,
)
