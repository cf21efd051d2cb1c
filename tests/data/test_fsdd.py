"""Spoken digits from a small archive of the same form, and the real one where there is a data folder."""

from __future__ import annotations

import io
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from linnet.data.folders import data_folder
from linnet.data.fsdd import fsdd
from linnet.data.mel import log_mel, normalise

LENGTH = 1600  # samples of each recording


def sound(seed: int, rate: int = 8000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((1000 * np.random.default_rng(seed).normal(size=LENGTH)).astype("<i2").tobytes())
    return out.getvalue()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fsdd") / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("recordings/README.md", "other files do not matter")
        for i, (digit, speaker, take) in enumerate(
            (d, s, t) for d in (0, 3, 6) for s in ("x", "y") for t in (0, 4, 5, 9, 10, 11)
        ):
            file.writestr(f"recordings/{digit}_{speaker}_{take}.wav", sound(i))
    return path


def test_official_takes_and_phones(archive: Path) -> None:
    names = {split: {u.name for u in fsdd(split, path=archive).utterances} for split in ("train", "valid", "test")}
    assert {name.split("_")[2] for name in names["test"]} == {"0", "4"}
    assert {name.split("_")[2] for name in names["valid"]} == {"5", "9"}
    assert {name.split("_")[2] for name in names["train"]} == {"10", "11"}
    assert {len(n) for n in names.values()} == {12}
    source = fsdd("test", path=archive)
    for u in source.utterances:
        wanted = {"0": "Z IH R OW", "3": "TH R IY", "6": "S IH K S"}[u.name[0]]
        assert " ".join(source.phones[t] for t in u.targets) == wanted
    assert len(source.phones) == 20  # all ten digits, whichever are in this part
    words = fsdd("test", targets="words", path=archive)
    assert [words.phones[t] for u in words.utterances for t in u.targets if u.name[0] == "6"] == ["SIX"] * 4


def test_strings_of_digits_of_one_speaker(archive: Path) -> None:
    source = fsdd("train+valid", concat=(2, 3), seed=5, path=archive)
    used = [name for u in source.utterances for name in u.name.split("+")]
    assert len(used) == len(set(used)) == 24  # each recording once
    singles = fsdd("train+valid", normalised=False, path=archive)
    phones = {u.name: u.targets for u in singles.utterances}
    for u in source.utterances:
        names = u.name.split("+")
        assert len({name.split("_")[1] for name in names}) == 1
        assert 2 <= len(names) <= 4  # a last one that would be alone joins those before it
        assert u.targets == sum((phones[name] for name in names), ())
        assert u.frames == 1 + (len(names) * LENGTH - 200) // 80
    same, other = (fsdd("train+valid", concat=(2, 3), seed=seed, path=archive) for seed in (5, 6))
    assert source.fingerprint == same.fingerprint != other.fingerprint
    twice = fsdd("train+valid", concat=(2, 3), passes=2, seed=5, path=archive)
    assert sum(len(u.name.split("+")) for u in twice.utterances) == 48


def test_features_are_log_mel_of_the_sound(archive: Path) -> None:
    with zipfile.ZipFile(archive) as file, wave.open(io.BytesIO(file.read("recordings/3_y_4.wav"))) as recording:
        samples = np.frombuffer(recording.readframes(LENGTH), dtype="<i2")
    wanted = normalise(log_mel(torch.from_numpy(samples.astype(np.float32)) / 32768, 8000, 30))
    source = fsdd("test", n_mels=30, path=archive)
    (u,) = [u for u in source.utterances if u.name == "3_y_4"]
    assert torch.equal(u.load(), wanted)


def test_bad_options_and_archives(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown split of FSDD 'tarin'; did you mean 'train'"):
        fsdd("tarin", path=archive)
    with pytest.raises(ValueError, match="unknown targets of FSDD 'letters'"):
        fsdd(targets="letters", path=archive)
    with pytest.raises(ValueError, match=r"concat is \(3, 2\) and passes 1; accepted: 1 <= low <= high"):
        fsdd(concat=(3, 2), path=archive)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("recordings/0_x_0.wav", sound(0, rate=16000))
    with pytest.raises(ValueError, match=r"recordings/0_x_0.wav is at 16000 Hz, and 8000 Hz is required"):
        fsdd("test", path=tmp_path / "b.zip")
    with pytest.raises(ValueError, match=r"b.zip has no recordings digit_speaker_take.wav for train"):
        fsdd("train", path=tmp_path / "b.zip")
    monkeypatch.setattr("linnet.data.speech.data_folder", lambda name: None)
    with pytest.raises(FileNotFoundError, match="set LINNET_DATA to the folder that holds fsdd"):
        fsdd()


def test_the_real_set() -> None:
    if data_folder("fsdd") is None:
        pytest.skip("no data folder with fsdd")
    source = fsdd("test")
    assert source.length == 300
    assert {u.name.split("_")[2] for u in source.utterances} == set("01234")
    strings = fsdd("test", concat=(3, 7), stacked=3)
    assert sum(len(u.name.split("+")) for u in strings.utterances) == 300
    assert strings.feature_dim == 120
