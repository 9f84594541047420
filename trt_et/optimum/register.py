"""Adds the recipe ``tensorrt`` to ``optimum-cli``.

The build installs this file as ``optimum/commands/register/register_tensorrt.py``. ``optimum-cli``
imports every file of that folder when it starts, so nothing here imports ``trt_et`` before the
recipe runs.
"""

from __future__ import annotations

import contextlib
from typing import Any

# Without optimum-executorch, optimum-cli goes on with its other commands.
with contextlib.suppress(ModuleNotFoundError):
    from optimum.exporters.executorch.recipe_registry import register_recipe

    @register_recipe("tensorrt")  # type: ignore[untyped-decorator]
    def export_with_tensorrt(model: Any, **options: Any) -> Any:  # noqa: ANN401
        """Export one of optimum's exportable modules (``trt_et.optimum.recipe``)."""
        from trt_et.optimum.recipe import export_with_tensorrt as export

        return export(model, **options)
