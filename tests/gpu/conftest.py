"""Tests that need a GPU (docs/gpu.md). ``GPU_CHECK_SETUP`` names what ``setup.py`` describes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.gpu.setup import Setup, can_run, read_setup

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, or deselect them if nothing can run them."""
    own = [item for item in items if HERE in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.gpu)
    if not can_run():
        config.hook.pytest_deselected(items=own)
        items[:] = [item for item in items if item not in own]


@pytest.fixture(scope="session")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """The programs and tools under test."""
    return read_setup(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def record(setup: Setup, request: pytest.FixtureRequest) -> Callable[[Mapping[str, Any]], None]:
    """Add facts to the answers of the test's file, under the test's name."""

    def add(facts: Mapping[str, Any]) -> None:
        path = Path(setup.results) / f"{request.path.stem.removeprefix('test_')}.json"
        known = json.loads(path.read_text()) if path.is_file() else {}
        known[request.node.name.removeprefix("test_")] = facts
        path.write_text(json.dumps(known, indent=2) + "\n")

    return add


@pytest.fixture
def skip(record: Callable[[Mapping[str, Any]], None]) -> Callable[[str], NoReturn]:
    """Skip a test, and say in the answers why its question has none."""

    def end(reason: str) -> NoReturn:
        record({"ok": None, "why": reason})
        pytest.skip(reason)

    return end


@pytest.fixture
def probe(
    setup: Setup, record: Callable[[Mapping[str, Any]], None]
) -> Callable[..., dict[str, float]]:
    """Run gpu_probe and return its values; a failure of the probe fails the test."""

    def run(*arguments: object, **variables: str) -> dict[str, float]:
        environment = setup.environment(**variables)
        setup.link_providers()
        done = setup.run(setup.probe, *arguments, env=environment)
        if done.returncode not in (0, 2):
            record({"ok": False, "exit": done.returncode, "stderr": done.stderr[-1500:]})
        assert done.returncode in (0, 2), f"exit {done.returncode}: {done.stderr[-1500:]}"
        return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}

    return run
