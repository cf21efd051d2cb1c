"""Tasks: synthetic data with known answers. Regression draws from a generator, recall tasks are training sources."""

from __future__ import annotations

from .copy_task import CopyTask as CopyTask
from .forgetting import Forgetting as Forgetting
from .gram import Gram as Gram
from .haystack import Haystack as Haystack
from .mqar import MQAR as MQAR
from .noise import PAPER_NOISE as PAPER_NOISE
from .noise import Noise as Noise
from .recall import Recall as Recall
from .recall_hits import Bigrams as Bigrams
from .recall_hits import count_bigrams as count_bigrams
from .recall_hits import recall_hits as recall_hits
from .regression import Batch as Batch
from .regression import Regression as Regression
from .scoring import Scores as Scores
from .scoring import accuracy as accuracy
from .scoring import add_scores as add_scores
