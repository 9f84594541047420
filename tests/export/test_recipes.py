"""TensorRT through executorch.export's recipes."""

from __future__ import annotations

import pytest
import torch
from executorch.backends.xnnpack.recipes import XNNPackRecipeType
from executorch.export import ExportRecipe, export, recipe_registry

from tests.support.models import State, make
from tests.support.programs.quantized_models import Mlp
from tests.support.simulated_gpus import check
from trt_et.engine_info import parse_device_id
from trt_et.engines.reference.builder import ReferenceBuilder
from trt_et.inspection import inspect_program
from trt_et.recipes import TensorRTRecipeProvider, TensorRTRecipeType


def exported(model, inputs, recipe) -> bytes:
    with torch.no_grad():
        return bytes(export(model, [inputs], export_recipe=recipe).get_pte_buffer())


def test_a_recipe_exports_a_program_that_agrees_with_eager():
    model, inputs = make("mlp")
    recipe = ExportRecipe.get_recipe(TensorRTRecipeType.REFERENCE, device="cuda:1")
    pte = exported(model, inputs, recipe)
    (delegate,) = inspect_program(pte)[0].delegates
    assert parse_device_id(delegate.blob) == 1
    check(pte, model, inputs)


@pytest.mark.long
def test_recipes_combine_with_those_of_other_backends():
    model, inputs = make("cnn")
    ours = ExportRecipe.get_recipe(
        TensorRTRecipeType.REFERENCE, excluded_ops=["aten.convolution", "aten.conv2d"]
    )
    theirs = ExportRecipe.get_recipe(XNNPackRecipeType.FP32)
    both = ExportRecipe.combine([ours, theirs], recipe_name="both")
    pte = exported(model, inputs, both)
    backends = {delegate.backend_id for delegate in inspect_program(pte)[0].delegates}
    assert backends == {"TensorRTBackend", "XnnpackBackend"}
    check(pte, model, inputs)


def test_every_recipe_is_found_and_others_are_left_alone():
    provider = TensorRTRecipeProvider()
    assert "tensorrt" in recipe_registry.list_backends()
    assert all(provider.supports_recipe(recipe) for recipe in TensorRTRecipeType)
    assert provider.create_recipe(XNNPackRecipeType.FP32) is None


def test_state_of_a_recipes_program_stays_on_the_gpu():
    recipe = ExportRecipe.get_recipe(TensorRTRecipeType.REFERENCE, device="cuda:1")
    pte = exported(State().eval(), (torch.ones(2, 3),), recipe)
    (method,) = inspect_program(pte)
    # Of the input and the output, but not of the state.
    assert [copy.direction for copy in method.copies] == ["h2d", "d2h"]
    assert not method.operator_calls


@pytest.mark.parametrize(
    ("recipe", "builder"),
    [
        (TensorRTRecipeType.DEFAULT, "auto"),
        (TensorRTRecipeType.TENSORRT, "tensorrt"),
        (TensorRTRecipeType.TENSORRT_RTX, "tensorrt_rtx"),
        (TensorRTRecipeType.REFERENCE, "reference"),
    ],
)
def test_a_recipe_has_the_builder_that_it_is_named_after(recipe, builder, monkeypatch):
    asked = []

    def make_builder(name):
        asked.append(name)
        return ReferenceBuilder()

    monkeypatch.setattr("trt_et.partitioner.make_builder", make_builder)
    assert ExportRecipe.get_recipe(recipe).name == recipe.value
    assert asked == [builder]


@pytest.mark.parametrize(
    ("recipe", "precision"),
    [
        (TensorRTRecipeType.FP32, None),
        (TensorRTRecipeType.FP16, "float16"),
        pytest.param(TensorRTRecipeType.BF16, "bfloat16", marks=pytest.mark.long),
    ],
)
def test_a_recipe_computes_in_the_precision_that_it_is_named_after(recipe, precision):
    model, inputs = make("mlp")
    pte = exported(model, inputs, ExportRecipe.get_recipe(recipe, builder="reference"))
    (delegate,) = inspect_program(pte)[0].delegates
    assert delegate.engine.precision == (precision or "")


@pytest.mark.parametrize(
    ("recipe", "operator"),
    [
        (TensorRTRecipeType.PT2E_INT8_STATIC_PER_CHANNEL, "dequantize_per_channel"),
        pytest.param(
            *(TensorRTRecipeType.TORCHAO_INT8_WEIGHT_ONLY, "_to_dim_order_copy"),
            marks=pytest.mark.long,
        ),
        (TensorRTRecipeType.TORCHAO_INT4_WEIGHT_ONLY_GROUP_32, "mul"),
        pytest.param(
            *(TensorRTRecipeType.PT2E_INT8_STATIC_PER_TENSOR, "dequantize_per_tensor"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *(TensorRTRecipeType.TORCHAO_INT4_WEIGHT_ONLY_GROUP_64, "mul"), marks=pytest.mark.long
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_recipe_quantizes(recipe, operator):
    torch.manual_seed(0)
    model, inputs = Mlp(64).eval(), (torch.randn(4, 64),)
    made = ExportRecipe.get_recipe(recipe, builder="reference")
    pte = exported(model, inputs, made)
    (partitioner,) = made.lowering_recipe.partitioners
    (partition,) = partitioner.report.partitions
    assert not partitioner.report.not_delegated
    assert any(operator in name for name in partition.operators)
    assert len(pte) < 0.75 * 4 * sum(p.numel() for p in model.parameters())


def test_a_layer_without_whole_groups_stays_as_it_is(caplog):
    model = torch.nn.Sequential(torch.nn.Linear(128, 48), torch.nn.Linear(48, 4))
    recipe = TensorRTRecipeType.TORCHAO_INT4_WEIGHT_ONLY_GROUP_128
    made = ExportRecipe.get_recipe(recipe, builder="reference")
    exported(model.eval(), (torch.randn(2, 128),), made)
    assert "the weight of 1 stays as it is: its 48 input features" in caplog.text
    (partition,) = made.lowering_recipe.partitioners[0].report.partitions
    assert any("mul" in name for name in partition.operators)
