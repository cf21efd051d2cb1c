"""Jobs: the data, model and hyperparameters of a run as JSON, so that it can be resumed and evaluated from its folder.

    data = open_data("text", {"paths": ["book.txt"], "seq_len": 256}, out, begun=False)
    job = Job(kind="text", data=settings, model=preset("char-small").replace(**data.fields), train=TrainConfig())
    run(job, data, out)                                  writes out/run.json, log.jsonl, latest, checkpoints/

The training loop is independent of the kind of data; only this file connects a kind of data with a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..atomic import atomic
from ..data import BPETokenizer, ByteTokenizer, TextSource, Tokenizer, load_tokenizer, shipped_text
from ..data.an4 import an4
from ..data.fsdd import fsdd
from ..data.images import FILES as IMAGE_FILES
from ..data.images import NAMES as IMAGES
from ..data.images import image_set
from ..data.speech import SpeechSource, generated_speech, speech_folder
from ..data.stream import FILES as STREAMS
from ..data.stream import StreamSource, generated_stream, stream_file
from ..errors import unknown
from ..json_file import as_json, read_json
from ..models import Model, ModelConfig, build, count_parameters
from ..models.folder import FOLDER, RUN, WEIGHTS, names, pointed
from ..models.weights_file import check_layers, read_shapes
from ..schema import Accepts, Record, Table, Text, check
from .config import TrainConfig
from .distributed import ProcessGroup
from .log import Event, OnEvent
from .loop import Result, fit
from .source import Source

# The names of each kind of data; anything else is a path.
NAMES = {
    "text": ("byte", "bpe"),
    "image": IMAGES,
    "speech": ("generated", "an4", "fsdd"),
    "stream": ("generated", *STREAMS),
}
TASKS: dict[str, dict[str, Any]] = {  # fields of ModelConfig that depend only on the kind of data
    "text": {"task": "language", "causal": True},
    "image": {"task": "image", "causal": True},
    "speech": {"task": "speech", "causal": False},
    "stream": {"task": "forecast", "causal": True},
}
FILE, TOKENIZER = RUN, "tokenizer.json"
CONTENT = Record(
    {"kind": Text(*NAMES), "data": Table(Accepts()), "model": Table(Accepts()), "train": Table(Accepts())}, open=True
)
ROOM = 1 << 28  # parameters of a model that may be built before it is compared with a checkpoint
LOCATIONS = frozenset(("paths", "name", "allow_binary"))  # may change: a fingerprint identifies the data


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that defines a run."""

    kind: str  # of data: one of KINDS
    data: Mapping[str, Any]  # keywords of its opener
    model: ModelConfig
    train: TrainConfig

    def to_dict(self) -> dict[str, Any]:
        settings = as_json(dict(self.data))
        return {"kind": self.kind, "data": settings, "model": self.model.to_dict(), "train": self.train.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Job:
        model, train = ModelConfig.from_dict(values["model"]), TrainConfig.from_dict(values["train"])
        return cls(kind=values["kind"], data=values["data"], model=model, train=train)


class Data(NamedTuple):
    """The parts of a data set and the fields of a model that depend on it."""

    train: Source
    valid: Source
    test: Source | None
    fields: dict[str, Any]  # of ModelConfig
    symbols: Sequence[str] = ()  # phones or letters, the blank first


def open_data(kind: str, settings: Mapping[str, Any], folder: Path | None, *, begun: bool) -> Data:
    """Open the data of a job. Token files and the tokenizer go to `folder`; `begun` reuses the tokenizer there."""
    if kind not in KINDS:
        raise unknown("kind of data", kind, KINDS)
    kept = None if folder is None else folder / TOKENIZER
    if kind == "text" and begun and kept is not None and kept.is_file():
        settings = {**settings, "tokenizer": str(kept)}
    try:
        data = KINDS[kind](folder, **settings)
    except (ImportError, OSError) as error:  # a missing package or file is a mistake of the user, as any bad input
        raise ValueError(str(error)) from error
    return data._replace(fields=TASKS[kind] | data.fields)


def run(
    job: Job,
    data: Data,
    out: Path,
    *,
    resume: bool | str = False,
    on_event: OnEvent | None = None,
    group: ProcessGroup | None = None,
) -> tuple[Model, Result]:
    """Build the job's model, with weights drawn from its seed, and train it."""
    if resume:
        _check_room(job.model, out)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.train.seed)
        model = build(job.model)

    def note(event: Event) -> None:
        if event.kind == "start" and (group is None or group.rank == 0):  # so a refused resume changes nothing
            with atomic(out / FILE) as file:
                file.write(json.dumps(job.to_dict() | {"symbols": list(data.symbols)}, indent=2).encode())
        if on_event is not None:
            on_event(event)

    options: dict[str, Any] = {"out": out, "resume": resume, "meta": job.to_dict(), "on_event": note, "group": group}
    return model, fit(model, data.train, data.valid, job.train, **options)


def _check_room(config: ModelConfig, out: Path) -> None:
    """Refuse a model far larger than the weights to resume from, before memory is allocated for it."""
    try:
        weights = out / FOLDER / (pointed(out) or names(out)[-1]) / WEIGHTS
        shapes = read_shapes(weights)
    except (ValueError, OSError, IndexError):  # `fit` reports a damaged checkpoint and names a good one
        return
    check_layers(config, len(shapes), str(weights))
    needed, stored = count_parameters(config), sum(prod(tensor.shape) for tensor in shapes.values())
    if needed > max(2 * stored, ROOM):
        raise ValueError(
            f"{weights} has {stored:,} numbers and the model of {out / FILE} would have {needed:,}; it is damaged: "
            "start the run again with its full command"
        )


def read_job(folder: Path) -> Job:
    """Read the job of a run from its folder."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{path} does not exist; accepted: the --out folder of `linnet train`")
    way_out = "start the run again with its full command"
    values = check(read_json(path, way_out), CONTENT, path, way_out)
    try:
        return Job.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {way_out}") from None


def check_same_data(folder: Path, kind: str, settings: Mapping[str, Any]) -> None:
    """Raise ValueError naming the first setting of the data that differs from the run in the folder."""
    before = read_job(folder)
    now, was = ({"kind": k, **as_json(dict(d))} for k, d in ((kind, settings), (before.kind, before.data)))
    for name in sorted((now | was).keys() - LOCATIONS):
        if now.get(name) != was.get(name):
            raise ValueError(
                f"{name} is {now.get(name)!r} but was {was.get(name)!r} when the run in {folder} began; resume with "
                "the old value, or start a new run in another folder"
            )


def bytes_per_token(source: TextSource, rows: int = 0) -> float:
    """Return the mean size of the predicted tokens of the first rows (0: all): bits per byte = bits per token / it."""
    sizes, total, count = token_sizes(source.tokenizer), 0, 0
    for row in range(min(rows, source.length) if rows else source.length):
        targets = source.batch([row])["targets"]
        chosen = targets[targets >= 0]
        total, count = total + int(sizes[chosen].sum()), count + len(chosen)
    return total / count


def token_sizes(tokenizer: Tokenizer) -> torch.Tensor:  # [vocab_size] int64
    """Return how many bytes of text each token stands for; 1 if the tokenizer cannot tell."""
    table = tokenizer.token_bytes
    return torch.ones(tokenizer.vocab_size, dtype=torch.long) if table is None else torch.tensor([*map(len, table)])


def _text(
    folder: Path | None,
    *,
    paths: Sequence[str] = (),
    tokenizer: str = "byte",
    vocab_size: int = 2048,
    seq_len: int = 256,
    valid_fraction: float = 0.1,
    allow_binary: bool = False,
) -> Data:
    """Open text files, or the shipped text if there are none; `tokenizer`: byte, bpe (trained here) or a path."""
    files = list(paths) or [str(shipped_text())]
    coder = _tokenizer(tokenizer, files, vocab_size)
    options: dict[str, Any] = {"valid_fraction": valid_fraction, "cache": folder, "allow_binary": allow_binary}
    train, valid = (TextSource(files, coder, seq_len, split, **options) for split in ("train", "valid"))
    if folder is not None and tokenizer != str(folder / TOKENIZER):
        folder.mkdir(parents=True, exist_ok=True)
        coder.save(folder / TOKENIZER)  # for resuming and evaluating with the same tokenizer
    return Data(train, valid, None, {"vocab_size": coder.vocab_size, "max_length": seq_len})


def _tokenizer(name: str, files: Sequence[str], vocab_size: int) -> Tokenizer:
    if name == "byte":
        return ByteTokenizer()
    if name == "bpe":
        return BPETokenizer.train_files(files, vocab_size)
    if not Path(name).exists():
        raise unknown("tokenizer, and no such file:", name, [*NAMES["text"], "a tokenizer.json"])
    return load_tokenizer(name)


def _image(folder: Path | None, *, name: str = "digits") -> Data:
    """Open digits (shipped), mnist, cifar10, fashion-mnist, or a path to idx, npz or a folder of PNG files."""
    train, valid = image_set(name, "train"), image_set(name, "valid")
    place = Path(name)
    tested = name in IMAGES or (place / "test").is_dir() or any(any(place.glob(p)) for p in IMAGE_FILES["test"])
    fields = {"vocab_size": train.levels, "max_length": train.images.shape[1]}
    return Data(train, valid, image_set(name, "test") if tested else None, fields)


def _speech(folder: Path | None, *, name: str = "generated", **options: Any) -> Data:
    """Open an4, fsdd, generated, or a folder of wav files with transcripts.tsv; `options` go to its reader."""
    parts: tuple[SpeechSource, ...]
    if name in _SPEECH:
        parts = _SPEECH[name](**options)
    elif Path(name).is_dir():
        parts = tuple(speech_folder(name, split, **options) for split in ("train", "valid"))
    else:
        raise unknown("speech, and no such folder:", name, [*NAMES["speech"], "a folder of recordings"])
    train, valid, *test = parts
    longest = max(-(-u.frames // part.bucket) * part.bucket for part in parts for u in part.utterances)
    fields = {"vocab_size": len(train.phones), "input_dim": train.feature_dim, "max_length": longest}
    return Data(train, valid, test[0] if test else None, fields, tuple(train.phones))


def _generated(n: int = 512, seed: int = 0, noise: float = 1.0) -> tuple[SpeechSource, ...]:
    parts = ((n, seed), (max(1, n // 8), seed + 1), (max(1, n // 8), seed + 2))
    return tuple(generated_speech(size, seed, noise=noise) for size, seed in parts)


_SPEECH: dict[str, Callable[..., tuple[SpeechSource, ...]]] = {
    "an4": lambda **options: tuple(an4(split, **options) for split in ("train", "valid", "test")),
    "fsdd": lambda **options: tuple(fsdd(split, **options) for split in ("train", "valid", "test")),
    "generated": _generated,
}


def _stream(
    folder: Path | None,
    *,
    name: str = "generated",
    context: int = 256,
    horizon: int = 1,
    targets: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    missing: str = "error",
) -> Data:
    """Open etth1, beijing-pm25, nyc-taxi, generated or a CSV file; split by time into 70, 10 and 20 per cent."""
    place = Path(name)
    if name not in NAMES["stream"] and not any(p.is_file() for p in (place, *place.parents)):
        raise unknown("stream, and no such file:", name, [*NAMES["stream"], "a CSV file"])
    series: Any = generated_stream(8192, 0) if name == "generated" else stream_file(name) if name in STREAMS else place
    options: dict[str, Any] = {"context": context, "horizon": horizon, "targets": targets, "columns": columns}
    options |= {"missing": missing, "cache": folder}
    train, valid, test = (StreamSource(series, split=split, **options) for split in ("train", "valid", "test"))
    channels = tuple(int(i) for i in train.targets)
    sizes = {"input_dim": len(train.columns), "output_dim": len(channels), "output_channels": channels}
    return Data(train, valid, test, {"max_length": context, "horizon": horizon, **sizes})


KINDS: dict[str, Callable[..., Data]] = {"text": _text, "image": _image, "speech": _speech, "stream": _stream}
