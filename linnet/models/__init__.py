"""Models: build a network from a configuration; one backbone, one head per task.

    model = linnet.models.build(linnet.models.preset("char-small"))
    count_parameters(config), state_bytes(config, length)          known without building it

MODELS maps a task to its class. The mixer "bilstm" selects the speech baseline, which has no backbone.
"""

from __future__ import annotations

import torch

from .base import Model as Model
from .base import StreamModel as StreamModel
from .config import BILSTM
from .config import ModelConfig as ModelConfig
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
    """Build a new model on torch's default device, initialised from torch's global generator."""
    return BiLSTMModel(config) if BILSTM in config.pattern else MODELS[config.task](config)


def count_parameters(config: ModelConfig) -> int:
    """Return the number of parameters, counted on the meta device."""
    return _build_on_meta(config).parameter_count()


def state_bytes(config: ModelConfig, length: int, dtype: torch.dtype = torch.float32) -> int:
    """Return the bytes of state per sequence after `length` tokens."""
    return _build_on_meta(config).state_bytes(length, dtype)


def _build_on_meta(config: ModelConfig) -> Model:
    with torch.device("meta"):
        return build(config)
