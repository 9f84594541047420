from __future__ import annotations

from collections.abc import Iterator

import pytest

from trt_et.conversion import stages
from trt_et.conversion.decompose import decomposed_operators


@pytest.fixture
def registry_is_put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test leaves out of the registry is back after it."""
    monkeypatch.setattr(stages, "OPERATORS", stages.OPERATORS)
    yield
    monkeypatch.undo()
    decomposed_operators.cache_clear()
