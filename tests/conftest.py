"""Tests see no engine cache but their own, whatever the machine's environment says."""

from __future__ import annotations

import gc
import os

import pytest

from tests.support.torch_speed import collect_operators_once, prepare_kernels_once

for _name in ("TRT_ET_CACHE", "TRT_ET_CACHE_SIZE"):
    os.environ.pop(_name, None)

collect_operators_once()
prepare_kernels_once()

# Exporting makes many objects and few cycles: a tenth of its time is looking for them.
gc.set_threshold(100_000, 10, 10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file first, for the other workers to have enough left beside it."""
    items.sort(key=lambda item: item.path.name != "test_random_graphs.py")
