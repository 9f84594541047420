"""Finds operators outside of engines that the stock ExecuTorch runtime has no kernel for."""

from __future__ import annotations

import logging
from typing import Final

from executorch.exir.operator.convert import to_out_variant
from torch._ops import OpOverload
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import aten_target
from trt_et.graph.cpu_kernels import runtime_kernels
from trt_et.partition.report import PartitionReport

_log = logging.getLogger("trt_et.partitioner")

# The plugin and libraries of ExecuTorch bring their kernels.
_WITH_KERNELS: Final = ("trt_et", "quantized_decomposed", "llama")
# What to write instead.
_INSTEAD: Final[dict[str, str]] = {
    "aten::max_pool3d_with_indices": "leave out return_indices=True",
    "aten::sort": "write x.topk(x.shape[dim], dim)",
}
_OTHERWISE: Final = (
    "write other operators, or register a kernel of your own in the process that loads it"
)


def missing_kernel(node: Node) -> str | None:
    """Return why the stock runtime cannot run a call outside of engines; None if it can.

    The names of kernels come from the installed ExecuTorch, in this process.
    """
    target = aten_target(node)
    if not isinstance(target, OpOverload) or target.namespace in _WITH_KERNELS:
        return None
    name = target._schema.name
    try:
        out, _ = to_out_variant(target)
    except RuntimeError:
        # ExecuTorch replaces views; the out variants of a model's own operators may be missing.
        kernel = None if target.namespace == "aten" else f"{name} (it has no out variant)"
    except AssertionError:  # It has several.
        kernel = None
    else:
        kernel = ".".join(filter(None, [out._schema.name, out._schema.overload_name]))
    if kernel is None or kernel in runtime_kernels():
        return None
    return f"ExecuTorch has no kernel {kernel} for it; {_INSTEAD.get(name, _OTHERWISE)}"


def warn_missing_kernels(report: PartitionReport) -> None:
    """Warn of the calls without a kernel: the program fails to load."""
    for name, operator, reason in report.not_delegated:
        if name in report.without_kernel:
            source = report.sources.get(name)
            _log.warning(
                "%s (%s) stays on the CPU, where nothing runs it: loading the program will fail "
                "with error 0x14, unless another delegate takes it. %s%s",
                name,
                operator,
                reason,
                f" (at {source})" if source else "",
            )
