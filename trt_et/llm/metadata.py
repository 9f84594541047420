"""The constant methods that ExecuTorch's language model runners read from a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trt_et.errors import OptionError


def runner_metadata(
    cache_length: int, max_prompt: int, eos_ids: Sequence[int], vocab_size: int
) -> dict[str, Any]:
    """Return the constant methods, by name.

    Args:
        cache_length: Positions that the KV cache holds.
        max_prompt: Most tokens of one call; the runners cut a longer prompt into pieces.
        eos_ids: Tokens that end a text. Empty: the runners ask the tokenizer.
        vocab_size: Width of a row of logits.
    """
    methods: dict[str, Any] = {
        "get_max_seq_len": max_prompt,
        "get_max_context_len": cache_length,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": max_prompt > 1,
        "get_vocab_size": vocab_size,
    }
    if eos_ids:
        methods["get_eos_ids"] = list(eos_ids)
    return methods


def eos_ids_of(model: Any, given: int | Sequence[int] | None) -> list[int]:  # noqa: ANN401
    """Return the tokens that end a text: ``given``, or else the model's configuration's.

    Raises:
        OptionError: ``given`` is neither a token nor a sequence of tokens.
    """
    ends: Any = given
    for name in ("generation_config", "config"):
        if ends is None:
            ends = getattr(getattr(model, name, None), "eos_token_id", None)
    ids = [] if ends is None else [ends] if isinstance(ends, int) else ends
    if isinstance(ids, str) or not isinstance(ids, Sequence):
        raise OptionError(f"eos_ids is {ids!r}; expected a token id or a sequence of them")
    for token in ids:
        if type(token) is not int or token < 0:
            raise OptionError(f"eos_ids holds {token!r}; expected token ids, integers >= 0")
    return list(ids)
