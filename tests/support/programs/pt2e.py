"""Quantize models with the package's quantizer, as its users do it."""

from __future__ import annotations

import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationConfig

from trt_et.quantizer import TensorRTQuantizer, int8

Inputs = tuple[torch.Tensor, ...]

DEQUANTIZE = "quantized_decomposed.dequantize"


def quantizer(config: QuantizationConfig | None = None) -> TensorRTQuantizer:
    return TensorRTQuantizer().set_global(config or int8())


def prepared(model: nn.Module, inputs: Inputs, chosen: TensorRTQuantizer) -> torch.fx.GraphModule:
    return prepare_pt2e(torch.export.export(model.eval(), inputs).module(), chosen)


def quantize(
    model: nn.Module, inputs: Inputs, chosen: TensorRTQuantizer | None = None
) -> torch.export.ExportedProgram:
    """Quantize a model, calibrated with its inputs."""
    observed = prepared(model, inputs, chosen or quantizer())
    observed(*inputs)
    return torch.export.export(convert_pt2e(observed), inputs)


def quantized_inputs(program: torch.export.ExportedProgram) -> dict[str, list[bool]]:
    """Whether each float input of each call is dequantized, by the call's name."""
    found = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and "quantized_decomposed" not in str(node.target):
            found[node.name] = [
                str(source.target).startswith(DEQUANTIZE)
                for source in node.all_input_nodes
                if source.meta["val"].is_floating_point()
            ]
    return found


def scales(program: torch.export.ExportedProgram, call: str) -> list[object]:
    """The scales of the quantized inputs of a call: numbers, or shape and axis of a weight's."""
    (node,) = [node for node in program.graph.nodes if node.name == call]
    found: list[object] = []
    for source in node.all_input_nodes:
        if "dequantize_per_tensor" in str(source.target):
            found.append(source.args[1])
        elif "dequantize_per_channel" in str(source.target):
            found.append((tuple(source.args[1].meta["val"].shape), source.args[3]))
    return found
