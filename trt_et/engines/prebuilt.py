"""Builds partitions that already contain an engine: takes that engine unchanged."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

from torch.fx import Node

from trt_et.blob.codec import encode_blob
from trt_et.conversion.installed import installed_variant
from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.errors import BuilderError
from trt_et.ops.prebuilt_engine import info_of, is_prebuilt


class PrebuiltBuilder(EngineBuilder):
    """Makes a blob of an engine that the program contains, with the engine's names and GPU."""

    name = "prebuilt"

    def build(self, request: BuildRequest) -> bytes:
        """See ``trt_et.engines.EngineBuilder.build``."""
        program = request.program
        graph = program.exported.graph
        (call,) = (node for node in graph.nodes if is_prebuilt(node.target))
        info = info_of(str(call.args[2]))
        inputs, outputs = ([b.name for b in each] for each in (info.inputs, info.outputs))
        tensors = [node.name for node in call.args[0]]
        output = next(node for node in reversed(graph.nodes) if node.op == "output")
        picked = [_picked(result, call) for result in output.args[0]]
        expected = sorted(binding.name for binding in program.inputs)
        if sorted(tensors) != expected or sorted(picked) != list(range(len(outputs))):
            raise BuilderError(
                f"its engine has the inputs {', '.join(inputs)} and the outputs "
                f"{', '.join(outputs)}; the program must pass each input once, as a separate "
                "tensor, and use every output, all of them contiguous"
            )
        names = dict(zip(tensors, inputs, strict=True))
        bindings = [
            *(replace(b, name=names[b.name]) for b in program.inputs),
            *(replace(b, name=outputs[i]) for b, i in zip(program.outputs, picked, strict=True)),
        ]
        # Torch-TensorRT's engines do not record it; it is the installed one.
        builder = info.builder or installed_variant() or ""
        engine: Any = program.constants[call.args[1].name].numpy()
        return encode_blob(engine, replace(info, bindings=tuple(bindings), builder=builder))


def _picked(result: Node, call: Node) -> int:
    if result.target is operator.getitem and result.args[0] is call:
        return int(str(result.args[1]))
    return -1
