"""AN4 from a small archive of the same form, and the real one where there is a data folder."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from linnet.data.an4 import an4
from linnet.data.folders import data_folder
from linnet.data.mel import deltas, normalise, stack
from linnet.data.speech import BLANK

DIC = "A  AH\nA(2)  EY\nGO  G OW\nNO  N OW\n"
SPEAKERS = [f"s{i:02}" for i in range(10)]


def cepstra(i: int) -> np.ndarray:
    return np.random.default_rng(i).normal(size=(12 + i, 13)).astype(np.float32)


def mfc(array: np.ndarray) -> bytes:
    return struct.pack(">i", array.size) + array.astype(">f4").tobytes()


def build(path: Path, text: str = "GO A NO", feature: bytes | None = None) -> Path:
    """Ten training speakers and one test speaker with one utterance each."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("an4/etc/an4.dic", DIC)
        archive.writestr("an4/etc/an4.phone", "AH\nEY\nG\nN\nOW\nSIL\n")
        for part, speakers in (("train", SPEAKERS), ("test", ["t"])):
            files = [f"clstk/{s}/u-{s}" for s in speakers]
            archive.writestr(f"an4/etc/an4_{part}.fileids", "\n".join(files) + "\n")
            lines = [f"{text} (u-{s})" for s in speakers]
            archive.writestr(f"an4/etc/an4_{part}.transcription", "\n".join(lines) + "\n")
            for i, file in enumerate(files):
                archive.writestr(f"an4/feat/{file}.mfc", feature or mfc(cepstra(i)))
    return path


def test_features_and_targets(tmp_path: Path) -> None:
    path = build(tmp_path / "a.zip")
    source = an4("train+valid", normalised=False, path=path)
    assert source.phones == [BLANK, "AH", "EY", "G", "N", "OW"]
    for i, u in enumerate(source.utterances):
        assert torch.equal(u.load(), torch.from_numpy(cepstra(i)))
    spoken = [source.phones[t] for t in source.utterances[0].targets]
    assert spoken == "G OW EY N OW".split()  # A is the letter
    letters = an4("test", targets="letters", path=path)
    assert letters.phones == [BLANK, " ", "A", "G", "N", "O"]
    assert "".join(letters.phones[t] for t in letters.utterances[0].targets) == "GO A NO"
    words = an4("test", targets="words", path=path)
    assert [words.phones[t] for t in words.utterances[0].targets] == ["GO", "A", "NO"]


def test_options_are_those_of_prepare(tmp_path: Path) -> None:
    source = an4("test", with_deltas=True, stacked=2, path=build(tmp_path / "a.zip"))
    wanted = stack(normalise(deltas(torch.from_numpy(cepstra(0)))), 2)
    assert torch.equal(source.utterances[0].load(), wanted)
    assert source.feature_dim == 78


def test_validation_is_a_speaker_that_training_never_hears(tmp_path: Path) -> None:
    path = build(tmp_path / "a.zip")
    names = {split: [u.name for u in an4(split, path=path).utterances] for split in ("train", "valid", "train+valid")}
    assert names["valid"] == ["clstk/s09/u-s09"]
    assert sorted(names["train"] + names["valid"]) == sorted(names["train+valid"])
    assert len(names["train"]) == 9


def test_bad_archives_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path / "a.zip")
    with pytest.raises(ValueError, match="unknown split of AN4 'tset'; did you mean 'test'"):
        an4("tset", path=path)
    with pytest.raises(ValueError, match="unknown targets of AN4 'phone'; did you mean 'phones'"):
        an4(targets="phone", path=path)
    with pytest.raises(ValueError, match=r"clstk/s00/u-s00 has the word 'STOP', which is not in an4.dic"):
        an4(path=build(tmp_path / "b.zip", text="STOP"))
    with pytest.raises(ValueError, match=r"u-s00.mfc states 156 numbers and has 624 bytes; it is damaged"):
        an4(path=build(tmp_path / "c.zip", feature=mfc(cepstra(0))[:-4]))
    with pytest.raises(ValueError, match="clstk/s00/u-s00 has 2 frames, but its 5 symbols need 5"):
        an4(stacked=6, path=path)
    (tmp_path / "d.zip").write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match=r"d.zip is not a complete zip file"):
        an4(path=tmp_path / "d.zip")
    monkeypatch.setattr("linnet.data.speech.data_folder", lambda name: None)
    with pytest.raises(
        FileNotFoundError, match="set LINNET_DATA to the folder that holds an4, or use generated_speech"
    ):
        an4()


def test_the_real_set() -> None:
    if data_folder("an4") is None:
        pytest.skip("no data folder with an4")
    train, valid, test = (an4(split) for split in ("train", "valid", "test"))
    assert (train.length, valid.length, test.length) == (857, 91, 130)
    assert len(train.phones) == 34
    assert sum(u.frames for s in (train, valid, test) for u in s.utterances) == 289252
    first = test.utterances[0]
    assert " ".join(test.phones[t] for t in first.targets).endswith("F TH R IY N AY N")
    assert an4("train+valid", targets="letters", stacked=3).feature_dim == 39
