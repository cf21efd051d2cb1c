"""Recall tasks: synthetic sequences with known answers, as training sources."""

from __future__ import annotations

from .copy_task import CopyTask as CopyTask
from .forgetting import Forgetting as Forgetting
from .haystack import Haystack as Haystack
from .mqar import MQAR as MQAR
from .recall import Recall as Recall
from .recall_hits import Bigrams as Bigrams
from .recall_hits import count_bigrams as count_bigrams
from .recall_hits import recall_hits as recall_hits
from .scoring import Scores as Scores
from .scoring import accuracy as accuracy
from .scoring import add_scores as add_scores
