"""Tests have their own engine cache, and the longest files run first."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from tests.support.gpu.setup import can_run

for _name in ("TRT_ET_CACHE", "TRT_ET_CACHE_SIZE"):
    os.environ.pop(_name, None)

# tests/gpu exports nothing, and may run beside an older torch.
if "GPU_CHECK_SETUP" not in os.environ:
    from tests.support.quicker_export import make_exports_quicker

    make_exports_quicker()

# The longest files, the longest first.
LONG = (
    "test_random_graphs.py",
    "test_examples.py",
    "test_text_runner.py",
    "test_runs.py",
    "test_torch_operators.py",
    "test_documents.py",
)


@pytest.fixture
def no_grad() -> Iterator[None]:
    """Export without gradients: with them, to_executorch() refuses programs that write buffers."""
    with torch.no_grad():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run also the tests with the mark `long`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long tests, and run the longest files first: both workers are busy to the end."""
    if not config.getoption("--long"):
        config.hook.pytest_deselected(items=[item for item in items if is_long(item)])
        items[:] = [item for item in items if not is_long(item)]
    order = {name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONG)))
    for item in items:
        # For the report that `make reliability` reads.
        for mark in item.iter_markers("reliability"):
            item.user_properties.append(("figure", mark.args[0]))


def is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once that tests/gpu, which deselects its tests, has not run."""
    if not can_run():
        terminalreporter.line("tests/gpu is deselected: no NVIDIA GPU (docs/gpu.md)")
