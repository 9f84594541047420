"""Lists of cases of which CI takes some.

`make networks` takes all operators (TRT_ET_OPERATORS=all), `make zoo` all models (TRT_ET_ZOO=all).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")
ALL = os.environ.get("TRT_ET_OPERATORS") == "all"
ALL_MODELS = os.environ.get("TRT_ET_ZOO") == "all"


def sampled(cases: Iterable[Item], every: int = 4) -> list[Item]:
    """Return each n-th case, the first one included; all of them for the long command."""
    return list(cases)[:: 1 if ALL else every]


def models(names: Iterable[str], *in_ci: str) -> tuple[str, ...]:
    """Return the names of the models that CI takes; all of them for the long command."""
    return tuple(names) if ALL_MODELS else in_ci
