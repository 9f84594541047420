"""A decoder that returns the next token in place of a row of logits."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

SAMPLING_INPUTS: Final = ("temperature", "random")
_LEAST: Final = 1e-6  # Of a temperature that divides.


class SamplingDecoder(nn.Module):
    """A decoder that samples from its logits.

    An ExecuTorch program cannot draw random numbers, so the caller passes one for each call. The
    result is the token at which the sum of the probabilities, in the order of the vocabulary,
    passes it.
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        input_ids: torch.Tensor,
        cache_position: torch.Tensor,
        temperature: torch.Tensor,
        random: torch.Tensor,
    ) -> torch.Tensor:
        """Return the next token [1, 1], int64.

        Args:
            input_ids: [1, n].
            cache_position: [1].
            temperature: [1], float32. 0 or less: the token is the most likely one.
            random: [1], float32, at least 0 and less than 1.
        """
        logits = self.decoder(input_ids, cache_position)[:, -1].float()
        likeliest = logits.argmax(-1, keepdim=True)
        below = logits - logits.amax(-1, keepdim=True)
        sums = (below / temperature.clamp(min=_LEAST)).exp().cumsum(-1)
        passed = (sums <= random * sums[:, -1:]).sum(-1, keepdim=True)
        # Rounding may leave no token that passes.
        sampled = (temperature > 0) & (passed < logits.shape[-1])
        return torch.where(sampled, passed, likeliest)
