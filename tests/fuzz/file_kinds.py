"""The kinds of file that linnet reads, each with a healthy one, what may be done to it, and how it is read.

`tests/fuzz/files.py` does the rest. Weights are drawn from a fixed seed, so a case means the same everywhere.
"""

from __future__ import annotations

import gzip
import json
import sys
import wave
import zipfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from linnet.checksum import crc32_of_json
from linnet.data import BPETokenizer, ByteTokenizer, load_tokenizer, read_csv
from linnet.data.an4 import an4
from linnet.data.files import text_pieces
from linnet.data.fsdd import fsdd
from linnet.data.images import ImageSource, load_images
from linnet.data.llama_tokenizer import LlamaTokenizer
from linnet.data.speech import speech_folder
from linnet.data.token_file import tokens_of
from linnet.data.wav import read_wav, wav_info
from linnet.models import LanguageModel, Model, ModelConfig, build
from linnet.models.folder import facts_of
from linnet.ops.state_file import load_file
from linnet.pretrained import export_pretrained, load_llama, load_pretrained, read_tokenizer
from linnet.regress.model import ICLConfig, ICLTransformer
from linnet.regress.moments import Moments
from linnet.regress.state_file import load_moments, save_moments
from linnet.train import checkpoint
from linnet.train.config import TrainConfig
from linnet.train.jobs import Job, read_job
from linnet.train.log import RunLog, read_log
from linnet.train.progress import Progress
from linnet.train.resume import open_run
from tests.fuzz.files import Kind, Mutator
from tests.fuzz.mutate import change_json, change_lines, change_safetensors, damage
from tests.pretrained.llama_files import write_bin, write_gguf, write_hf, write_npz
from tests.pretrained.llama_numpy import Sizes, random_parts

BYTES: tuple[Mutator, ...] = (damage,)
JSON: tuple[Mutator, ...] = (damage, change_json, change_json)
LINES: tuple[Mutator, ...] = (damage, change_lines, change_lines)
TENSORS: tuple[Mutator, ...] = (damage, change_safetensors, change_safetensors)
TEXT = "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse. " * 4
SMALL = ModelConfig(d_model=8, n_layers=2, n_heads=2, vocab_size=256, mixer=("conv", "elu"), max_length=16)
CONFIGS = {
    "language": SMALL,
    "hybrid": SMALL.replace(
        mixer=("rebased", "window", "gla", "mamba2", "softmax", "rwkv7"), n_layers=6, positions="rotary"
    ),
    "image": SMALL.replace(task="image", positions="learned", vocab_size=17),
    "speech": SMALL.replace(task="speech", causal=False, mixer="elu", input_dim=4, vocab_size=5),
    "bilstm": SMALL.replace(task="speech", causal=False, mixer="bilstm", input_dim=4, vocab_size=5),
    "forecast": SMALL.replace(task="forecast", input_dim=2, output_dim=1, output_channels=(0,)),
    "translate": SMALL.replace(task="translate", mixer="elu", n_encoder_layers=1, source_vocab_size=11),
}
FIRST_PIECES = ("<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)))
MODEL_PARTS = {"config.json": JSON, "model.safetensors": TENSORS}
TRAIN = TrainConfig(steps=8, batch_size=2)


def seeded(config: ModelConfig) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(13)
        return build(config)


def read_model(folder: Path) -> Any:
    model = Model.from_pretrained(folder)
    assert all(p.is_floating_point() for p in model.parameters()), "weights that are not numbers to compute with"
    if isinstance(model, LanguageModel) and model.config.vocab_size > 65:
        try:
            model(torch.tensor([[1, 65, 3]]))
        except ValueError as error:  # a setting that is refused by the first pass
            raise ValueError(f"{folder}: {error}") from error
    return model.config, model.fingerprint()


def of_model(config: ModelConfig) -> Kind:
    return Kind(lambda folder: seeded(config).save_pretrained(folder), MODEL_PARTS, read_model, sealed=True)


def make_run(folder: Path) -> None:
    model = seeded(SMALL)
    moments = {"embed.weight.exp_avg": torch.zeros(256, 8), "embed.weight.step": torch.tensor(4.0)}
    progress = Progress(step=4, units=64, seconds=1.5, loss=2.5, metrics={"loss": 2.4}, best_step=4, best_loss=2.4)
    about = {
        "step": 4,
        "progress": progress.to_dict(),
        "config": TRAIN.to_dict(),
        "data": {"train": "a", "valid": None},
    }
    checkpoint.save(folder, about | {"meta": {}}, model.save_pretrained, moments)
    with open(folder / "log.jsonl", "wb") as file:
        for step in range(1, 9):
            file.write(json.dumps({"kind": "step", "step": step, "loss": 2.5, "lr": 1e-3}).encode() + b"\n")


def resume_run(folder: Path) -> Any:
    found = open_run(folder, True, seeded(SMALL), TRAIN, {"train": "a", "valid": None})
    assert found is not None
    progress = Progress.from_dict(found.trainer["progress"])
    return progress, found.config, {k: v.tolist() for k, v in (found.model | found.optimizer).items()}


CHECKPOINT = "checkpoints/step-00000004/"
RUN_PARTS = {CHECKPOINT + name: TENSORS for name in ("model.safetensors", "optimizer.safetensors")}
RUN_PARTS |= {CHECKPOINT + name: JSON for name in ("config.json", "trainer.json")} | {"latest": BYTES}


def reseal_run(folder: Path) -> None:
    """Sizes and checksums of a checkpoint put right again."""
    place = folder / CHECKPOINT
    trainer = json.loads((place / "trainer.json").read_bytes())
    trainer["files"] = {p.name: facts_of(p) for p in sorted(place.iterdir()) if p.name != "trainer.json"}
    trainer.pop("crc32", None)
    (place / "trainer.json").write_text(json.dumps(trainer | {"crc32": crc32_of_json(trainer)}))


def make_log(folder: Path) -> None:
    lines = [{"kind": "step", "step": step, "loss": 2.5, "lr": 1e-3} for step in range(1, 20)]
    (folder / "log.jsonl").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def read_run_log(folder: Path) -> Any:
    """A resume after step 15: every good line up to there is kept, whatever the damaged one is."""
    before = (folder / "log.jsonl").read_bytes()
    good = [line["step"] for line in read_log(folder / "log.jsonl", damaged=[])]
    left = before.count(b"\n") - before.count(b"\n\n")
    assert len(good) >= min(left - 1, 16), f"{len(good)} of {left} lines are left"
    log = RunLog(folder, step=15)
    log.close()
    (folder / "log.jsonl").write_bytes(before)
    return good


def make_job(folder: Path) -> None:
    job = Job(kind="text", data={"paths": ["a.txt"], "seq_len": 32}, model=SMALL, train=TRAIN)
    (folder / "run.json").write_text(json.dumps(job.to_dict() | {"symbols": []}))


def llama_tokenizer() -> LlamaTokenizer:
    pieces = [
        *FIRST_PIECES,
        *" abcdehlorw",
        "he",
        "ll",
        "hell",
        "lo",
        " w",
    ]
    return LlamaTokenizer(pieces, [-float(i) for i in range(len(pieces))])


def write_tokenizer_bin(path: Path) -> None:
    found = json.loads(llama_tokenizer().to_json())
    data = (8).to_bytes(4, "little")
    for piece, score in zip(found["pieces"], found["scores"], strict=True):
        raw = piece.encode()
        data += np.float32(score).tobytes() + len(raw).to_bytes(4, "little") + raw
    path.write_bytes(data)


def library_tokenizer() -> str:
    """A tokenizer.json of the `tokenizers` library with byte_fallback, as of Llama 2."""
    pieces = [
        *FIRST_PIECES,
        "\u2581",
        *"helo",
        "he",
        "ll",
        "hell",
        "hello",
    ]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = ["h e", "l l", "he ll", "hell o"]
    model = {"type": "BPE", "byte_fallback": True, "vocab": vocab, "merges": merges, "unk_token": "<unk>"}
    added = [{"id": i, "content": pieces[i], "special": True} for i in range(3)]
    prepend = {"type": "Prepend", "prepend": "\u2581"}
    return json.dumps({"version": "1.0", "added_tokens": added, "normalizer": prepend, "model": model})


def read_coder(read: Callable[[Path], Any], name: str = "tokenizer.json") -> Callable[[Path], Any]:
    def load(folder: Path) -> Any:
        coder = read(folder / name)
        ids = coder.encode("hello world \u00e9")
        return coder.fingerprint, ids, coder.decode(ids), coder.vocab_size, coder.token_bytes

    return load


def read_cached_tokens(folder: Path) -> Any:
    return np.array(tokens_of(folder / "a.txt", load_tokenizer(folder), folder)).tolist()


def make_tokens(folder: Path) -> None:
    (folder / "a.txt").write_text(TEXT)
    llama_tokenizer().save(folder)
    read_cached_tokens(folder)
    next(folder.glob("*.tokens")).rename(folder / "cache.tokens")


def read_tokens_of(folder: Path) -> Any:
    """The cache under the name that it is looked for."""
    name = folder / f"a.txt.{load_tokenizer(folder).fingerprint}.tokens"
    name.write_bytes((folder / "cache.tokens").read_bytes())
    return read_cached_tokens(folder)


def make_states(folder: Path) -> None:
    model = seeded(SMALL)
    _, state = model(torch.tensor([[1, 2, 3]]))
    state.save(folder / "state.safetensors", model=model)


def read_states(folder: Path) -> Any:
    found = load_file(folder / "state.safetensors")
    tensors = [x for state in found.states for x in state if x is not None]
    return found.header, [x.tolist() for x in tensors], {k: v.tolist() for k, v in found.extras.items()}


def make_icl(folder: Path) -> None:
    ICLTransformer(ICLConfig(kind="full", layers=2, d=3), torch.Generator().manual_seed(0)).save(
        folder / "m.safetensors"
    )


def read_icl(folder: Path) -> Any:
    model = ICLTransformer.load(folder / "m.safetensors")
    return model.config, model.p.tolist(), model.q.tolist()


def make_moments(folder: Path) -> None:
    moments = Moments(5.0, np.arange(4.0), np.eye(4))
    save_moments(folder / "s.safetensors", moments, {"model": "diag", "forget_factor": 1.0})


def read_moments(folder: Path) -> Any:
    moments, settings = load_moments(folder / "s.safetensors")
    return moments.n, np.asarray(moments.mean).tolist(), np.asarray(moments.scatter).tolist(), settings


CSV = "date,a,b,c\n" + "".join(f"2020-01-{i % 28 + 1:02d},{i},{i / 7:.4f},{-i}\n" for i in range(200))


def read_table(name: str) -> Callable[[Path], Any]:
    def load(folder: Path) -> Any:
        table = read_csv(folder / name)
        return table.values.tolist(), table.columns, table.skipped

    return load


def make_csv_cache(folder: Path) -> None:
    (folder / "a.csv").write_text(CSV)
    read_csv(folder / "a.csv", cache=folder / "cache")
    for suffix in ("json", "f32"):
        next((folder / "cache").glob(f"*.{suffix}")).rename(folder / f"cache.{suffix}")


def read_csv_cache(folder: Path) -> Any:
    from linnet.data.csv_file import read_csv as read

    (folder / "cache").mkdir(exist_ok=True)
    base = next(iter((folder / "names").read_text().splitlines()), "") if (folder / "names").exists() else ""
    if not base:
        for file in (folder / "cache").iterdir():
            file.unlink()
        read(folder / "a.csv", cache=folder / "cache")
        base = next((folder / "cache").glob("*.json")).stem
        (folder / "names").write_text(base)
    for suffix in ("json", "f32"):
        (folder / "cache" / f"{base}.{suffix}").write_bytes((folder / f"cache.{suffix}").read_bytes())
    table = read(folder / "a.csv", cache=folder / "cache")
    return np.array(table.values).tolist(), table.columns, table.skipped


def zipped(path: Path, members: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, how)


IMAGES = (np.arange(12 * 4 * 4, dtype=np.uint32) * 2654435761 >> 24).astype(np.uint8).reshape(12, 4, 4)


def idx(array: np.ndarray[Any, Any]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def make_idx(folder: Path) -> None:
    (folder / "train-images").write_bytes(idx(IMAGES))
    (folder / "train-labels").write_bytes(idx(np.arange(12) % 10))


def make_idx_gz(folder: Path) -> None:
    (folder / "a.idx.gz").write_bytes(gzip.compress(idx(IMAGES), mtime=0))


def make_npz(folder: Path) -> None:
    np.savez_compressed(folder / "a.npz", images=IMAGES, labels=np.arange(12) % 10)


def make_png(folder: Path) -> None:
    from PIL import Image

    (folder / "set").mkdir()
    for i in range(2):
        Image.fromarray(IMAGES[i]).save(folder / "set" / f"{i}.png")


def read_images(name: str) -> Callable[[Path], Any]:
    def load(folder: Path) -> Any:
        images, labels = load_images(folder / name)
        try:
            return ImageSource(images, labels).fingerprint
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error

    return load


def write_wav(path: Path, seconds: float = 0.2, rate: int = 8000) -> None:
    n = int(seconds * rate)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.sin(np.arange(n) / 7) * 9000).astype("<i2").tobytes())


@contextmanager
def without(module: str) -> Any:
    """As if an optional package were not installed."""
    kept = sys.modules.get(module)
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
        if kept is not None:
            sys.modules[module] = kept


def read_sound(name: str, *, plain: bool = False) -> Callable[[Path], Any]:
    def load(folder: Path) -> Any:
        if plain:
            with without("soundfile"):
                wav_info(folder / name)
                signal, rate = read_wav(folder / name)
        else:
            wav_info(folder / name)
            signal, rate = read_wav(folder / name)
        assert signal.ndim == 1
        assert rate > 0
        return signal.tolist(), rate

    return load


def make_flac(folder: Path) -> None:
    import soundfile

    soundfile.write(folder / "a.flac", np.sin(np.arange(2000) / 9) * 0.3, 8000)


def make_speech(folder: Path) -> None:
    for name in ("a", "b"):
        write_wav(folder / f"{name}.wav", 0.5)
    (folder / "transcripts.tsv").write_text("a\tyes\nb\tno\n")


def read_speech(folder: Path) -> Any:
    source = speech_folder(folder, "all")
    batch = source.batch(range(source.length))
    return source.phones, {name: value.tolist() for name, value in batch.items()}


def make_an4(folder: Path) -> None:
    members = {"an4/etc/an4.dic": b"GO G OW\nNO N OW\n", "an4/etc/an4.phone": b"G\nN\nOW\nSIL\n"}
    for part, speakers in (("train", "abcdefghijkl"), ("test", "z")):
        files = [f"{part}/{s}/1" for s in speakers]
        members[f"an4/etc/an4_{part}.fileids"] = "\n".join(files).encode()
        members[f"an4/etc/an4_{part}.transcription"] = "\n".join(f"GO NO ({f})" for f in files).encode()
        for i, file in enumerate(files):
            frames = np.sin(np.arange(20 * 13) + i).astype(">f4")
            members[f"an4/feat/{file}.mfc"] = (20 * 13).to_bytes(4, "big") + frames.tobytes()
    zipped(folder / "a.zip", members)


def make_fsdd(folder: Path) -> None:
    write_wav(folder / "t.wav", 0.1)
    data = (folder / "t.wav").read_bytes()
    (folder / "t.wav").unlink()
    zipped(folder / "a.zip", {f"recordings/{d}_x_{take}.wav": data for d in (1, 2) for take in (0, 1, 5, 10)})


def read_an4(folder: Path) -> Any:
    return an4("test", path=folder / "a.zip").fingerprint


def read_fsdd(folder: Path) -> Any:
    return fsdd("test", path=folder / "a.zip").fingerprint


def read_text(name: str) -> Callable[[Path], Any]:
    return lambda folder: "".join(text_pieces(folder / name))


def of_llama(write: Callable[[Path, dict[str, Any]], Path], parts: dict[str, tuple[Mutator, ...]]) -> Kind:
    where: dict[Path, Path] = {}

    def make(folder: Path) -> None:
        where[folder] = write(folder, random_parts(Sizes(), True))

    def load(folder: Path) -> Any:
        model, _ = load_llama(where[folder])
        return model.config, model.fingerprint()

    return Kind(make, parts, load)


PUBLISHED = SMALL.replace(
    mixer=("gated_delta", "softmax"),
    mlp="swiglu",
    norm="rms",
    positions="rotary",
    rotary_fraction=0.5,
    bias=False,
    mixer_options={"softmax": {"gate": True, "qk_norm": True, "qk_norm_eps": 1e-5}, "gated_delta": {"key_heads": 1}},
)


def of_published(config: ModelConfig) -> Kind:
    def load(folder: Path) -> Any:
        model, _ = load_pretrained(folder / "m")
        return model.config, model.fingerprint()

    def make(folder: Path) -> None:
        export_pretrained(seeded(config), folder / "m")

    return Kind(make, {"m/config.json": JSON, "m/model.safetensors": TENSORS}, load)


def write_gguf_pieces(folder: Path, parts: dict[str, Any]) -> Path:
    """One file with weights and a tokenizer of the same 300 tokens."""
    pieces = [*FIRST_PIECES, *(f"piece{i}" for i in range(300 - len(FIRST_PIECES)))]
    return write_gguf(folder / "m.gguf", Sizes(), parts, pieces=(pieces, [-float(i) for i in range(300)]))


def writing(name: str, data: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return make


def texts(data: Callable[[bytes], bytes], name: str) -> Kind:
    return Kind(writing(name, data(TEXT.encode())), {name: BYTES}, read_text(name))


def _bz2(data: bytes) -> bytes:
    import bz2

    return bz2.compress(data)


def of_tokenizer(make: Callable[[Path], None], read: Callable[[Path], Any] = load_tokenizer) -> Kind:
    return Kind(make, {"tokenizer.json": JSON}, read_coder(read))


KINDS: dict[str, Kind] = {
    **{f"model {name}": of_model(config) for name, config in CONFIGS.items()},
    "checkpoint": Kind(make_run, RUN_PARTS, resume_run, sealed=True, reseal=reseal_run),
    "log": Kind(make_log, {"log.jsonl": LINES}, read_run_log),
    "job": Kind(make_job, {"run.json": JSON}, read_job),
    "tokenizer byte": of_tokenizer(ByteTokenizer().save),
    "tokenizer bpe": of_tokenizer(lambda folder: BPETokenizer.train([TEXT], 300).save(folder)),
    "tokenizer llama": of_tokenizer(lambda folder: llama_tokenizer().save(folder)),
    "tokenizer library": of_tokenizer(writing("tokenizer.json", library_tokenizer().encode())),
    "tokenizer bin": Kind(
        lambda folder: write_tokenizer_bin(folder / "t.bin"), {"t.bin": BYTES}, read_coder(read_tokenizer, "t.bin")
    ),
    "token file": Kind(make_tokens, {"cache.tokens": BYTES}, read_tokens_of, sealed=True),
    "published": of_published(PUBLISHED),
    "state file": Kind(make_states, {"state.safetensors": TENSORS}, read_states, sealed=True),
    "icl model": Kind(make_icl, {"m.safetensors": TENSORS}, read_icl, sealed=True),
    "icl state": Kind(make_moments, {"s.safetensors": TENSORS}, read_moments, sealed=True),
    "csv": Kind(writing("a.csv", CSV.encode()), {"a.csv": BYTES}, read_table("a.csv")),
    "csv gz": Kind(
        writing("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        {"a.csv.gz": BYTES},
        read_table("a.csv.gz"),
    ),
    "csv zip": Kind(
        lambda folder: zipped(folder / "a.zip", {"m.csv": CSV.encode()}), {"a.zip": BYTES}, read_table("a.zip/m.csv")
    ),
    "csv cache": Kind(make_csv_cache, {"cache.json": JSON, "cache.f32": BYTES}, read_csv_cache, sealed=True),
    "idx": Kind(make_idx, {"train-images": BYTES, "train-labels": BYTES}, read_images("train-images")),
    "idx gz": Kind(make_idx_gz, {"a.idx.gz": BYTES}, read_images("a.idx.gz")),
    "npz": Kind(make_npz, {"a.npz": BYTES}, read_images("a.npz")),
    "png": Kind(make_png, {"set/0.png": BYTES}, read_images("set")),
    "wav": Kind(lambda folder: write_wav(folder / "a.wav"), {"a.wav": BYTES}, read_sound("a.wav")),
    "wav plain": Kind(lambda folder: write_wav(folder / "a.wav"), {"a.wav": BYTES}, read_sound("a.wav", plain=True)),
    "flac": Kind(make_flac, {"a.flac": BYTES}, read_sound("a.flac")),
    "speech folder": Kind(make_speech, {"a.wav": BYTES, "transcripts.tsv": BYTES}, read_speech),
    "an4": Kind(make_an4, {"a.zip": BYTES}, read_an4),
    "fsdd": Kind(make_fsdd, {"a.zip": BYTES}, read_fsdd),
    "text": texts(lambda data: data, "a.txt"),
    "text gz": texts(lambda data: gzip.compress(data, mtime=0), "a.txt.gz"),
    "text bz2": texts(_bz2, "a.txt.bz2"),
    "llama bin": of_llama(lambda folder, parts: write_bin(folder / "m.bin", Sizes(), parts), {"m.bin": BYTES}),
    "llama npz": of_llama(lambda folder, parts: write_npz(folder / "m.npz", Sizes(), parts), {"m.npz": BYTES}),
    "llama gguf": of_llama(lambda folder, parts: write_gguf(folder / "m.gguf", Sizes(), parts), {"m.gguf": BYTES}),
    "llama gguf tokenizer": of_llama(write_gguf_pieces, {"m.gguf": BYTES}),
    "llama hf": of_llama(
        lambda folder, parts: write_hf(folder / "m", Sizes(), parts),
        {"m/config.json": JSON, "m/model.safetensors": TENSORS},
    ),
    "llama hf shards": of_llama(
        lambda folder, parts: write_hf(folder / "m", Sizes(), parts, shards=2),
        {"m/model.safetensors.index.json": JSON, "m/config.json": JSON},
    ),
}
