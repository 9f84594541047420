"""The recipe ``tensorrt`` for ``optimum-executorch``; importing this package registers it.

::

    import trt_et.optimum
    import trt_et.runtime
    from optimum.executorch import ExecuTorchModelForCausalLM

    trt_et.runtime.load()
    model = ExecuTorchModelForCausalLM.from_pretrained("folder", recipe="tensorrt")

``optimum-cli`` finds the recipe without an import, by ``register.py``::

    optimum-cli export executorch -m folder --recipe tensorrt -o out

``python -m trt_et.optimum`` is the same command.
"""

from __future__ import annotations

from optimum.exporters.executorch.recipe_registry import register_recipe

from trt_et.optimum.recipe import export_with_tensorrt

__all__ = ["export_with_tensorrt"]

register_recipe("tensorrt")(export_with_tensorrt)
