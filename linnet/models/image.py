"""ImageModel: an image as a sequence of bytes, each predicted from the earlier ones.

    params, state = model(tokens, state)       tokens [B,T]  ->  params [B,T,P] of the value after each token
    params, state = model.step(token, state)   token [B]     ->  params [B,P]

Katharopoulos et al. 2020, arXiv:2006.16236, section 4.2. The first value follows a learned start token, `model.start`.
P is the number of values (head "categorical": a softmax) or 3 K (head "mixture": K logistics, see mixture.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax

from . import mixture
from .backbone import Backbone
from .base import StreamModel
from .config import ModelConfig
from .language import check_tokens
from .state import ModelState


class ImageModel(StreamModel):
    """`config.vocab_size` is the number of values a pixel can take: 256, or 17 for the 8x8 digits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.levels = config.vocab_size
        self.start = config.vocab_size  # the last row of the embedding
        self.mixture = config.head == "mixture"
        self.embed = nn.Embedding(self.levels + 1, config.d_model)
        self.backbone = Backbone(config)
        width = 3 * config.n_mixtures if self.mixture else self.levels
        tied = config.tie_embeddings and not self.mixture
        self.head = None if tied else nn.Linear(config.d_model, width, bias=config.bias)
        self.initialize()

    def forward(
        self, tokens: Tensor, state: ModelState | None = None, *, output_state: bool = True
    ) -> tuple[Tensor, ModelState | None]:
        h, state = self.backbone(self.embed_inputs(tokens), state, output_state=output_state)
        return self.apply_head(h, tokens), state

    def embed_inputs(self, x: Tensor) -> Tensor:
        """Embed the values just seen, or `start` before the first."""
        check_tokens(x, self.levels + 1)
        return self.embed(x)

    def apply_head(self, h: Tensor, x: Tensor) -> Tensor:
        return linear(h, self.embed.weight[: self.levels]) if self.head is None else self.head(h)

    def log_prob(self, params: Tensor, values: Tensor) -> Tensor:
        """Return log P(values) in nats: params [...,P], values [...] -> [...]."""
        if self.mixture:
            return mixture.log_prob(params, values, levels=self.levels)
        check_tokens(values, self.levels)
        wide = params if params.dtype == torch.float64 else params.float()
        return log_softmax(wide, dim=-1).gather(-1, values[..., None])[..., 0]

    @torch.no_grad()
    def sample(
        self,
        params: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
        *,
        uniforms: Tensor | None = None,
    ) -> Tensor:
        """Sample from the distribution that `log_prob` scores, [...,P] -> [...].

        `temperature` divides the log-probabilities. `uniforms` [...,2] in [0,1) determine the draw; by default they
        come from `generator`.
        """
        if not temperature >= 0:
            raise ValueError(f"temperature is {temperature}; accepted: 0 (the most probable value) or more; 1 samples")
        if self.mixture and temperature == 1:
            return mixture.sample(params, generator, levels=self.levels, uniforms=uniforms)
        scores = mixture.log_probs(params, levels=self.levels) if self.mixture else params
        if temperature == 0:
            return scores.argmax(dim=-1)
        u = mixture.two_uniforms(params, generator, uniforms)[..., 0]
        return mixture.choose(scores.double() / temperature, u)

    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        tokens = batch["tokens"]  # [B,T]
        check_tokens(tokens, self.levels)
        first = tokens.new_full((tokens.shape[0], 1), self.start)
        params, _ = self(torch.cat([first, tokens[:, :-1]], dim=1), output_state=False)
        return -self.log_prob(params, tokens).sum(), torch.tensor(tokens.numel(), device=tokens.device)

    @torch.no_grad()
    def metrics(self, batch: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        total, n = self.loss(batch)
        return {"loss": (total, n), "bits_per_dim": (total / log(2), n)}
