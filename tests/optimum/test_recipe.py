"""The recipe for optimum-executorch; ``make optimum`` runs it with optimum itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.programs.language_models import CountingModel
from tests.support.simulated_gpus import load_method, load_program
from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.inspection import inspect_program


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


def linear() -> Exportable:
    return Exportable(torch.nn.Linear(4, 4), (torch.ones(1, 4),))


def exported(recipe: Any, model: Exportable, **options: Any) -> bytes:
    return bytes(recipe(model, **options)["model"].buffer)


def forward_of(pte: bytes) -> Any:
    return next(method for method in inspect_program(pte) if method.name == "forward")


def test_the_recipe_exports_a_model_with_its_cache_on_the_gpu(recipe):
    with torch.no_grad():
        model = Exportable(CountingModel(8), (torch.tensor([[3, 5, 3]]), torch.tensor([0])))
        pte = exported(recipe, model, builder="reference", device="cuda:1")
    method = forward_of(pte)
    assert [delegate.engine.device_id for delegate in method.delegates] == [1]
    assert {use.device: use.planned_bytes for use in method.devices}["cuda:1"] >= 4 * 8 * 128
    program = load_program(pte)
    assert program.load_method("get_max_seq_len").execute([]) == [8]
    (logits,) = program.load_method("forward").execute(
        [torch.tensor([[3, 5, 3]]), torch.tensor([0])]
    )
    assert logits[0, -1, 3] == 2


@pytest.mark.parametrize(("device", "index"), [("1", 1), ("cuda:2", 2)])
def test_the_environment_chooses_builder_device_and_precision(recipe, monkeypatch, device, index):
    monkeypatch.setenv("TRT_ET_BUILDER", "reference")
    monkeypatch.setenv("TRT_ET_DEVICE", device)
    monkeypatch.setenv("TRT_ET_PRECISION", "float16")
    (delegate,) = forward_of(exported(recipe, linear())).delegates
    assert (delegate.engine.builder, delegate.engine.device_id) == ("reference", index)
    assert delegate.engine.precision == "float16"


def test_options_override_the_environment(recipe, monkeypatch):
    monkeypatch.setenv("TRT_ET_BUILDER", "no such builder")
    monkeypatch.setenv("TRT_ET_DEVICE", "2")
    pte = exported(recipe, linear(), builder="reference", device="cuda:1")
    (delegate,) = forward_of(pte).delegates
    assert (delegate.engine.builder, delegate.engine.device_id) == ("reference", 1)


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
    for length in (1, 5, longest):
        torch.testing.assert_close(
            method.execute([tokens[:, :length]])[0], model(tokens[:, :length])
        )
    with pytest.raises(RuntimeError):
        method.execute([torch.ones(1, longest + 1, dtype=torch.int64)])


def test_a_length_with_a_bound_keeps_it(recipe):
    tokens = torch.arange(1, 8)[None]
    shapes = {"tokens": {1: torch.export.Dim("length", max=9)}}
    model = Texts(padding=None)
    method = forward_of(exported(recipe, Exportable(model, (tokens,), shapes), builder="reference"))
    assert method.values[method.input_values[0]].sizes == (1, 9)


def test_weights_on_a_gpu_are_refused_with_the_flag(recipe):
    model = Exportable(torch.nn.Linear(4, 4, device="meta"), (torch.ones(1, 4),))
    with pytest.raises(UnsupportedModelError, match=r"is on meta.*Leave out --device"):
        recipe(model, builder="reference")


class PackedLinear(torch.nn.Module):
    """What optimum makes with ``--qlinear 4w --qlinear_packing_format tile_packed_to_4d``."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("packed", torch.zeros(1, 8, 32, 4, dtype=torch.int32))
        self.register_buffer("scales", torch.zeros(32, 8, 2, dtype=torch.bfloat16))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm(values, self.packed, 32, self.scales)


def test_weights_packed_for_cuda_are_refused_with_the_flag(recipe):
    model = Exportable(PackedLinear(), (torch.zeros(3, 1024, dtype=torch.bfloat16),))
    with pytest.raises(UnsupportedModelError, match="Leave out --qlinear_packing_format"):
        recipe(model, builder="reference")
