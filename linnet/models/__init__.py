"""Models: a configuration becomes a network; one backbone, one head for each kind of task.

    model = linnet.models.build(linnet.models.preset("char-small"))
    count_parameters(config), state_bytes(config, length)          known before anything is built

MODELS has the head of each task; the mixer "bilstm" is the speech baseline, a network of its own.
"""

from __future__ import annotations

import torch

from .base import Model as Model
from .base import StreamModel as StreamModel
from .config import BILSTM
from .config import ModelConfig as ModelConfig
from .icl import ICLConfig as ICLConfig
from .icl import ICLTransformer as ICLTransformer
from .image import ImageModel as ImageModel
from .language import LanguageModel as LanguageModel
from .presets import PRESETS as PRESETS
from .presets import preset as preset
from .seq2seq import EncoderDecoder as EncoderDecoder
from .speech import BiLSTMModel as BiLSTMModel
from .speech import SpeechModel as SpeechModel
from .state import ModelState as ModelState
from .stream import Classifier as Classifier
from .stream import Forecaster as Forecaster

MODELS: dict[str, type[Model]] = {
    "language": LanguageModel,
    "image": ImageModel,
    "speech": SpeechModel,
    "classify": Classifier,
    "forecast": Forecaster,
    "translate": EncoderDecoder,
}


def build(config: ModelConfig) -> Model:
    """A new model of that configuration, on the current default device, drawn from torch's generator."""
    return BiLSTMModel(config) if BILSTM in config.pattern else MODELS[config.task](config)


def count_parameters(config: ModelConfig) -> int:
    """Numbers to learn, counted on a model without memory."""
    return _shape_of(config).parameter_count()


def state_bytes(config: ModelConfig, length: int, dtype: torch.dtype = torch.float32) -> int:
    """Bytes of state per sequence after `length` tokens."""
    return _shape_of(config).state_bytes(length, dtype)


def _shape_of(config: ModelConfig) -> Model:
    with torch.device("meta"):
        return build(config)
