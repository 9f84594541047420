"""The recipe for optimum-executorch; ``make optimum`` runs it with optimum itself."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.support.programs.language_models import CountingModel
from tests.support.simulated_gpus import load_runtime
from trt_et.inspection import inspect_program

REGISTRY = "optimum.exporters.executorch.recipe_registry"


@pytest.fixture
def recipes(monkeypatch) -> dict[str, Any]:
    """What importing the recipe registers, in a registry like that of optimum."""
    found: dict[str, Any] = {}

    def register_recipe(name: str) -> Any:
        return lambda recipe: found.setdefault(name, recipe)

    parts = REGISTRY.split(".")
    for end in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:end]))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules[REGISTRY].register_recipe = register_recipe  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "trt_et.optimum", raising=False)
    importlib.import_module("trt_et.optimum")
    monkeypatch.delitem(sys.modules, "trt_et.optimum")
    return found


class Exportable:
    """As optimum hands models to recipes."""

    def __init__(self) -> None:
        self.metadata = {"get_max_seq_len": 8}

    def export(self) -> dict[str, torch.export.ExportedProgram]:
        with torch.no_grad():
            inputs = (torch.tensor([[3, 5, 3]]), torch.tensor([0]))
            return {"model": torch.export.export(CountingModel(8), inputs)}


def test_the_recipe_exports_a_model_with_its_cache_on_the_gpu(recipes):
    from executorch.runtime import Runtime

    load_runtime()
    with torch.no_grad():
        found = recipes["tensorrt"](Exportable(), builder="reference", device="cuda:1")
    pte = bytes(found["model"].buffer)
    method = next(method for method in inspect_program(pte) if method.name == "forward")
    assert [delegate.engine.device_id for delegate in method.delegates] == [1]
    assert {use.device: use.planned_bytes for use in method.devices}["cuda:1"] >= 4 * 8 * 128
    program = Runtime.get().load_program(pte)
    assert program.load_method("get_max_seq_len").execute([]) == [8]
    (logits,) = program.load_method("forward").execute(
        [torch.tensor([[3, 5, 3]]), torch.tensor([0])]
    )
    assert logits[0, -1, 3] == 2
