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

import logging
from collections.abc import Sequence
from typing import Any, Final

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.export import (
    AOQuantizationConfig,
    BackendRecipeProvider,
    ExportRecipe,
    LoweringRecipe,
    QuantizationRecipe,
    RecipeType,
    recipe_registry,
)
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig
from torchao.quantization.granularity import PerGroup

from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner
from trt_et.quantizer import TensorRTQuantizer, int8

_log = logging.getLogger(__name__)


class TensorRTRecipeType(RecipeType):
    """The recipes: by precision, by builder, and by quantization (builder ``"auto"``)."""

    DEFAULT = "tensorrt_default"
    FP32 = "tensorrt_fp32"
    FP16 = "tensorrt_fp16"
    BF16 = "tensorrt_bf16"
    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt_rtx"
    REFERENCE = "tensorrt_reference"
    PT2E_INT8_STATIC_PER_CHANNEL = "tensorrt_pt2e_int8_static_per_channel"
    PT2E_INT8_STATIC_PER_TENSOR = "tensorrt_pt2e_int8_static_per_tensor"
    TORCHAO_INT8_WEIGHT_ONLY = "tensorrt_torchao_int8_weight_only"
    TORCHAO_INT4_WEIGHT_ONLY_GROUP_32 = "tensorrt_torchao_int4_weight_only_group_32"
    TORCHAO_INT4_WEIGHT_ONLY_GROUP_64 = "tensorrt_torchao_int4_weight_only_group_64"
    TORCHAO_INT4_WEIGHT_ONLY_GROUP_128 = "tensorrt_torchao_int4_weight_only_group_128"

    @classmethod
    def get_backend_name(cls) -> str:
        """Return the name of the provider."""
        return "tensorrt"


_DEFAULTS: Final[dict[Any, dict[str, Any]]] = {
    TensorRTRecipeType.FP16: {"precision": "float16"},
    TensorRTRecipeType.BF16: {"precision": "bfloat16"},
    TensorRTRecipeType.TENSORRT: {"builder": "tensorrt"},
    TensorRTRecipeType.TENSORRT_RTX: {"builder": "tensorrt_rtx"},
    TensorRTRecipeType.REFERENCE: {"builder": "reference"},
}
_PER_CHANNEL: Final = {
    TensorRTRecipeType.PT2E_INT8_STATIC_PER_CHANNEL: True,
    TensorRTRecipeType.PT2E_INT8_STATIC_PER_TENSOR: False,
}
_GROUPS: Final = {
    TensorRTRecipeType.TORCHAO_INT4_WEIGHT_ONLY_GROUP_32: 32,
    TensorRTRecipeType.TORCHAO_INT4_WEIGHT_ONLY_GROUP_64: 64,
    TensorRTRecipeType.TORCHAO_INT4_WEIGHT_ONLY_GROUP_128: 128,
}


class TensorRTRecipeProvider(BackendRecipeProvider):
    """Makes recipes of the partitioner and of memory planning that keeps state on the GPU."""

    @property
    def backend_name(self) -> str:
        """Return ``"tensorrt"``."""
        return TensorRTRecipeType.get_backend_name()

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """Return all of ``TensorRTRecipeType``."""
        return list(TensorRTRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:  # noqa: ANN401
        """Make the recipe; return None for a type of another backend.

        Args:
            recipe_type: One of ``TensorRTRecipeType``.
            kwargs: Options of ``trt_et.TensorRTPartitioner``; they replace the recipe's own.

        Raises:
            OptionError: An option is unknown, or has an impossible value.
            BuilderUnavailable: The builder's packages are not installed.
        """
        if not isinstance(recipe_type, TensorRTRecipeType):
            return None
        partitioner = TensorRTPartitioner(**{**_DEFAULTS.get(recipe_type, {}), **kwargs})
        return ExportRecipe(
            name=recipe_type.value,
            quantization_recipe=_quantization(recipe_type),
            lowering_recipe=LoweringRecipe(partitioners=[partitioner]),
            executorch_backend_config=ExecutorchBackendConfig(
                memory_planning_pass=TensorRTMemoryPlanningPass()
            ),
        )


def _quantization(recipe_type: TensorRTRecipeType) -> QuantizationRecipe | None:
    """Return how a recipe quantizes; calibration inputs are the example inputs."""
    if recipe_type in _PER_CHANNEL:
        config = int8(per_channel=_PER_CHANNEL[recipe_type])
        return QuantizationRecipe(quantizers=[TensorRTQuantizer().set_global(config)])
    if recipe_type is TensorRTRecipeType.TORCHAO_INT8_WEIGHT_ONLY:
        weights = AOQuantizationConfig(Int8WeightOnlyConfig())
        return QuantizationRecipe(ao_quantization_configs=[weights])
    if recipe_type in _GROUPS:
        return _int4_weights(_GROUPS[recipe_type])
    return None


def _int4_weights(group: int) -> QuantizationRecipe:
    def has_groups(module: torch.nn.Module, name: str) -> bool:
        if not isinstance(module, torch.nn.Linear):
            return False
        if module.in_features % group:
            _log.warning(
                "the weight of %s stays as it is: its %d input features are no multiple of the "
                "group, %d",
                name,
                module.in_features,
                group,
            )
        return module.in_features % group == 0

    config = IntxWeightOnlyConfig(torch.int4, PerGroup(group))  # type: ignore[attr-defined]
    return QuantizationRecipe(ao_quantization_configs=[AOQuantizationConfig(config, has_groups)])


recipe_registry.register_backend_recipe_provider(TensorRTRecipeProvider())
