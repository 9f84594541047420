"""A registry like that of optimum, which is not installed here."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest

REGISTRY = "optimum.exporters.executorch.recipe_registry"


@pytest.fixture
def registry(monkeypatch) -> dict[str, Any]:
    """What was registered, by name."""
    found: dict[str, Any] = {}

    def register_recipe(name: str) -> Any:
        return lambda recipe: found.setdefault(name, recipe)

    parts = REGISTRY.split(".")
    for end in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:end]))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules[REGISTRY].register_recipe = register_recipe  # type: ignore[attr-defined]
    return found


@pytest.fixture
def recipe(monkeypatch, registry) -> Any:
    """The recipe that importing ``trt_et.optimum`` registers."""
    monkeypatch.delitem(sys.modules, "trt_et.optimum", raising=False)
    importlib.import_module("trt_et.optimum")
    monkeypatch.delitem(sys.modules, "trt_et.optimum")
    return registry["tensorrt"]
