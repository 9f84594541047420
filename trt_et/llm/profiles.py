"""The optimization profiles of a language model's engine."""

from __future__ import annotations

from typing import Final

from trt_et.lowering.optimization_profiles import ProfileOption

__all__ = ["default_profiles"]

# TensorRT tunes kernels when it builds, for one size a profile, so prompts and steps get one each.
# TensorRT-RTX compiles kernels at run time for the actual sizes, and stores weights once per
# profile if their layouts differ (1.58 times the weights with two), so it gets one.
_SEPARATE_STEPS: Final = frozenset({"tensorrt"})


def default_profiles(builder: str, tokens: str, max_prompt: int) -> tuple[ProfileOption, ...]:
    """Return the profiles for prompts of 1 to ``max_prompt`` tokens and for steps of one token.

    Args:
        builder: The builder's name.
        tokens: Name of the input whose dimension 1 is the number of tokens.
        max_prompt: Most tokens of one call.
    """
    if max_prompt == 1:
        return ()
    if builder in _SEPARATE_STEPS:
        best = min(max_prompt, max(2, max_prompt // 2))
        return ({tokens: {1: 1}}, {tokens: {1: (2, best, max_prompt)}})
    return ({tokens: {1: (1, 1, max_prompt)}},)
