"""The recall studies in plain words: the question, what the papers say, and what each outcome means for a choice.

Recall here is multi-query associative recall: a sequence lists pairs of a key and a value, then asks for the values
of keys; recall is the share of questions answered right (Arora et al. 2023, arXiv:2312.04927).
"""

from __future__ import annotations

from typing import NamedTuple

from ..claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED


class Words(NamedTuple):
    """The last three say what it means if the rule confirms, refutes, or cannot decide."""

    question: str
    statement: str
    confirmed: str
    refuted: str
    unclear: str

    def meaning(self, outcome: str) -> str:
        if outcome == UNTESTED:
            return "Nothing can be read from this run; a larger budget has the rows that the rule wants."
        return {CONFIRMED: self.confirmed, REFUTED: self.refuted, UNCLEAR: self.unclear}[outcome]


# What was tried before the sizes of the small budgets were settled: a verdict there is to be read with it.
TRIED = {
    "ranking": "the size was picked after smaller ones, of 2 or 3 seeds: with 4 pairs elu + 1 came close to Based "
    "and ReBased, with 6 pairs softmax had not always learned",
    "length": "the size is the third that was tried: at width 16 the models had hardly learned and the rule was "
    "undecided; with keys of one width, 10 features for Based and 6 for ReBased, it said refuted",
    "ablation": "with one rate for every kernel the rule said refuted; ReBased, x^2 and Based then got three rates",
    "floor": "they are those of the question about length, the third that was tried: at the first it was not testable",
    "rates": "keys are of width 4, with which Based and ReBased do not reach .95 in the mean at any rate, so their "
    "windows say little",
    "iou": "6 seeds; with the first 3 of them the rule was undecided",
    "forgetting": "the size is the third that was tried: with 4 pairs, 2 of them rewritten, the rule was undecided "
    "after 300 steps and after 600, where additive states had learned to tell many old values",
    "extrapolation": "the size is the third that was tried: with pairs asked in the usual order no model with learned "
    "positions learned enough to count",
}

WORDS: dict[str, Words] = {
    "ranking": Words(
        "With the same memory, do Based and ReBased look up more pairs than simpler linear attention?",
        "Based's paper draws its map as the best for its bytes, and ReBased's draws Based and ReBased level up to 512 "
        "tokens; softmax solves the task. The papers give no number at this size.",
        "For looking things up with a small fixed memory take a second-order kernel before elu + 1, and softmax where "
        "its growing memory can be paid for. A convolution alone looks nothing up.",
        "At this size a second-order kernel buys nothing over a simpler one of the same bytes, or softmax itself did "
        "not learn the task: choose by speed.",
        "The order is not settled by these seeds: intervals overlap, or a run learned late. Do not choose by it.",
    ),
    "length": Words(
        "Does ReBased lose less than Based when the same pairs stand in a longer sequence?",
        "The headline of ReBased: the paper prints a drop of .16 for Based (.82 to .66) and .03 for ReBased (.86 to "
        ".83) from 256 to 2,048 tokens with 32 pairs at width 32.",
        "For long sequences with much between the pairs ReBased is the safer of the two kernels.",
        "Longer sequences do not separate the two kernels at this size: choose by other things than length.",
        "The difference between the kernels is as large as that between seeds: at this size length is no reason to "
        "choose one of them.",
    ),
    "ablation": Words(
        "Which part of ReBased helps: the norm, the scale, the shift, or a weight that can reach zero?",
        "The paper prints mean recalls at 2,048 tokens of .44 for x^2, .58 with the norm, .60 with scale and shift, "
        ".61 with all of it, and .51 for Based.",
        "Keep the whole of ReBased's map: the plain square is clearly worse also with a learning rate that suits it.",
        "The plain square does as well when its learning rate suits it: what the published table shows is how easily "
        "a kernel trains, not what it can hold.",
        "The parts are not told apart by these seeds. Kernels without a norm have the widest spread to look out for.",
    ),
    "floor": Words(
        "Does the smallest weight that Based can give, one half, cost it anything?",
        "ReBased's paper argues that every further token costs Based a weight of one half or more. It gives no number.",
        "The floor is at work: more tokens take more weight away from the answer, and a trained model notices when it "
        "is taken off. Expect it to matter more the longer a sequence is.",
        "Trained models live with the floor: it takes no more weight at more tokens, or taking it off changes nothing. "
        "The floor alone is no reason against Based.",
        "With some fillers the floor shows and with others it does not: a model can learn to point fillers away.",
    ),
    "drift": Words(
        "Is the small scale that trained ReBased models show learned, or left over by weight decay?",
        "The paper's figure has the scale gamma go to about 0.13 at every length and beta to 0. Its schedule would "
        "leave 0.15 of a scale that nothing holds.",
        "Left over. Do not read a meaning into a small gamma, and do not spend time on tuning its decay: recall is "
        "the same with and without.",
        "The scale is not what decay leaves, or decay changes recall: it is worth a setting of its own.",
        "Partly left over: at some settings gamma or the recall differs from what decay alone explains.",
    ),
    "rates": Words(
        "Is ReBased less picky about the learning rate than Based, and Based less than a plain square?",
        "The paper's figure draws ReBased higher and flatter over learning rates at every width. It prints no number.",
        "If there is no time to tune, ReBased is the kernel most likely to train.",
        "ReBased is no less picky than the next one: tune the learning rate for every kernel before comparing.",
        "The window of good rates is not clearly wider for one of them: tune the learning rate for every kernel.",
    ),
    "state_law": Words(
        "Does recall grow with the bytes of memory whatever the model, and does the delta rule make most of them?",
        "Based's figure and later points of its bench, read off by eye, have Based at .67 and DeltaNet at .79 with 9 k "
        "bytes, Based at .91 with 41 k and DeltaNet at .96 with 34 k.",
        "Count bytes of state first: more of them recall more in every model here. At the same bytes take the delta "
        "rule, if its slower training can be paid for.",
        "Bytes alone do not say how much a model recalls here: a larger state did worse, or the delta rule was "
        "behind. At a short training, a state that is harder to train can lose.",
        "Recall grows with bytes for some models and not clearly for others at this length of training.",
    ),
    "shift": Words(
        "Does looking things up need a layer that looks one token back first?",
        "Zoology, Based and ReBased always put a short convolution before the layer under test; they give no number "
        "without it. A value must know its key before one layer can match the two.",
        "Put a short convolution, or a shift by one token, before attention: one layer alone can only guess among the "
        "values of the context.",
        "One layer does without a look back here, or fails with it: the convolution is not what decides.",
        "The convolution helps, but not as cleanly as the argument says at this size.",
    ),
    "iou": Words(
        "When models answer equally well, how much of their attention is on the right place?",
        "The paper prints an overlap (IoU) of .999 for softmax, .173 for ReBased and .157 for Based at recalls of 1, "
        ".957 and .956, without error bars.",
        "Linear attention is right without looking only at the answer: its maps are blurred, so do not read them as "
        "an explanation. Between the two kernels there is little to choose by.",
        "The order of the paper is not found: softmax is less ahead than it says, or ReBased looks less at the answer "
        "than Based. A sharper map is not what recall comes from.",
        "Softmax looks sharpest, and the order of the two kernels is within the spread of the seeds.",
    ),
    "forgetting": Words(
        "When a key is given a new value, which models answer with the new one?",
        "Nobody published this at these sizes. A sum keeps old and new value alike and is right half of the time; the "
        "delta rule takes the old one off first.",
        "If what is remembered changes, as in dialogue or with sensors, take a delta rule: additive states, and "
        "softmax without positions, cannot tell old from new.",
        "A delta rule is no better at replacing a value here than an additive state: look at how well it trained.",
        "The delta rules are ahead on rewritten keys, but not everywhere by as much as the argument says.",
    ),
    "extrapolation": Words(
        "Does a model trained on short sequences look things up in sequences eight times as long?",
        "An argument that the papers do not test: without positions nothing in the model knows a length, while a table "
        "of learned positions has rows that training never reached. No number is printed.",
        "Leave learned positions out where sequences may grow: the short convolution is enough for order.",
        "Positions are not what decides at this size: models without them lose recall too, or learned ones keep it.",
        "Without positions recall is kept better, but not for every model by the margin that the rule asks for.",
    ),
}
