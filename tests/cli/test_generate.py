"""`linnet generate text` prints what `generate` returns, continues states, and refuses bad input in one sentence."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.cli import generate_text, main
from linnet.data import ByteTokenizer, load_tokenizer
from linnet.generate import Generation, Sampling, beam_search, generate
from linnet.models import LanguageModel, ModelState
from tests.cli.command import linnet, refused

CLOSE = 2e-4  # float32 log-probabilities of two engines
BYTES = ByteTokenizer()
Capsys = pytest.CaptureFixture[str]


def language(folder: Path) -> LanguageModel:
    return LanguageModel.from_pretrained(folder)


def piped(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="ascii")  # whatever the machine prefers


def text(capsys: Capsys, *args: object) -> Any:
    done = linnet(capsys, "generate", "text", *args)
    assert done.status == 0, done.err
    return done


@pytest.mark.parametrize("name", ["text", "bpe"])
def test_prints_the_text_that_generate_gives(capsys: Capsys, runs: Path, name: str) -> None:
    done = text(capsys, runs / name, "--prompt", "the whale", "--tokens", "30", "--temperature", "0.9", "--seed", "3")
    tokenizer = load_tokenizer(runs / name)
    how: dict[str, Any] = {"tokenizer": tokenizer, "max_tokens": 30, "sampling": Sampling(temperature=0.9, seed=3)}
    (wanted,) = generate(language(runs / name), ["the whale"], **how)
    assert done.out == f"{wanted.text}\n"
    assert wanted.state is not None
    size, lines = f"{wanted.state.nbytes:,} bytes of state", done.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("30 tokens in ")
    assert lines[0].endswith(f" tokens/s) after {len(wanted.prompt_tokens)} of prompt; {size}")
    assert text(capsys, runs / name, "--prompt", "the whale", "--quiet").err == ""


def test_text_is_printed_token_by_token(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been printed after each step is all the text there is, and never half a character."""
    shown, generated, step = [], [""], Generation.step
    pipe = io.BytesIO()

    def watched(run: Generation) -> Any:
        shown.append(pipe.getvalue().decode())
        pieces = step(run)
        generated.append(generated[-1] + pieces[0][1].text)
        return pieces

    monkeypatch.setattr(Generation, "step", watched)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="utf-8"))  # what is not flushed stays in it
    with pytest.raises(SystemExit):
        main.main(["generate", "text", str(runs / "text"), "--prompt", "the", "--tokens", "40", "--temperature", "2"])
    assert len(generated) == 41
    assert shown == generated[:-1]
    assert len(set(shown)) > 10


def test_the_filters_reach_the_sampler(capsys: Capsys, runs: Path) -> None:
    given = {"temperature": 1.5, "top_k": 20, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.4, "seed": 5}
    flags = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = text(capsys, runs / "text", "--prompt", "the", "--tokens", "40", *flags)
    how: dict[str, Any] = {"tokenizer": BYTES, "max_tokens": 40}
    (wanted,) = generate(language(runs / "text"), ["the"], sampling=Sampling(**given), **how)  # type: ignore[arg-type]
    assert done.out == f"{wanted.text}\n"
    default = text(capsys, runs / "text", "--prompt", "the", "--tokens", "40").out
    (cooler,) = generate(language(runs / "text"), ["the"], sampling=Sampling(temperature=0.8), **how)
    assert default == f"{cooler.text}\n" != done.out


def test_json_has_everything(capsys: Capsys, runs: Path) -> None:
    done = text(
        capsys, runs / "text", "--prompt", "the", "--tokens", "6", "--samples", "3", "--logprobs", "2", "--json"
    )
    documents = [json.loads(line) for line in done.out.splitlines()]
    how: dict[str, Any] = {"tokenizer": BYTES, "max_tokens": 6, "sampling": Sampling(temperature=0.8)}
    wanted = generate(language(runs / "text"), ["the"] * 3, logprobs=2, **how)
    for i, (document, completion) in enumerate(zip(documents, wanted, strict=True)):
        assert (document["row"], document["prompt_tokens"], document["finish"]) == (i, 3, "length")
        assert (document["text"], document["tokens"]) == (completion.text, completion.tokens)
        assert document["logprobs"] == pytest.approx(completion.logprobs, abs=CLOSE)
        assert [len(place) for place in document["top"]] == [2] * 6


def test_several_samples_are_shown_one_after_the_other(capsys: Capsys, runs: Path) -> None:
    out = text(capsys, runs / "text", "--prompt", "the", "--tokens", "5", "--samples", "2", "--temperature", "0").out
    assert out.startswith("--- 1 of 2\n")
    first, second = out.removeprefix("--- 1 of 2\n").split("\n--- 2 of 2\n")
    assert f"{first}\n" == second


def test_stop_ends_the_text(capsys: Capsys, runs: Path) -> None:
    how = ("--prompt", "the", "--tokens", "50", "--temperature", "2")
    whole = text(capsys, runs / "text", *how).out
    stop = whole[12:14]
    done = text(capsys, runs / "text", *how, "--stop", stop)
    assert done.out == whole[: whole.index(stop)] + "\n"


def test_beams_are_those_of_the_library(capsys: Capsys, runs: Path) -> None:
    how = ("--prompt", "the", "--tokens", "5", "--beams", "4")
    documents = json.loads(text(capsys, runs / "text", *how, "--json").out)
    (best,) = beam_search(language(runs / "text"), "the", tokenizer=BYTES, beams=4, max_tokens=5)
    assert (documents["text"], documents["tokens"]) == (best.text, best.tokens)
    assert documents["score"] == pytest.approx(best.score, abs=CLOSE)
    shown = text(capsys, runs / "text", *how, "--samples", "2").out
    assert shown.startswith(f"--- 1 of 2, score {best.score:.4f}\n{best.text}\n--- 2 of 2, score ")


def test_prompts_come_from_a_file_or_a_pipe(
    capsys: Capsys, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("--tokens", "8", "--temperature", "0")
    wanted = text(capsys, runs / "text", "--prompt", "the ship\n", *how).out
    file = tmp_path / "start.txt"
    file.write_text("the ship\n", encoding="utf-8")
    assert text(capsys, runs / "text", "--prompt-file", file, *how).out == wanted
    monkeypatch.setattr(sys, "stdin", piped(b"the ship\n"))
    assert text(capsys, runs / "text", *how).out == wanted
    monkeypatch.setattr(sys, "stdin", piped(b"caf\xe9 noir"))
    message = refused(capsys, "generate", "text", runs / "text", *how)
    assert "standard input is not UTF-8 text (invalid continuation byte at byte 3)" in message


def test_a_terminal_that_has_not_every_character_shows_the_others(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = language(runs / "text")
    with torch.no_grad():
        model.head.weight.zero_() if model.head is not None else model.embed.weight.zero_()
    model.save_pretrained(tmp_path / "even")  # every byte as likely: some are no text
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="ascii"))
    with pytest.raises(SystemExit) as left:
        main.main(["generate", "text", str(tmp_path / "even"), "--prompt", "the", "--tokens", "40", "--quiet"])
    assert not left.value.code
    assert b"?" in pipe.getvalue()


def test_a_state_goes_on_where_the_text_ended(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    greedy, file = ("--temperature", "0", "--json"), tmp_path / "tale"
    first = json.loads(
        text(capsys, runs / "text", "--prompt", "the", "--tokens", "7", *greedy, "--save-state", file).out
    )
    state = ModelState.load(file, model=language(runs / "text"), tokenizer=BYTES)
    assert state.position.tolist() == [3 + 7]
    rest = json.loads(
        text(capsys, runs / "text", "--prompt", " ship", "--tokens", "9", *greedy, "--from-state", file).out
    )
    tokens = [*BYTES.encode("the"), *first["tokens"], *BYTES.encode(" ship")]
    (wanted,) = generate(language(runs / "text"), [tokens], max_tokens=9, sampling=Sampling(temperature=0))
    assert rest["tokens"] == wanted.tokens


def test_states_of_several_samples_go_on_together(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    how, file = ("--prompt", "the", "--tokens", "4", "--samples", "3"), tmp_path / "tale"
    text(capsys, runs / "text", *how, "--save-state", file)
    assert ModelState.load(file, model=language(runs / "text")).position.tolist() == [7, 7, 7]
    assert len(text(capsys, runs / "text", *how, "--from-state", file, "--json").out.splitlines()) == 3


def test_a_state_of_several_samples_says_how_many(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    file, how = tmp_path / "tale", (runs / "text", "--prompt", "the")
    text(capsys, *how, "--tokens", "4", "--samples", "3", "--save-state", file)
    message = refused(capsys, "generate", "text", *how, "--from-state", file)
    assert "tale holds 3 continuations, and --samples is 1; accepted: --samples 3 without --beams" in message
    message = refused(capsys, "generate", "text", *how, "--from-state", file, "--beams", "3", "--samples", "3")
    assert "tale holds 3 continuations, and --beams is 3" in message


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_backends_say_the_same(capsys: Capsys, runs: Path, backend: str) -> None:
    how = ("--prompt", "the whale", "--tokens", "12", "--temperature", "0")
    assert (
        text(capsys, runs / "text", *how, "--backend", backend).out
        == text(capsys, runs / "text", *how, "--backend", "torch").out
    )


def test_a_checkpoint_and_a_folder_of_save_pretrained_will_do(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    how = ("--prompt", "the", "--tokens", "5")
    checkpoint = runs / "bpe" / (runs / "bpe" / "latest").read_text(encoding="utf-8").strip()
    assert text(capsys, checkpoint, *how).out == text(capsys, runs / "bpe", *how).out
    language(runs / "text").save_pretrained(tmp_path / "bytes")
    done = text(capsys, tmp_path / "bytes", *how)
    assert done.out == text(capsys, runs / "text", *how).out
    assert "has no tokenizer.json; its 256 tokens are read as bytes" in done.err
    language(runs / "bpe").save_pretrained(tmp_path / "other")
    message = refused(capsys, "generate", "text", tmp_path / "other", *how)
    assert "has no tokenizer.json, and the model has" in message


def test_an_interrupt_ends_with_what_is_there(
    capsys: Capsys, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, count = Generation.step, iter(range(1000))

    def interrupted(run: Generation) -> Any:
        if next(count) == 9:
            os.kill(os.getpid(), signal.SIGINT)
        return step(run)

    how = ("--prompt", "the", "--temperature", "0")
    whole = text(capsys, runs / "text", *how, "--tokens", "10").out
    monkeypatch.setattr(generate_text.Generation, "step", interrupted)
    done = linnet(
        capsys, "generate", "text", runs / "text", *how, "--tokens", "1000", "--save-state", tmp_path / "tale"
    )
    assert done.status == 128 + signal.SIGINT
    assert done.out == whole
    assert done.err.startswith("10 tokens in ")
    assert done.err.endswith("; ended by SIGINT\n")
    assert ModelState.load(tmp_path / "tale", model=language(runs / "text")).position.tolist() == [13]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--prompt", ""), "the prompt is ''; accepted: one token or more"),
        (("--temperature", "-1"), "--temperature is -1.0; accepted: a number 0"),
        (("--top-p", "1.5"), "--top-p is 1.5; accepted: a number above 0 and up to 1"),
        (("--top-k", "0"), "--top-k is 0"),
        (("--tokens", "0"), "--tokens is 0; accepted: a whole number, 1 or more"),
        (
            ("--tokens", "2", "--stop", "the end"),
            "--stop is 'the end'; accepted: strings of up to 2 bytes, the most that 2",
        ),
        (("--stop", ""), "--stop is ''; accepted: strings of 1 or more characters"),
        (("--samples", "0"), "--samples is 0; accepted: a whole number, 1 or more"),
        (("--beams", "-1"), "--beams is -1; accepted: a whole number, 0 or more"),
        (("--logprobs", "2"), "--logprobs is 2, but only JSON output has them; add --json"),
        (("--logprobs", "999", "--json"), "--logprobs is 999; accepted: a whole number from 0 to 256"),
        (("--beams", "2", "--top-p", "0.5"), "--top-p is for sampling, and --beams 2 searches; omit one of the two"),
        (("--beams", "2", "--stop", "x"), "--stop is for sampling"),
        (
            ("--beams", "2", "--json", "--logprobs", "3"),
            "--logprobs is 3, but --beams 2 reports only the tokens it chose",
        ),
        (("--beams", "2", "--samples", "3"), "--samples is 3; accepted with --beams 2: at most 2"),
        (("--save-state", "no/such/folder/tale"), "--save-state is no/such/folder/tale, but there is no folder"),
        (("--save-state", "."), "--save-state is ., which is a folder; accepted: a file, such as tale"),
        (("--prompt-file", "start.txt"), "--prompt and --prompt-file start.txt are both given"),
        (("--from-state", "no-such-file"), "there is no state file no-such-file"),
    ],
    ids=str,
)
def test_refused(capsys: Capsys, runs: Path, args: tuple[str, ...], sentence: str) -> None:
    message = refused(capsys, "generate", "text", runs / "text", "--prompt", "the", *args)
    assert message.startswith(f"linnet: {sentence}")


def test_other_folders_are_refused(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    message = refused(capsys, "generate", "text", runs / "image", "--prompt", "the")
    assert "holds a model for the task 'image'; accepted: a language model" in message
    assert "config.json does not exist" in refused(capsys, "generate", "text", tmp_path, "--prompt", "the")
    bad = tmp_path / "latin.txt"
    bad.write_bytes("café".encode("latin-1"))
    message = refused(capsys, "generate", "text", runs / "text", "--prompt-file", bad)
    assert "is not UTF-8 text (unexpected end of data at byte 3)" in message
    message = refused(capsys, "generate", "text", runs / "text", "--prompt-file", tmp_path / "none.txt")
    assert "none.txt, but there is no such file; accepted: a file of UTF-8 text" in message


def test_a_terminal_without_a_prompt_is_refused(capsys: Capsys, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert "there is no prompt; add --prompt TEXT" in refused(capsys, "generate", "text", runs / "text")


def test_a_state_of_another_model_is_refused(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "tale"
    text(capsys, runs / "bpe", "--prompt", "the", "--tokens", "3", "--save-state", file)
    message = refused(capsys, "generate", "text", runs / "text", "--prompt", "the", "--from-state", file)
    assert "tale: max_length is 16, but 32 in this model; use the model that produced the state" in message


def test_help_teaches(capsys: Capsys) -> None:
    out = linnet(capsys, "generate", "text", "--help").out
    assert "--repetition-penalty" in out
    assert 'linnet generate text runs/first --prompt "Call me"' in linnet(capsys, "generate", "--help").out
