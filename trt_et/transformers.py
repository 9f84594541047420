"""Add ``backend="tensorrt"`` to the ExecuTorch exporter of Hugging Face's ``transformers``.

::

    import trt_et.transformers
    from transformers.exporters import ExecutorchConfig, ExecutorchExporter

    trt_et.transformers.register()
    exported = ExecutorchExporter().export(
        model, inputs, config=ExecutorchConfig(backend="tensorrt")
    )
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any, Final

from trt_et.errors import OptionError
from trt_et.requirements import install_command

__all__ = ["register"]

_BACKEND: Final = "tensorrt"
_EXPORTER: Final = "transformers.exporters.exporter_executorch"

_Prepare = Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any], list[Any]]]


def register(**options: Any) -> None:  # noqa: ANN401
    """Make ``ExecutorchConfig(backend="tensorrt")`` delegate to TensorRT in this process.

    A second call replaces the options.

    Args:
        options: Options of ``trt_et.TensorRTPartitioner``, for every program that is exported.

    Raises:
        OptionError: An option is unknown, or has an impossible value; or the installed
            ``transformers`` is missing, or has no exporter to register with.
        BuilderUnavailable: The builder's packages are not installed.
    """
    from trt_et.partitioner import TensorRTPartitioner

    backends = _backends()
    TensorRTPartitioner(**options)

    def prepare(model: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any], list[Any]]:  # noqa: ANN401
        return *_on_the_cpu(model, inputs), [TensorRTPartitioner(**options)]

    backends[_BACKEND] = prepare


def _backends() -> dict[str, _Prepare]:
    """Return the exporter's table from a backend to what prepares a model for it."""
    try:
        exporter = import_module(_EXPORTER)
        backends: dict[str, _Prepare] = exporter._BACKEND_PREPARE
    except (ImportError, AttributeError) as error:
        try:
            found = f"transformers {metadata.version('transformers')} has"
        except metadata.PackageNotFoundError:
            found = "transformers is not installed; it has"
        raise OptionError(
            f"{found} no {_EXPORTER}._BACKEND_PREPARE ({error}), which backend={_BACKEND!r} is "
            f"added to: {install_command('transformers')}"
        ) from error
    return backends


def _on_the_cpu(model: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
    """Return a model and its inputs as ExecuTorch lowers them."""
    import torch
    from torch.utils import _pytree as pytree

    model = model.requires_grad_(False).to("cpu")
    # The experts' default is a grouped product, whose number of rows depends on the data.
    if getattr(model, "_can_set_experts_implementation", bool)():
        model.set_experts_implementation("batched_mm")
    # ExecuTorch refuses strides of 0. In place: the caller's inputs are also the example inputs.
    for name, value in inputs.items():
        inputs[name] = pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, value)
    return model, inputs
