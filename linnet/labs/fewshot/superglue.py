"""SuperGLUE's sets (Wang et al. 2019, arXiv:1905.00537) as questions with choices: one row reader for each.

    READERS["BoolQ"](row) -> [{"text", "choices", "label"}, ...]

Each row is one item, except in MultiRC, where a passage has questions with several answers, each right or wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Item = dict[str, Any]
NO_YES = ["no", "yes"]
CB = ["entailment", "contradiction", "neutral"]


def _boolq(row: Any) -> list[Item]:
    return [_asked(f"{row['passage']}\nQuestion: {row['question']}?", NO_YES, int(row["label"]))]


def _rte(row: Any) -> list[Item]:
    text = f"{row['premise']}\nQuestion: {row['hypothesis']} True or False?"
    return [_asked(text, ["True", "False"], ["entailment", "not_entailment"].index(row["label"]))]


def _cb(row: Any) -> list[Item]:
    text = f"{row['premise']}\nQuestion: {row['hypothesis']}. True, False, or Neither?"
    return [_asked(text, ["True", "False", "Neither"], CB.index(row["label"]))]


def _copa(row: Any) -> list[Item]:
    """Join the premise, `because` or `therefore`, and one of two endings in lower case."""
    joint = {"cause": "because", "effect": "therefore"}[row["question"]]
    ends = [end[:1].lower() + end[1:] for end in (row["choice1"], row["choice2"])]
    return [{"text": f"{row['premise'].rstrip().removesuffix('.')} {joint}", "choices": ends, "label": row["label"]}]


def _wic(row: Any) -> list[Item]:
    word = row["sentence1"][row["start1"] : row["end1"]]
    text = f"Sentence 1: {row['sentence1']}\nSentence 2: {row['sentence2']}\n"
    text += f"Question: Is the word '{word}' used in the same way in the two sentences above?"
    return [_asked(text, NO_YES, int(row["label"]))]


def _wsc(row: Any) -> list[Item]:
    """Mark the pronoun with stars: the matching word nearest to the given place, which is off by one in one row."""
    target, words = row["target"], row["text"].split()
    pronoun = target["span2_text"]
    places = [i for i, word in enumerate(words) if word.startswith(pronoun)]
    place = min(places, key=lambda i: abs(i - target["span2_index"]))
    words[place] = f"*{pronoun}*{words[place].removeprefix(pronoun)}"
    text = f"Passage: {' '.join(words)}\n"
    text += f'Question: In the passage above, does the pronoun "*{pronoun}*" refer to "{target["span1_text"]}"?'
    return [_asked(text, NO_YES, int(row["label"]))]


def _multirc(row: Any) -> list[Item]:
    passage = row["passage"]["text"].strip()
    return [
        {
            "text": f"{passage}\nQuestion: {question['question']}\nAnswer: {answer['text']}\nIs the answer correct?",
            "choices": NO_YES,
            "label": answer["label"],
        }
        for question in row["passage"]["questions"]
        for answer in question["answers"]
    ]


def _asked(text: str, choices: list[str], label: int) -> Item:
    return {"text": f"{text}\nAnswer:", "choices": choices, "label": label}


READERS: dict[str, Callable[[Any], list[Item]]] = {
    "BoolQ": _boolq,
    "RTE": _rte,
    "CB": _cb,
    "COPA": _copa,
    "WiC": _wic,
    "WSC": _wsc,
    "MultiRC": _multirc,
}
