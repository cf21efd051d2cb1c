"""A folder that loads where linnet is not installed: configuration, weights, and all the code in one file.

    export_remote_code(model, folder)
    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)          plain torch and transformers

modeling_linnet.py is made from the sources of this package, so that there is one place for every formula: the modules
the Hugging Face classes import, and those they import, stand in it word for word, relative imports written out, under a
small loader (bundle.py). The native library does not travel: without it the ops run on torch, to the same answer.
"""

from __future__ import annotations

import ast
import json
import os
import re
from hashlib import sha256
from pathlib import Path

from ..atomic import atomic
from ..data.tokenizer import Tokenizer
from ..json_file import read_object
from ..lock import exclusive
from ..models.base import CONFIG, Model
from .convert import HFModel, to_hf
from .modeling import LinnetForCausalLM, LinnetForSequenceClassification
from .tokenizer import name_tokens, tokenizer_to_hf

PACKAGE = Path(__file__).parent.parent
FILE = "modeling_linnet.py"
ROOTS = ("hf.configuration", "hf.modeling")
EMPTY = ("", "hf", "models")  # packages whose __init__ would bring what these modules do not need
CLASSES = {
    "AutoConfig": "LinnetConfig",
    "AutoModel": "LinnetModel",
    "AutoModelForCausalLM": "LinnetForCausalLM",
    "AutoModelForSequenceClassification": "LinnetForSequenceClassification",
}
OPERATORS = (
    r'(?<=Library\(")linnet(?=")',
    r'(?<=")linnet(?=::)',
    r"(?<=torch\.ops\.)linnet(?=\.)",
)  # torch's own names
HEAD = '''"""A linnet model for Hugging Face transformers, in one file: load it with trust_remote_code=True.

Made by linnet.hf.export_remote_code from the sources of the package linnet (Apache-2.0), which stand below as texts,
word for word; only their imports of one another are written out. The first lines turn each of them into a module. It
needs torch, safetensors and transformers 5.
"""
'''
TAIL = """
BUNDLE = Bundle({name!r}, SOURCES)
configuration, modeling = BUNDLE.module("hf.configuration"), BUNDLE.module("hf.modeling")


class LinnetConfig(configuration.LinnetConfig):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)


class LinnetModel(modeling.LinnetModel):
    config_class = LinnetConfig


class LinnetForCausalLM(modeling.LinnetForCausalLM):
    config_class = LinnetConfig


class LinnetForSequenceClassification(modeling.LinnetForSequenceClassification):
    config_class = LinnetConfig
"""


def export_remote_code(
    model: Model | HFModel, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None
) -> None:
    """Write config.json, model.safetensors, generation_config.json and modeling_linnet.py; with it a tokenizer."""
    hf = model if isinstance(model, LinnetForCausalLM | LinnetForSequenceClassification) else to_hf(model)
    words = None if tokenizer is None else tokenizer_to_hf(tokenizer)
    if tokenizer is not None and words is not None:
        name_tokens(hf.config, tokenizer, words)
    text, folder = modeling_file(), Path(folder)
    with exclusive(folder):
        hf.save_pretrained(folder)
        if words is not None:
            words.save_pretrained(folder)
        with atomic(folder / FILE) as file:
            file.write(text.encode())
        config = read_object(folder / CONFIG, "export the model again")
        config["auto_map"] = {auto: f"{Path(FILE).stem}.{name}" for auto, name in CLASSES.items()}
        with atomic(folder / CONFIG) as file:
            file.write((json.dumps(config, indent=2) + "\n").encode())


def modeling_file() -> str:
    """The text of modeling_linnet.py; the same for every model of this version of linnet."""
    found = sources()
    digest = sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:12]
    name = f"linnet_{digest}"
    loader = (PACKAGE / "hf" / "bundle.py").read_text(encoding="utf-8")
    parts = [HEAD, loader.split('"""\n', 1)[1], "\nSOURCES = {\n"]
    parts += [f"    {module!r}: r'''{renamed(text, module, name)}''',\n" for module, text in found.items()]
    return "".join([*parts, "}\n", TAIL.format(name=name)])


def sources() -> dict[str, str]:
    """Module -> its source, for ROOTS and everything of linnet they lead to; a package stands before its modules."""
    found: dict[str, str] = {}
    waiting = list(ROOTS)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found[module] = "" if module in EMPTY else _path(module).read_text(encoding="utf-8")
        above = module.rpartition(".")[0]
        waiting += [above, *(target for node in imports(found[module]) for target in targets(node, module))]
    for module, text in found.items():
        assert "'''" not in text, f"{module} has three single quotes, which end its text in {FILE}"
    return dict(sorted(found.items()))


def imports(text: str) -> list[ast.ImportFrom]:
    """The relative imports of a source, in functions too."""
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.level]


def targets(node: ast.ImportFrom, module: str) -> list[str]:
    """The modules a relative import loads: the one it names, and those among the names it takes from it."""
    base = absolute(node, module)
    return [base, *(f"{base}.{a.name}".lstrip(".") for a in node.names if _exists(f"{base}.{a.name}".lstrip(".")))]


def absolute(node: ast.ImportFrom, module: str) -> str:
    """`from ..ops import x` in "layers.block" -> "ops"."""
    inside = module.split(".") if module else []
    up = node.level - (1 if _path(module).name == "__init__.py" else 0)
    above = inside[: len(inside) - up]
    return ".".join([*above, *([node.module] if node.module else [])])


def renamed(text: str, module: str, name: str) -> str:
    """The source with its imports of linnet, and the operators it gives torch, under the name of the bundle."""
    lines = text.split("\n")
    for node in imports(text):
        at, base = node.lineno - 1, ".".join(filter(None, (name, absolute(node, module))))
        lines[at] = re.sub(r"from\s+\.[\w.]*\s+import", f"from {base} import", lines[at], count=1)
    text = "\n".join(lines)
    for pattern in OPERATORS:
        text = re.sub(pattern, name, text)
    return text


def _path(module: str) -> Path:
    place = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _exists(module: str) -> bool:
    return _path(module).is_file()
