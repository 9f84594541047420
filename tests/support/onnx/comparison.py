"""Judges ONNX payloads by onnxruntime's results and by TensorRT-RTX's own parser."""

from __future__ import annotations

import importlib.util
from functools import cache, partial
from typing import Any

import torch

from tests.support.network_evaluator.comparison import PRECISION, Verdict, difference, draws
from tests.support.onnx.payloads import Payload, payload_of
from trt_et.engines import BuildRequest
from trt_et.engines.onnx import OnnxBuilder
from trt_et.lowering.lowered_partition import unlift

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
        found = (tensor.name, str(tensor.dtype).rpartition(".")[2], len(tensor.shape))
        dtype = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16"}.get(
            binding.dtype, binding.dtype.upper()
        )
        expected = (binding.name, dtype, len(binding.shape))
        if found != expected:
            return f"the parser's network has the binding {found}; expected {expected}"
    return ""


def compare_payload(request: BuildRequest, *examples: torch.Tensor) -> Verdict:
    """Run a partition's ONNX model and its program on the same inputs.

    Args:
        request: The partition.
        examples: Its own inputs, if they are known; others are drawn as well.
    """
    lowered = request.lowered
    nodes = lowered.program.graph.nodes
    operators = sorted({str(n.target) for n in nodes if n.op == "call_function"})
    verdict = Verdict(request.partition, operators, "equal")
    dtypes = [v.dtype for n in nodes if isinstance(v := n.meta.get("val"), torch.Tensor)]
    precision = max((PRECISION.get(dtype, 1e-4) for dtype in dtypes), default=1e-4)
    payload = payload_of(lowered, request)
    if HAS_PARSER and (refusal := parser_refusal(payload)):
        verdict.outcome, verdict.why = "bad network", refusal
        return verdict
    try:
        session = payload.session()
        run = partial(payload.run, session=session)
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "bfloat16" not in str(error):
            verdict.outcome, verdict.why = "bad network", str(error)
            return verdict
        run = payload.evaluate  # onnxruntime has few kernels for bfloat16.
    program = unlift(lowered.program)
    refuses = any(update.refuses_negative_indices for update in lowered.aliased_outputs)
    number = evaluated = 0
    for number, inputs in enumerate([*([list(examples)] if examples else []), *draws(lowered)], 1):
        if refuses and any(bool((t < 0).any()) for t in inputs if not t.is_floating_point()):
            continue  # Not what the program says, but the Edge dialect's index_put takes them.
        evaluated += 1
        with torch.no_grad():
            expected = program(*(t.clone() for t in inputs))
        try:
            found = run(inputs)
        except Exception as error:
            verdict.outcome, verdict.why = "bad network", f"draw {number}: {error}"
            return verdict
        for index, (have, want) in enumerate(zip(found, expected, strict=True)):
            why = difference(have, want, precision)
            if why and not want.is_floating_point():
                # Onnxruntime sums large int64 less exactly than ONNX says.
                why = difference(payload.evaluate(inputs)[index], want, precision)
            if why:
                verdict.outcome = "different"
                verdict.why = f"draw {number}, output {index}: {why}"
                return verdict
    if not evaluated:
        verdict.outcome, verdict.why = "not evaluated", "no inputs with a defined result were found"
    return verdict


class ComparingOnnxBuilder(OnnxBuilder):
    """Builds ONNX payloads, and remembers how each compares."""

    def __init__(self, verdicts: list[Verdict]) -> None:
        self.verdicts = verdicts

    def build(self, request: BuildRequest) -> bytes:
        self.verdicts.append(compare_payload(request))
        return super().build(request)
