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
from typing import TYPE_CHECKING, Any, Final

from trt_et.errors import OptionError
from trt_et.requirements import install_command

if TYPE_CHECKING:
    import torch

__all__ = ["register"]

_BACKEND: Final = "tensorrt"
_EXPORTERS: Final = "transformers.exporters"
_EXPORTER: Final = f"{_EXPORTERS}.exporter_executorch"
_READ_UPPER_BOUNDS: Final = (
    "executorch.exir.sym_util",
    "executorch.exir.passes.sym_shape_eval_pass",
)

_Prepare = Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any], list[Any]]]
_UpperBound = Callable[["int | torch.SymInt"], int]


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

    backends, patches = _tables()
    TensorRTPartitioner(**options)

    def prepare(model: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any], list[Any]]:  # noqa: ANN401
        return *_on_the_cpu(model, inputs), [TensorRTPartitioner(**options)]

    backends[_BACKEND] = prepare
    patches[f"executorch.{_BACKEND}"] = [
        (module, "eval_upper_bound", _exact_unless_a_ratio) for module in _READ_UPPER_BOUNDS
    ]


def _tables() -> tuple[dict[str, _Prepare], dict[str, list[Any]]]:
    """Return two tables of the exporter by backend: functions that prepare models, and patches."""
    try:
        backends: dict[str, _Prepare] = import_module(_EXPORTER)._BACKEND_PREPARE
        patches: dict[str, list[Any]] = import_module(f"{_EXPORTERS}.utils")._PATCHES
    except (ImportError, AttributeError) as error:
        try:
            found = f"transformers {metadata.version('transformers')} has"
        except metadata.PackageNotFoundError:
            found = "transformers is not installed; it has"
        raise OptionError(
            f"{found} no {_EXPORTER}._BACKEND_PREPARE ({error}), which backend={_BACKEND!r} is "
            f"added to: {install_command('transformers')}"
        ) from error
    return backends, patches


def _exact_unless_a_ratio(capped: _UpperBound) -> _UpperBound:
    """Return what computes the upper bound of a size, for the memory that ExecuTorch plans.

    The exporter's caps each size at four times the example's, or at 1024: with a batch of up to
    1024, also the 17 * batch rows of a product. It must, if a size is the ratio of two: their
    bounds multiply.
    """
    from torch.utils._sympy.functions import FloorDiv

    from trt_et.graph.symbolic_shapes import UnboundedDimension, shape_range

    def upper_bound(size: int | torch.SymInt) -> int:
        if isinstance(size, int):
            return size
        divisions = size.node.expr.atoms(FloorDiv)
        if not all(division.divisor.is_number for division in divisions):
            return capped(size)
        try:
            return shape_range(size)[2]
        except UnboundedDimension:
            return capped(size)

    return upper_bound


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
