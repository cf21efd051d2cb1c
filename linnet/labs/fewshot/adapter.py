"""LinnetLM: the adapter that makes a linnet language model an lm-eval model, which scores tokens after a context.

    log P(choice | context) = sum_i log P(choice_i | context, choice_1 .. choice_{i-1})

Choices after the same context share it (batches.py): its state is computed once, and each choice continues from a copy.
This is exact for every mixer, softmax included. Logits are computed only at the scored positions.
R rows, T time, E model width, N vocabulary, S positions scored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import Tensor
from torch.nn.functional import log_softmax

from ...data import Tokenizer
from ...errors import whole
from ...generate import Sampling, generate
from ...models import LanguageModel
from .batches import Group, batched, grouped

PIECE = 512  # positions per batch of logits
ROWS = 16  # prompts per batch of generation

OnProgress = Callable[[int, int], None]  # tokens read so far, total
Answer = tuple[float, bool]  # log-probability in nats; is every token the most likely one?


class LinnetLM(TemplateLM):
    """`context`: maximum number of tokens read, by default the training length; longer prompts lose their start.

    `reuse` off reads every context again, for comparison. `cut` holds the contexts that did not fit.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        *,
        context: int | None = None,
        batch_tokens: int = 4096,
        reuse: bool = True,
        on_progress: OnProgress | None = None,
    ) -> None:
        super().__init__()
        self.model, self.coder = model.eval(), tokenizer
        self.batch_tokens, self.reuse, self.on_progress = batch_tokens, reuse, on_progress
        self.max_length = _length(model, tokenizer, context)
        self.cut: set[str] = set()

    @property
    def eot_token_id(self) -> int:
        return self.coder.end

    @property
    def prefix_token_id(self) -> int:
        return self.coder.begin

    @property
    def tokenizer_name(self) -> str:
        return f"{self.coder.name}-{self.coder.fingerprint}"

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        prefix = () if add_special_tokens is False else self.coder.prefix
        return [*prefix, *self.coder.encode(string)]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-probability of whole texts, in windows of the longest context, each token scored once."""
        totals = [0.0] * len(requests)
        windows: list[tuple[Any, list[int], list[int]]] = []
        owners: list[int] = []
        for i, request in enumerate(requests):
            ids = self.coder.encode(request.args[0])
            parts = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, 1) if ids else []
            for context, scored in map(make_disjoint_window, parts):
                windows.append((request.args[:1], list(context), list(scored)))
                owners.append(i)
        for i, (nats, _) in zip(owners, self._loglikelihood_tokens(windows), strict=True):
            totals[i] += nats
        return totals

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Continue each context up to a stop string, greedily unless sampling is requested."""
        texts = [""] * len(requests)

        def key(i: int) -> str:
            return json.dumps(requests[i].args[1], sort_keys=True)

        for _, group in groupby(sorted(range(len(requests)), key=key), key=key):
            places = list(group)
            for first in range(0, len(places), ROWS):
                part = places[first : first + ROWS]
                done = self._continued([requests[i].args[0] for i in part], requests[part[0]].args[1])
                for i, text in zip(part, done, strict=True):
                    texts[i] = text
        return texts

    def _continued(self, contexts: list[str], how: dict[str, Any]) -> list[str]:
        until = how.get("until") or []
        tokens = min(int(how.get("max_gen_toks", 256)), max(1, self.max_length // 2))
        prompts = [self._fitted(c, self.tok_encode(c) or [self.prefix_token_id], tokens) for c in contexts]
        done = generate(
            self.model,
            prompts,
            tokenizer=self.coder,
            max_tokens=tokens,
            sampling=Sampling(temperature=float(how.get("temperature", 1.0)) if how.get("do_sample") else 0.0),
            stop=[until] if isinstance(until, str) else list(until),
            stop_tokens=self.coder.ends,
        )
        return [completion.text or "" for completion in done]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[Answer]:
        """Score requests (texts, tokens of the context, tokens of the choice); return answers in the same order."""
        answers: list[Answer] = [(0.0, True)] * len(requests)  # of an empty choice
        groups = grouped([(context, choice) for _, context, choice in requests], self.reuse)
        for i, group in enumerate(groups):
            text = requests[group.places[0]][0][0]
            groups[i] = group._replace(context=self._fitted(text, group.context, group.longest))
        batches = batched(groups, self.batch_tokens)
        done, total = 0, sum(group.width for batch in batches for group in batch)
        for batch in batches:
            places = [place for group in batch for place in group.places]
            for place, answer in zip(places, self._scored(batch), strict=True):
                answers[place] = answer
            done += sum(group.width for group in batch)
            if self.on_progress is not None:
                self.on_progress(done, total)
        return answers

    def _fitted(self, text: str, context: list[int], after: int) -> list[int]:
        """Drop the oldest tokens of the context so that `after` more fit; the prefix of every text is kept.

        At least one token is kept: without learned positions a choice may exceed the allowed context.
        """
        room = self.max_length - after + 1  # the last token is not read
        if room < 1 and self.model.config.positions == "learned":
            raise ValueError(
                f"a choice has {after} tokens, but this model has {self.max_length} positions; leave the set out, or "
                "use a model with more"
            )
        room = max(room, 1)
        if len(context) <= room:
            return context
        self.cut.add(text)
        begin = list(self.coder.prefix)[:room]
        return begin + context[len(context) - (room - len(begin)) :]

    @torch.inference_mode()
    def _scored(self, batch: list[Group]) -> list[Answer]:
        """Return the answers of a batch in which all groups are shared or none is, group by group."""
        state = None
        if batch[0].shared:
            tokens, mask = self._padded([group.context[:-1] for group in batch])
            _, state = self.model.backbone(self.model.embed_inputs(tokens), mask=mask)
            state = state.select([i for i, group in enumerate(batch) for _ in group.choices])
        pairs = [(group.context[-1:] if group.shared else group.context, c) for group in batch for c in group.choices]
        tokens, mask = self._padded([context + choice[:-1] for context, choice in pairs])  # [R,T]
        h, _ = self.model.backbone(self.model.embed_inputs(tokens), state, mask=mask, output_state=False)  # [R,T,E]
        rows = [r for r, (_, choice) in enumerate(pairs) for _ in choice]
        times = [len(context) - 1 + i for context, choice in pairs for i in range(len(choice))]
        wanted = torch.tensor([token for _, choice in pairs for token in choice], device=h.device)  # [S]
        nats, likely = self._log_probs(h[rows, times], tokens, wanted)
        sizes = [len(choice) for _, choice in pairs]
        return [
            (float(n.sum()), bool(hit.all())) for n, hit in zip(nats.split(sizes), likely.split(sizes), strict=True)
        ]

    def _log_probs(self, h: Tensor, tokens: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each wanted token [S] in float64 from h [S,E], and whether it is the argmax."""
        nats, likely = [], []
        for part, want in zip(h.split(PIECE), wanted.split(PIECE), strict=True):
            logits = self.model.apply_head(part, tokens)  # [PIECE,N]
            log_p = log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
            nats.append(log_p.gather(-1, want[:, None])[:, 0].double())
            likely.append(log_p.argmax(-1) == want)
        return torch.cat(nats), torch.cat(likely)

    def _padded(self, rows: list[list[int]]) -> tuple[Tensor, Tensor | None]:
        """Return padded tokens [R,T] and a mask, None if all rows have the same length."""
        longest = max(map(len, rows))
        device = self.model.out_weight.device
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        mask = torch.arange(longest, device=device) < lengths[:, None]
        return tokens, None if bool(mask.all()) else mask


def _length(model: LanguageModel, tokenizer: Tokenizer, context: int | None) -> int:
    """Return the maximum number of tokens read; refuse a tokenizer that does not match the model."""
    if tokenizer.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {model.config.vocab_size}; accepted: the "
            "tokenizer it was trained with"
        )
    trained = model.config.max_length
    if context is None:
        return trained
    most = trained if model.config.positions == "learned" else None
    return whole("context", context, 1, most)
