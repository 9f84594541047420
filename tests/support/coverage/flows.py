"""Flows of this backend for ExecuTorch's backend test suite.

``trt_reference`` lowers, runs on a simulated GPU in the stock runtime and compares with eager;
``trt_rtx`` lowers and builds real TensorRT-RTX engines; ``trt_network`` builds none and evaluates
each partition's network on the CPU instead (tests/network_evaluator); ``trt_onnx`` runs each
partition's ONNX model by onnxruntime.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from executorch.backends.test.harness import Tester as TesterBase
from executorch.backends.test.harness.stages import (
    Partition,
    StageType,
    ToEdgeTransformAndLower,
)
from executorch.backends.test.suite.flow import TestFlow
from executorch.exir import EdgeCompileConfig

from tests.support.network_evaluator.comparison import ComparingBuilder, Verdict
from tests.support.onnx.comparison import ComparingOnnxBuilder
from tests.support.simulated_gpus import load_runtime
from trt_et import TensorRTPartitioner
from trt_et.inspection import inspect_program

MADE: list[TensorRTPartitioner] = []
"""Partitioners since somebody last cleared this: their reports say why operators stay out."""


VERDICTS: list[Verdict] = []
"""What became of each network since somebody last cleared this."""


_COMPARING = {"comparing": ComparingBuilder, "comparing_onnx": ComparingOnnxBuilder}


def _partitioner(builder: str) -> TensorRTPartitioner:
    comparing = _COMPARING.get(builder)
    MADE.append(TensorRTPartitioner(builder=comparing(VERDICTS) if comparing else builder))
    return MADE[-1]


class _Tester(TesterBase):
    def __init__(
        self,
        builder: str,
        module: torch.nn.Module,
        example_inputs: Any,
        dynamic_shapes: Any = None,
        **_: Any,
    ) -> None:
        def lower(**options: Any) -> ToEdgeTransformAndLower:
            return ToEdgeTransformAndLower(
                default_partitioner_cls=lambda: _partitioner(builder),
                # As the other flows have it: some cases hold operators outside the core set.
                edge_compile_config=EdgeCompileConfig(_check_ir_validity=False),
                **options,
            )

        def partition() -> Partition:
            return Partition(partitioner=_partitioner(builder))

        stages = TesterBase.default_stage_classes() | {
            StageType.PARTITION: partition,
            StageType.TO_EDGE_TRANSFORM_AND_LOWER: lower,
        }
        super().__init__(module, example_inputs, stages, dynamic_shapes)
        self.builder = builder
        if builder == "reference":
            load_runtime()

    def run_method_and_compare_outputs(self, *args: Any, **kwargs: Any) -> Any:
        """Only reference engines run here; of others, look at the engines or at the verdicts."""
        if self.builder == "reference":
            return super().run_method_and_compare_outputs(*args, **kwargs)
        if self.builder == "tensorrt_rtx":
            (method,) = inspect_program(bytes(self.get_artifact()))
            for delegate in method.delegates:
                assert not delegate.problem, delegate.problem
                assert delegate.engine_size > 0
        for verdict in VERDICTS:
            assert verdict.outcome in ("equal", "not evaluated"), verdict
        return self


_BUILDERS = {
    "trt_reference": "reference",
    "trt_rtx": "tensorrt_rtx",
    "trt_network": "comparing",
    "trt_onnx": "comparing_onnx",
}
FLOWS = [
    TestFlow(name, backend="tensorrt", tester_factory=partial(_Tester, builder))
    for name, builder in _BUILDERS.items()
]
