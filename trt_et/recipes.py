"""Recipes for ``executorch.export``; importing this module registers them.

::

    from executorch.export import ExportRecipe, export
    from trt_et.recipes import TensorRTRecipeType

    recipe = ExportRecipe.get_recipe(TensorRTRecipeType.DEFAULT, device="cuda:1")
    session = export(model, [inputs], export_recipe=recipe)
    session.save_to_pte("model.pte")

``FP16`` and ``BF16`` compute in that precision; the program's inputs, outputs and state keep their
dtypes. The other recipes compute in the model's dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from executorch.exir import ExecutorchBackendConfig
from executorch.export import (
    BackendRecipeProvider,
    ExportRecipe,
    LoweringRecipe,
    RecipeType,
    recipe_registry,
)

from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner

__all__ = ["TensorRTRecipeProvider", "TensorRTRecipeType"]


class TensorRTRecipeType(RecipeType):
    """The recipes, by precision or by builder."""

    DEFAULT = "tensorrt_default"
    FP32 = "tensorrt_fp32"
    FP16 = "tensorrt_fp16"
    BF16 = "tensorrt_bf16"
    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt_rtx"
    REFERENCE = "tensorrt_reference"

    @classmethod
    def get_backend_name(cls) -> str:
        """Return the name of the provider."""
        return "tensorrt"


_DEFAULTS: Final[dict[Any, dict[str, Any]]] = {
    TensorRTRecipeType.DEFAULT: {},
    TensorRTRecipeType.FP32: {},
    TensorRTRecipeType.FP16: {"precision": "float16"},
    TensorRTRecipeType.BF16: {"precision": "bfloat16"},
    TensorRTRecipeType.TENSORRT: {"builder": "tensorrt"},
    TensorRTRecipeType.TENSORRT_RTX: {"builder": "tensorrt_rtx"},
    TensorRTRecipeType.REFERENCE: {"builder": "reference"},
}


class TensorRTRecipeProvider(BackendRecipeProvider):
    """Makes recipes of the partitioner and of memory planning that keeps state on the GPU."""

    @property
    def backend_name(self) -> str:
        """Return ``"tensorrt"``."""
        return TensorRTRecipeType.get_backend_name()

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """Return all of :class:`TensorRTRecipeType`."""
        return list(TensorRTRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:  # noqa: ANN401
        """Make the recipe; return None for a type of another backend.

        Args:
            recipe_type: One of :class:`TensorRTRecipeType`.
            kwargs: Options of :class:`trt_et.TensorRTPartitioner`; they replace the recipe's own.

        Raises:
            OptionError: An option is unknown, or has an impossible value.
            BuilderUnavailable: The builder's packages are not installed.
        """
        if not isinstance(recipe_type, TensorRTRecipeType):
            return None
        partitioner = TensorRTPartitioner(**{**_DEFAULTS[recipe_type], **kwargs})
        return ExportRecipe(
            name=recipe_type.value,
            lowering_recipe=LoweringRecipe(partitioners=[partitioner]),
            executorch_backend_config=ExecutorchBackendConfig(
                memory_planning_pass=TensorRTMemoryPlanningPass()
            ),
        )


recipe_registry.register_backend_recipe_provider(TensorRTRecipeProvider())
