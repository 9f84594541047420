"""Judges ONNX payloads by onnxruntime's results and by TensorRT-RTX's own parser."""

from __future__ import annotations

import importlib.util
from functools import cache, partial
from typing import Any

import torch

from tests.support.network_evaluator import BadNetwork, Undefined
from tests.support.network_evaluator.comparison import Verdict, judge, operators_of
from tests.support.network_evaluator.registry import DTYPES
from tests.support.onnx.payloads import Payload, payload_of
from trt_et.engine_program.program import DTYPE_NAMES
from trt_et.engines import BuildRequest
from trt_et.engines.onnx import OnnxBuilder, make_onnx_model
from trt_et.graph.tensor_bytes import bytes_of

HAS_PARSER = importlib.util.find_spec("tensorrt_rtx") is not None


@cache
def rtx() -> tuple[Any, Any, Any]:
    """TensorRT-RTX's bindings, a silent logger and a builder."""
    import tensorrt_rtx as trt

    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    return trt, logger, trt.Builder(logger)


def parser_refusal(payload: Payload) -> str:
    """What TensorRT-RTX's own ONNX parser says against a model; empty if it takes it."""
    trt, logger, builder = rtx()
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if parser.parse(payload.with_weights().SerializeToString()):
        return _wrong_bindings(network, payload)
    error = parser.get_error(0)
    return f"{error.node_operator()} {error.node_name()}: {error.desc()}"


def _wrong_bindings(network: Any, payload: Payload) -> str:
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    tensors += [network.get_output(i) for i in range(network.num_outputs)]
    for tensor, binding in zip(tensors, payload.info.bindings, strict=True):
        found = (tensor.name, DTYPE_NAMES[DTYPES[tensor.dtype]], len(tensor.shape))
        expected = (binding.name, binding.dtype, len(binding.shape))
        if found != expected:
            return f"the parser's network has the binding {found}; expected {expected}"
    return ""


def compare_payload(request: BuildRequest, *examples: torch.Tensor) -> Verdict:
    """Run a partition's ONNX models and its program on the same inputs.

    The model for TensorRT-RTX alone has further rewrites.
    """
    payload = payload_of(request.program, request)
    verdict = _judged(request, payload, examples)
    made = make_onnx_model(request, "tensorrt_rtx")
    if verdict.outcome != "equal" or made.to_bytes() == payload.model:
        return verdict
    weights = {key: bytes(bytes_of(value)) for key, value in made.weights.items()}
    return _judged(request, Payload(payload.info, made.to_bytes(), weights), examples)


def _judged(request: BuildRequest, payload: Payload, examples: tuple[torch.Tensor, ...]) -> Verdict:
    refusal = parser_refusal(payload) if HAS_PARSER else ""
    run = payload.evaluate
    try:
        session = payload.session()
        if all(binding.dtype != "bfloat16" for binding in payload.info.bindings):
            run = partial(payload.run, session=session)
    except Exception as error:
        # Onnxruntime has few kernels for bfloat16.
        if "NOT_IMPLEMENTED" not in str(error) and "bfloat16" not in str(error):
            refusal = refusal or str(error)
    if refusal:
        return Verdict(request.partition, operators_of(request), "bad network", refusal)
    refuses = any(update.refuses_negative_indices for update in request.program.aliased_outputs)

    def checked(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if refuses and any(bool((t < 0).any()) for t in inputs if not t.is_floating_point()):
            raise Undefined  # Not what the program says, but the Edge dialect's index_put takes it.
        try:
            return run(inputs)
        except Exception as error:
            raise BadNetwork(str(error)) from error

    # Onnxruntime sums large int64 less exactly than ONNX says.
    return judge(request, examples, checked, payload.evaluate)


class ComparingOnnxBuilder(OnnxBuilder):
    def __init__(self, verdicts: list[Verdict]) -> None:
        self.verdicts = verdicts

    def build(self, request: BuildRequest) -> bytes:
        self.verdicts.append(compare_payload(request))
        return super().build(request)
