"""The recipe for optimum-executorch; ``make optimum`` runs it with optimum itself."""

from __future__ import annotations

import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.support.native_environment import ROOT
from tests.support.programs.language_models import CountingModel
from tests.support.simulated_gpus import load_method, load_program
from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.inspection import inspect_program

REGISTRY = "optimum.exporters.executorch.recipe_registry"
# The file that optimum-cli imports when it starts.
REGISTER = ROOT / "trt_et/optimum/register.py"
INSTALLED = "optimum/commands/register/register_trt_et.py"


@pytest.fixture
def registry(monkeypatch) -> dict[str, Any]:
    """What was registered, by name, in a registry like that of optimum, which is not here."""
    found: dict[str, Any] = {}

    def register_recipe(name: str) -> Any:
        return lambda recipe: found.setdefault(name, recipe)

    parts = REGISTRY.split(".")
    for end in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:end]))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules[REGISTRY].register_recipe = register_recipe  # type: ignore[attr-defined]
    # Another import registers in this registry.
    monkeypatch.delitem(sys.modules, "trt_et.optimum", raising=False)
    return found


@pytest.fixture
def recipe(registry) -> Any:
    """The recipe that importing ``trt_et.optimum`` registers."""
    import trt_et.optimum  # noqa: F401

    return registry["tensorrt"]


class Exportable:
    """As optimum hands models to recipes."""

    def __init__(self, model: torch.nn.Module, inputs: tuple[Any, ...], shapes: Any = None) -> None:
        self.model = model
        self.metadata = {"get_max_seq_len": 8}
        self._inputs = inputs
        self._shapes = shapes

    def export(self) -> dict[str, torch.export.ExportedProgram]:
        with torch.no_grad():
            return {
                "model": torch.export.export(
                    self.model, self._inputs, dynamic_shapes=self._shapes, strict=True
                )
            }


def linear(**options: Any) -> Exportable:
    return Exportable(torch.nn.Linear(4, 4, **options), (torch.ones(1, 4),))


def exported(recipe: Any, model: Exportable, **options: Any) -> bytes:
    return bytes(recipe(model, **options)["model"].buffer)


def forward_of(pte: bytes) -> Any:
    return next(method for method in inspect_program(pte) if method.name == "forward")


def test_the_recipe_exports_a_model_with_its_cache_on_the_gpu(recipe):
    inputs = (torch.tensor([[3, 5, 3]]), torch.tensor([0]))
    with torch.no_grad():
        model = Exportable(CountingModel(8), inputs)
        pte = exported(recipe, model, builder="reference", device="cuda:1")
    method = forward_of(pte)
    assert [delegate.engine.device_id for delegate in method.delegates] == [1]
    assert {use.device: use.planned_bytes for use in method.devices}["cuda:1"] >= 4 * 8 * 128
    program = load_program(pte)
    assert program.load_method("get_max_seq_len").execute([]) == [8]
    (logits,) = program.load_method("forward").execute(list(inputs))
    assert logits[0, -1, 3] == 2


@pytest.mark.parametrize(
    ("variables", "options", "expected"),
    [
        (("reference", "1", "float16"), {}, ("reference", 1, "float16")),
        (("reference", "cuda:2", ""), {}, ("reference", 2, "")),
        (
            ("no such builder", "2", ""),
            {"builder": "reference", "device": "cuda:1"},
            ("reference", 1, ""),
        ),
    ],
)
def test_the_environment_chooses_what_options_do_not(
    recipe, monkeypatch, variables, options, expected
):
    for name, value in zip(("BUILDER", "DEVICE", "PRECISION"), variables, strict=True):
        monkeypatch.setenv(f"TRT_ET_{name}", value)
    (delegate,) = forward_of(exported(recipe, linear(), **options)).delegates
    engine = delegate.engine
    assert (engine.builder, engine.device_id, engine.precision) == expected


def test_a_wrong_variable_is_refused_before_the_export(recipe, monkeypatch):
    monkeypatch.setenv("TRT_ET_BUILDER", "reference")
    monkeypatch.setenv("TRT_ET_DEVICE", "gpu")
    with pytest.raises(OptionError, match="device 'gpu' is not a GPU"):
        recipe(None)


class Texts(torch.nn.Module):
    """Embeds tokens and their positions, as ``fill-mask`` has them."""

    def __init__(self, *, padding: int | None) -> None:
        super().__init__()
        self.config = type("Config", (), {"max_position_embeddings": 16})()
        self.embeddings = torch.nn.Module()
        self.embeddings.position_embeddings = torch.nn.Embedding(16, 8, padding_idx=padding)
        self.start = 0 if padding is None else padding + 1

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = tokens.ne(0).long().cumsum(1) - 1 + self.start
        return self.embeddings.position_embeddings(positions).sum(-1) + tokens


@pytest.mark.parametrize(("padding", "longest"), [(None, 16), (1, 14)])
def test_a_length_without_a_bound_gets_that_of_the_positions(recipe, padding, longest):
    tokens = torch.arange(1, 1 + longest)[None]
    shapes = {"tokens": {1: torch.export.Dim.AUTO}}
    model = Texts(padding=padding)
    pte = exported(recipe, Exportable(model, (tokens,), shapes), builder="reference")
    assert len(forward_of(pte).delegates) == 1
    method = load_method(pte)
    for length in (1, longest):
        torch.testing.assert_close(
            method.execute([tokens[:, :length]])[0], model(tokens[:, :length])
        )
    with pytest.raises(RuntimeError):
        method.execute([torch.ones(1, longest + 1, dtype=torch.int64)])


def test_a_length_with_a_bound_keeps_it(recipe):
    shapes = {"tokens": {1: torch.export.Dim("length", max=9)}}
    model = Exportable(Texts(padding=None), (torch.arange(1, 8)[None],), shapes)
    method = forward_of(exported(recipe, model, builder="reference"))
    assert method.values[method.input_values[0]].sizes == (1, 9)


class PackedLinear(torch.nn.Module):
    """What optimum makes with ``--qlinear 4w --qlinear_packing_format tile_packed_to_4d``."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("packed", torch.zeros(1, 8, 32, 4, dtype=torch.int32))
        self.register_buffer("scales", torch.zeros(32, 8, 2, dtype=torch.bfloat16))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm(values, self.packed, 32, self.scales)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (linear(device="meta"), r"is on meta.*Leave out --device"),
        (
            Exportable(PackedLinear(), (torch.zeros(3, 1024, dtype=torch.bfloat16),)),
            "Leave out --qlinear_packing_format",
        ),
    ],
)
def test_weights_for_kernels_of_cuda_are_refused_with_the_flag(recipe, model, message):
    with pytest.raises(UnsupportedModelError, match=message):
        recipe(model, builder="reference")


def test_the_build_installs_the_file_for_optimum_cli():
    found = {str(file): file for file in metadata.files("trt-et") or ()}
    assert Path(found[INSTALLED].locate()).read_text() == REGISTER.read_text()


def test_the_file_for_optimum_cli_adds_the_recipe(registry):
    runpy.run_path(str(REGISTER))
    pte = exported(registry["tensorrt"], linear(), builder="reference")
    assert len(forward_of(pte).delegates) == 1


def test_the_file_for_optimum_cli_imports_nothing_before_the_recipe_runs():
    code = f"""
import runpy, sys
from types import ModuleType
parts = {REGISTRY!r}.split(".")
for end in range(1, len(parts) + 1):
    sys.modules[".".join(parts[:end])] = ModuleType(parts[end - 1])
sys.modules[{REGISTRY!r}].register_recipe = lambda name: print
runpy.run_path({str(REGISTER)!r})
print(*sorted({{"trt_et", "torch", "executorch"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("missing", ["optimum.exporters", REGISTRY])
def test_without_optimum_executorch_the_file_does_nothing(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    runpy.run_path(str(REGISTER))
