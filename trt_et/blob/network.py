"""The rules of a blob's ``network`` (``docs/blob.md``, "Networks"), as the runtime has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trt_et.blob.model import MAX_ENTRIES, Binding
from trt_et.errors import BlobError

# A key may become the name of a file.
_KEY: Final = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]{0,199}")
_INT64_MAX: Final = 2**63 - 1


def check_network(network: Mapping[str, Any], bindings: Sequence[Binding]) -> None:
    """Check the members that are known.

    Raises:
        BlobError: One is impossible.
    """
    for flag in ("strongly_typed", "weight_streaming"):
        _require(type(network.get(flag, False)) is bool, f"{flag} is not a boolean")
    for number in ("workspace_size", "optimization_level"):
        _require(_is_size(network.get(number, 0)), f"{number} is no number >= 0")
    weights, profiles = network.get("weights", []), network.get("profiles", [])
    _require(isinstance(weights, list), "weights is not a list")
    for key in weights:
        _require(isinstance(key, str) and _KEY.fullmatch(key), "weights has no usable name")
    _require(sorted(set(weights)) == weights, "weights is not sorted")
    _require(isinstance(profiles, list), "profiles is not a list")
    _require(len(profiles) <= MAX_ENTRIES, f"it has {len(profiles)} profiles")
    shapes = {binding.name: binding.shape for binding in bindings if binding.is_input}
    for profile in profiles:
        _require(isinstance(profile, dict), "profiles has no objects")
        for name, sizes in profile.items():
            _require(name in shapes, f"profiles names no input: {name[:60]}")
            possible = _is_range(sizes, shapes[name])
            _require(possible, f"profiles has an impossible range of {name[:60]}")


def _is_range(sizes: object, shape: tuple[int, ...]) -> bool:
    """Return whether these are ``[min, opt, max]`` of a binding."""
    if not isinstance(sizes, list) or len(sizes) != 3:
        return False
    if not all(isinstance(each, list) and len(each) == len(shape) for each in sizes):
        return False
    return all(
        all(map(_is_size, (low, best, high)))
        and low <= best <= high
        and (size < 0 or low == high == size)
        for size, low, best, high in zip(shape, *sizes, strict=True)
    )


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _INT64_MAX


def _require(holds: object, what: str) -> None:
    if not holds:
        raise BlobError(f"network: {what}")
