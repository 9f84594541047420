"""Tests see no engine cache but their own, whatever the machine's environment says."""

from __future__ import annotations

import gc
import os

import pytest

for _name in ("TRT_ET_CACHE", "TRT_ET_CACHE_SIZE"):
    os.environ.pop(_name, None)

# Exporting makes many objects and few cycles: a tenth of its time is looking for them.
gc.set_threshold(100_000, 10, 10)


# The longest files, the longest first.
LONG = (
    "test_random_graphs.py",
    "test_examples.py",
    "test_text_runner.py",
    "test_runs.py",
    "test_torch_operators.py",
    "test_documents.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, for the other workers to have enough left beside the last ones."""
    order = {name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONG)))
    for item in items:
        # For the report that `make reliability` reads.
        for mark in item.iter_markers("reliability"):
            item.user_properties.append(("figure", mark.args[0]))
