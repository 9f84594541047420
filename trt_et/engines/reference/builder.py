"""Builds a partition as a nested ExecuTorch program.

ExecuTorch's CPU kernels run it, on simulated GPUs. The partitioner, the blob, the device metadata,
the delegate and the copies are the same as with TensorRT. The blob is marked, so that a TensorRT
runtime rejects it.
"""

from __future__ import annotations

import logging
from importlib.metadata import version

from executorch.exir import (
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge,
)
from torch.export.graph_signature import InputKind

from trt_et.blob.codec import encode_blob
from trt_et.blob.model import REFERENCE_BUILDER, EngineInfo
from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.engines.fingerprint import fingerprint_of, target_platform
from trt_et.engines.reference.kernels import decompose_for_cpu_kernels
from trt_et.errors import BuilderError
from trt_et.graph.cpu_kernels import cpu_kernels
from trt_et.graph.tracing import TRACING

_log = logging.getLogger(__name__)


class ReferenceBuilder(EngineBuilder):
    """Builds engines that ExecuTorch's CPU kernels run."""

    name = REFERENCE_BUILDER

    def fingerprint(self) -> str:
        """See ``trt_et.engines.EngineBuilder``."""
        return fingerprint_of(tensorrt=False)

    def build(self, request: BuildRequest) -> bytes:
        """See ``trt_et.engines.EngineBuilder.build``."""
        for spec in request.program.exported.graph_signature.input_specs:
            if spec.kind is InputKind.CUSTOM_OBJ:
                raise BuilderError(
                    f"custom object {spec.target} cannot go into an engine; leave the operator "
                    "that takes it to the CPU (excluded_ops=...)"
                )
        with TRACING:
            program = decompose_for_cpu_kernels(request.program.exported)
            edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
            planning = ExecutorchBackendConfig(enable_non_cpu_memory_planning=False)
            nested = edge.to_executorch(planning)
        request.monitor.check()
        _warn_of_missing_kernels(nested, request.partition)
        info = EngineInfo(
            bindings=request.program.bindings,
            device_id=request.device_id,
            builder=self.name,
            library_version=version("executorch"),
            hardware_compatible=True,
            target_platform=target_platform(),
            precision=request.options.precision or "",
        )
        return encode_blob(nested.buffer, info)


def _warn_of_missing_kernels(nested: ExecutorchProgramManager, partition: str) -> None:
    """Warn of kernels that the stock ExecuTorch runtime lacks: TensorRT runs more operators."""
    needed = {
        f"{operator.name}.{operator.overload}".rstrip(".")
        for plan in nested.executorch_program.execution_plan
        for operator in plan.operators
    }
    missing = sorted(needed - cpu_kernels())
    if missing:
        _log.warning(
            "partition %s: its reference engine needs %s, for which the stock ExecuTorch runtime "
            "has no CPU kernel; it loads only if one is registered (TensorRT needs none)",
            partition,
            ", ".join(missing),
        )
