"""Utterances to padded batches, what CTC cannot align, a user's own folder of recordings, generated speech."""

from __future__ import annotations

import wave
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from linnet.data.mel import log_mel, normalise
from linnet.data.speech import (
    BLANK,
    SpeechSource,
    Utterance,
    check_utterance,
    encode,
    generated_speech,
    held_out,
    in_memory,
    speech_folder,
)
from linnet.data.wav import read_wav

PHONES = [BLANK, "a", "b", "c"]


def utterance(frames: int, *targets: int) -> Utterance:
    return in_memory(f"u{frames}", torch.full((frames, 2), float(frames)), targets)


def record(path: Path, seconds: float, rate: int = 8000) -> None:
    samples = (3000 * np.random.default_rng(len(path.name)).normal(size=int(seconds * rate))).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(12):
        record(tmp_path / f"r{i:02}.wav", 0.3 + 0.05 * i)
    lines = [f"r{i:02}{'.wav' if i % 2 else ''}\tab {'c' * (i % 3)}d" for i in range(12)]
    (tmp_path / "transcripts.tsv").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return tmp_path


def test_batch_is_padded_with_zeros_to_a_bucket() -> None:
    source = SpeechSource([utterance(5, 1, 2), utterance(9, 3), utterance(17, 2, 1, 3)], PHONES, bucket=4)
    batch = source.batch([1, 0])
    assert batch["features"].shape == (2, 12, 2)
    assert batch["features"][:, :, 0].tolist() == [[9.0] * 9 + [0.0] * 3, [5.0] * 5 + [0.0] * 7]
    assert batch["lengths"].tolist() == [9, 5]
    assert batch["targets"].tolist() == [[3, 0], [1, 2]]
    assert batch["target_lengths"].tolist() == [1, 2]
    assert all(batch[k].dtype == torch.long for k in ("lengths", "targets", "target_lengths"))
    assert (source.length, source.unit, source.feature_dim, source.units(batch)) == (3, "frames", 2, 14)


def test_every_batch_has_a_finite_ctc_loss() -> None:
    """The check is exactly what CTC needs: at the limit there is one alignment, below it there is none."""
    for targets, needed in (((1,), 1), ((1, 2, 1), 3), ((1, 1, 1), 5), ((2, 2, 3), 4)):
        for frames in (needed, needed - 1):
            logits = torch.zeros(frames, 1, 4).log_softmax(-1) if frames else torch.zeros(1, 1, 4)
            if frames == needed:
                check_utterance(utterance(frames, *targets), 4)
                lengths = torch.tensor([frames]), torch.tensor([len(targets)])
                assert torch.nn.functional.ctc_loss(logits, torch.tensor([targets]), *lengths).isfinite()
            else:
                with pytest.raises(ValueError, match=rf"u{frames} has {frames} frames, but its {len(targets)} symbols"):
                    check_utterance(utterance(frames, *targets), 4)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (utterance(4), "u4 has an empty transcript"),
        (utterance(4, 1, 0), r"u4 has targets \(1, 0\); accepted: from 1"),
        (utterance(4, 4), r"u4 has targets \(4,\); accepted: from 1 \(0 is the blank\) to 3"),
        (utterance(2, 1, 1), "u2 has 2 frames, but its 2 symbols need 3"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_by_name(bad: Utterance, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpeechSource([utterance(9, 1), bad], PHONES)


def test_no_utterances_and_a_table_without_blank() -> None:
    with pytest.raises(ValueError, match="there are no utterances"):
        SpeechSource([], PHONES)
    for phones in (["a", "b"], [BLANK, "a", "a"]):
        with pytest.raises(ValueError, match="accepted: '<blank>' first, then different symbols"):
            SpeechSource([utterance(9, 1)], phones)


def test_encode_names_the_recording_of_an_unknown_symbol() -> None:
    assert encode("cab", PHONES, "x.wav") == (3, 1, 2)
    with pytest.raises(ValueError, match=r"x.wav has the symbol 'z', which is not in the table; accepted: 'a' 'b' 'c'"):
        encode("caz", PHONES, "x.wav")
    with pytest.raises(ValueError, match="the symbol '<blank>'"):
        encode([BLANK], PHONES, "x.wav")


def test_fingerprint_is_that_of_the_content() -> None:
    def source(change: float = 0.0, target: int = 1) -> str:
        features = torch.ones(9, 2)
        features[4, 1] += change
        return SpeechSource([in_memory("u", features, (target,))], PHONES).fingerprint

    assert source() == source()
    assert len({source(), source(0.5), source(0.0, 2)}) == 3


def test_held_out_is_every_tenth_and_at_least_the_last() -> None:
    assert [i for i, out in enumerate(held_out(25)) if out] == [9, 19]
    assert held_out(3) == [False, False, True]


def test_folder_of_recordings(folder: Path) -> None:
    train, valid, everything = (speech_folder(folder, split) for split in ("train", "valid", "all"))
    assert [Path(u.name).name for u in valid.utterances] == ["r09.wav"]
    assert (train.length, everything.length, train.feature_dim) == (11, 12, 40)
    assert train.phones == valid.phones == [BLANK, " ", "a", "b", "c", "d"]
    batch = everything.batch([4, 11])
    for i, row in enumerate((4, 11)):
        wanted = normalise(log_mel(read_wav(folder / f"r{row:02}.wav")[0], 8000))
        assert torch.equal(batch["features"][i, : batch["lengths"][i]], wanted)
        text = "".join(train.phones[t] for t in batch["targets"][i, : batch["target_lengths"][i]])
        assert text == f"ab {'c' * (row % 3)}d"
    assert torch.equal(everything.batch([4, 11])["features"], batch["features"])


def test_folder_with_deltas_stacked_and_the_table_of_a_model(folder: Path) -> None:
    table = [BLANK, *" abcdefgh"]
    source = speech_folder(folder, n_mels=20, with_deltas=True, stacked=2, phones=table)
    assert (source.feature_dim, source.phones) == (120, table)
    for u in source.utterances:
        assert u.load().shape == (u.frames, 120)
    with pytest.raises(ValueError, match=r"r00.wav has the symbol 'd', which is not in the table"):
        speech_folder(folder, phones=[BLANK, *" abc"])


def test_folder_with_another_rate(folder: Path) -> None:
    record(folder / "r05.wav", 0.5, rate=11025)
    with pytest.raises(ValueError, match=r"r05.wav is at 11025 Hz, and 8000 Hz is required; pass resample=True"):
        speech_folder(folder)
    source = speech_folder(folder, resample=True)
    for u in source.utterances:
        assert u.load().shape == (u.frames, 40)
    assert speech_folder(folder, rate=16000, resample=True).batch([0])["features"].isfinite().all()
    record(folder / "r00.wav", 0.5, rate=8)
    with pytest.raises(ValueError, match=r"r00.wav at 8 samples per second: frame 0.025 s and hop 0.01 s are 0 and 0"):
        speech_folder(folder)


def test_fingerprint_of_a_folder_follows_sounds_texts_and_options(folder: Path) -> None:
    prints = [speech_folder(folder).fingerprint]
    assert speech_folder(folder).fingerprint == prints[0]
    prints.append(speech_folder(folder, "valid").fingerprint)
    prints.append(speech_folder(folder, stacked=2).fingerprint)
    record(folder / "r01.wav", 0.36)
    prints.append(speech_folder(folder).fingerprint)
    table = folder / "transcripts.tsv"
    table.write_text(table.read_text(encoding="utf-8").replace("r02\tab", "r02\tba"), encoding="utf-8")
    prints.append(speech_folder(folder).fingerprint)
    assert len(set(prints)) == 5


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("r00\tab\nr01\t \n", r"transcripts.tsv line 2 \('r01'\) has an empty transcript"),
        ("r00\tab\nr01 cd\n", r"line 2 \('r01 cd'\) has no tab"),
        ("r00\tab\n\nr00\tcd\n", "line 3 names 'r00' again"),
        ("", "has no lines"),
        (
            "r00\t" + "ab" * 50 + "\nr01\ta\n",
            r"r00.wav has 28 frames, but its 100 symbols need 100; check its transcript",
        ),
        ("r00\tab\n", "has 1 recording, too few for a train part"),
    ],
)
def test_bad_transcripts(folder: Path, lines: str, message: str) -> None:
    (folder / "transcripts.tsv").write_text(lines, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        speech_folder(folder)


def test_missing_files_and_bad_options(folder: Path) -> None:
    with pytest.raises(ValueError, match="unknown split of a folder of recordings 'vaild'; did you mean 'valid'"):
        speech_folder(folder, "vaild")
    with pytest.raises(ValueError, match="stacked is 0"):
        speech_folder(folder, stacked=0)
    (folder / "r03.wav").unlink()
    with pytest.raises(FileNotFoundError, match=r"names 'r03.wav', but .* has no such recording"):
        speech_folder(folder)
    with pytest.raises(FileNotFoundError, match=r"there is no .*transcripts.tsv; write one with a line name<TAB>text"):
        speech_folder(folder / "none")


def test_generated_speech() -> None:
    source = generated_speech(40, 0)
    same, other = generated_speech(40, 0), generated_speech(40, 1)
    assert (source.length, source.feature_dim, len(source.phones)) == (40, 16, 21)
    assert torch.equal(source.batch(range(40))["features"], same.batch(range(40))["features"])
    assert source.fingerprint == same.fingerprint != other.fingerprint
    for u in source.utterances:
        assert 8 <= len(u.targets) <= 20
        assert 3 * len(u.targets) <= u.frames <= 8 * len(u.targets)
        assert all(a != b for a, b in pairwise(u.targets))
    assert {t for u in source.utterances for t in u.targets} == set(range(1, 21))


def test_generated_phones_can_be_told_apart_across_seeds() -> None:
    """The middle of a phone looks like that phone in another draw: the templates do not depend on the seed."""
    mean = [
        torch.stack([u.load().mean(0) for u in generated_speech(300, seed, noise=0.0).utterances]) for seed in (0, 1)
    ]
    shares = [
        torch.stack([torch.bincount(torch.tensor(u.targets), minlength=21) / len(u.targets) for u in s.utterances])
        for s in (generated_speech(300, 0), generated_speech(300, 1))
    ]
    weights = torch.linalg.lstsq(shares[0][:, 1:], mean[0]).solution  # fitted on one seed, used on the other
    rest = (shares[1][:, 1:] @ weights - mean[1]).square().mean() / mean[1].var(0).mean()
    assert rest < 0.3
