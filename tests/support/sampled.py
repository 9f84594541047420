"""Lists of cases of which CI takes some: `make networks` takes all (TRT_ET_OPERATORS=all)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")
ALL = os.environ.get("TRT_ET_OPERATORS") == "all"


def sampled(cases: Iterable[Item], every: int = 4) -> list[Item]:
    """Return each n-th case, the first one included; all of them for the long command."""
    return list(cases)[:: 1 if ALL else every]
