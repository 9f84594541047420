"""TensorRT through executorch.export's recipes."""

from __future__ import annotations

import pytest
import torch
from executorch.backends.xnnpack.recipes import XNNPackRecipeType
from executorch.export import ExportRecipe, export, recipe_registry

from tests.models import make
from tests.test_composition import check
from trt_et import OptionError
from trt_et.engine_info import parse_device_id
from trt_et.inspection import inspect_program
from trt_et.recipes import TensorRTRecipeProvider, TensorRTRecipeType


def exported(model, inputs, recipe) -> bytes:
    with torch.no_grad():
        return bytes(export(model, [inputs], export_recipe=recipe).get_pte_buffer())


def test_a_recipe_exports_a_program_that_agrees_with_eager(tmp_path):
    model, inputs = make("mlp")
    recipe = ExportRecipe.get_recipe(TensorRTRecipeType.REFERENCE, device="cuda:1")
    pte = exported(model, inputs, recipe)
    (delegate,) = inspect_program(pte)[0].delegates
    assert parse_device_id(delegate.blob) == 1
    check(tmp_path, pte, model, inputs)


def test_recipes_combine_with_those_of_other_backends(tmp_path):
    model, inputs = make("cnn")
    ours = ExportRecipe.get_recipe(
        TensorRTRecipeType.REFERENCE, excluded_ops=["aten.convolution", "aten.conv2d"]
    )
    theirs = ExportRecipe.get_recipe(XNNPackRecipeType.FP32)
    both = ExportRecipe.combine([ours, theirs], recipe_name="both")
    pte = exported(model, inputs, both)
    backends = {delegate.backend_id for delegate in inspect_program(pte)[0].delegates}
    assert backends == {"TensorRTBackend", "XnnpackBackend"}
    check(tmp_path, pte, model, inputs)


def test_every_recipe_is_found_and_others_are_left_alone():
    provider = TensorRTRecipeProvider()
    assert "tensorrt" in recipe_registry.list_backends()
    assert all(provider.supports_recipe(recipe) for recipe in TensorRTRecipeType)
    assert provider.create_recipe(XNNPackRecipeType.FP32) is None


def test_an_unknown_option_is_refused():
    with pytest.raises(OptionError, match="no option 'devise'"):
        ExportRecipe.get_recipe(TensorRTRecipeType.REFERENCE, devise="cuda:1")
