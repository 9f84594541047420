"""Tables of cases of which CI takes some: the others have the mark ``long`` (``pytest --long``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

Item = TypeVar("Item")


def sampled(cases: Iterable[Item], every: int = 4) -> list[Any]:
    """Let CI take each n-th case, the first one included."""
    return [_marked(case, index % every == 0) for index, case in enumerate(cases)]


def chosen(cases: Iterable[Item], *in_ci: Item) -> list[Any]:
    """Let CI take these cases."""
    return [_marked(case, case in in_ci) for case in cases]


def _marked(case: Item, is_in_ci: bool) -> Any:
    return case if is_in_ci else pytest.param(case, marks=pytest.mark.long)
