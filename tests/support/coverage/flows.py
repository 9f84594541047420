"""Flows of this backend for ExecuTorch's backend test suite.

``trt_reference`` lowers, runs on a simulated GPU in the stock runtime and compares with eager;
``trt_rtx`` lowers and builds real TensorRT-RTX engines; ``trt_network`` builds none and evaluates
each partition's network on the CPU instead (tests/network_evaluator); ``trt_onnx`` runs each
partition's ONNX model by onnxruntime.
"""

from __future__ import annotations

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
    builder: str

    def __init__(
        self, module: torch.nn.Module, example_inputs: Any, dynamic_shapes: Any = None, **_: Any
    ) -> None:
        def lower(**options: Any) -> ToEdgeTransformAndLower:
            return ToEdgeTransformAndLower(
                default_partitioner_cls=lambda: _partitioner(self.builder),
                # As the other flows have it: some cases hold operators outside the core set.
                edge_compile_config=EdgeCompileConfig(_check_ir_validity=False),
                **options,
            )

        def partition() -> Partition:
            return Partition(partitioner=_partitioner(self.builder))

        stages = TesterBase.default_stage_classes() | {
            StageType.PARTITION: partition,
            StageType.TO_EDGE_TRANSFORM_AND_LOWER: lower,
        }
        super().__init__(module, example_inputs, stages, dynamic_shapes)


class ReferenceTester(_Tester):
    builder = "reference"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from tests.support.simulated_gpus import load_runtime

        load_runtime()
        super().__init__(*args, **kwargs)


class RTXTester(_Tester):
    builder = "tensorrt_rtx"

    def run_method_and_compare_outputs(self, *_: Any, **__: Any) -> RTXTester:
        """Check the engines instead: running them needs a GPU."""
        (method,) = inspect_program(bytes(self.get_artifact()))
        for delegate in method.delegates:
            assert not delegate.problem, delegate.problem
            assert delegate.engine_size > 0
        return self


class NetworkTester(_Tester):
    builder = "comparing"

    def run_method_and_compare_outputs(self, *_: Any, **__: Any) -> NetworkTester:
        """Look at the verdicts instead: there is no engine."""
        for verdict in VERDICTS:
            assert verdict.outcome in ("equal", "not evaluated"), verdict
        return self


class OnnxTester(NetworkTester):
    builder = "comparing_onnx"


FLOWS = [
    TestFlow("trt_reference", backend="tensorrt", tester_factory=ReferenceTester),
    TestFlow("trt_rtx", backend="tensorrt", tester_factory=RTXTester),
    TestFlow("trt_network", backend="tensorrt", tester_factory=NetworkTester),
    TestFlow("trt_onnx", backend="tensorrt", tester_factory=OnnxTester),
]
