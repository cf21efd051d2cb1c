"""Datasets: local files to batches, reproducible to the byte, in an order that is a pure function of seed and step.

A source has `length` (rows in an epoch), `unit` and `units(batch)` (the unit of throughput), `fingerprint` (resuming on
other data is refused) and `batch(rows) -> dict of tensors`. `rows(seed, step, batch_size, length)` selects the rows.
Optional packages (tokenizers, soundfile, PIL) are imported by the function that needs them.
"""

from __future__ import annotations

from .assets import shipped_digits as shipped_digits
from .assets import shipped_text as shipped_text
from .bpe import BPETokenizer as BPETokenizer
from .folders import data_folder as data_folder
from .images import ImageSource as ImageSource
from .images import image_set as image_set
from .images import load_images as load_images
from .mel import log_mel as log_mel
from .mel import mel_filters as mel_filters
from .order import rows as rows
from .order import share as share
from .speech import SpeechSource as SpeechSource
from .speech import generated_speech as generated_speech
from .speech import speech_folder as speech_folder
from .stream import StreamSource as StreamSource
from .stream import generated_stream as generated_stream
from .stream import read_csv as read_csv
from .text import TextSource as TextSource
from .tokenizer import ByteTokenizer as ByteTokenizer
from .tokenizer import Tokenizer as Tokenizer
from .tokenizer import check_tokens as check_tokens
from .tokenizer import load_tokenizer as load_tokenizer
from .wav import read_wav as read_wav
