"""The windows of a pooling to a size: from floor(i * in / out) to ceil((i + 1) * in / out)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any


def regular_windows(length: Any, number: Any) -> tuple[int, int] | None:  # noqa: ANN401
    """Return size and step of the windows along one dimension; None if they differ or are unknown.

    Args:
        length: The size of the dimension, before the pooling.
        number: The number of windows.
    """
    if not isinstance(length, int) or not isinstance(number, int) or number < 1:
        return None
    starts = [i * length // number for i in range(number)]
    sizes = {-(-(i + 1) * length // number) - start for i, start in enumerate(starts)}
    steps = {after - start for start, after in pairwise(starts)} or {length}
    is_regular = len(sizes) == len(steps) == 1 and 0 not in steps
    return (sizes.pop(), steps.pop()) if is_regular else None
