"""linnet models as Hugging Face models: generate(), Trainer, Auto classes and folders, around the same network.

    import linnet.hf                                                 registers model_type "linnet" with the Auto classes
    hf = linnet.hf.to_hf(model);   hf.generate(tokens)               one set of parameters, two interfaces
    linnet.hf.export_remote_code(model, folder)                      a folder that loads where linnet is not installed

The only home of `transformers`, which is optional (pip install linnet[hf]): nothing in linnet imports this folder.
"""

from __future__ import annotations

try:
    import transformers
except ImportError as error:
    raise ImportError("linnet.hf needs the package transformers, 5.0 or newer; pip install linnet[hf]") from error

from .cache import LinnetCache as LinnetCache
from .configuration import LinnetConfig as LinnetConfig
from .convert import from_hf as from_hf
from .convert import to_hf as to_hf
from .modeling import LinnetForCausalLM as LinnetForCausalLM
from .modeling import LinnetForSequenceClassification as LinnetForSequenceClassification
from .modeling import LinnetModel as LinnetModel
from .remote import export_remote_code as export_remote_code
from .tokenizer import tokenizer_to_hf as tokenizer_to_hf

transformers.AutoConfig.register(LinnetConfig.model_type, LinnetConfig, exist_ok=True)
transformers.AutoModel.register(LinnetConfig, LinnetModel, exist_ok=True)
transformers.AutoModelForCausalLM.register(LinnetConfig, LinnetForCausalLM, exist_ok=True)
transformers.AutoModelForSequenceClassification.register(LinnetConfig, LinnetForSequenceClassification, exist_ok=True)
