"""A recipe for ``optimum-executorch``; importing this module registers it.

::

    import trt_et.optimum
    import trt_et.runtime
    from optimum.executorch import ExecuTorchModelForCausalLM

    trt_et.runtime.load()
    model = ExecuTorchModelForCausalLM.from_pretrained("folder", recipe="tensorrt")

``python -m trt_et.optimum`` is the command ``optimum-cli`` with this recipe::

    python -m trt_et.optimum export executorch -m folder --recipe tensorrt -o out
"""

from __future__ import annotations

from typing import Any

from executorch.exir import (
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from optimum.exporters.executorch.recipe_registry import register_recipe

from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner

__all__ = ["export_with_tensorrt"]


@register_recipe("tensorrt")  # type: ignore[untyped-decorator]
def export_with_tensorrt(
    model: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> dict[str, ExecutorchProgramManager]:
    """Export one of optimum's exportable modules, with its cache on the GPU.

    Args:
        model: A module whose ``export()`` returns exported programs by method, and whose
            ``metadata`` are the constant methods.
        options: Options of ``trt_et.TensorRTPartitioner``, which ``from_pretrained`` takes as
            ``recipe_kwargs``.
    """
    programs = model.export()
    if len(programs) == 1:
        programs = {"forward": next(iter(programs.values()))}
    manager = to_edge_transform_and_lower(
        programs,
        partitioner=[TensorRTPartitioner(**options)],
        constant_methods=model.metadata,
    )
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    return {"model": manager.to_executorch(config)}


if __name__ == "__main__":
    from optimum.commands.optimum_cli import main

    main()
