"""Builds partitions that already contain an engine: takes that engine unchanged."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

from torch.fx import Node

from trt_et.blob.codec import encode_blob
from trt_et.blob.model import EngineInfo
from trt_et.conversion.installed import installed_variant
from trt_et.engines.base import BuildRequest
from trt_et.errors import BuilderError
from trt_et.ops.prebuilt_engine import PrebuiltEngine, is_prebuilt


class PrebuiltBuilder:
    """Makes a blob of an engine that the program contains, with the engine's names and GPU."""

    name = "prebuilt"

    def build(self, request: BuildRequest) -> bytes:
        """See ``trt_et.engines.EngineBuilder.build``."""
        lowered = request.lowered
        graph = lowered.program.graph
        (call,) = (node for node in graph.nodes if is_prebuilt(node.target))
        info = PrebuiltEngine.from_text(str(call.args[2]))
        tensors = [node.name for node in call.args[0]]
        output = next(node for node in reversed(graph.nodes) if node.op == "output")
        picked = [_picked(result, call) for result in output.args[0]]
        expected = sorted(binding.name for binding in lowered.inputs)
        if sorted(tensors) != expected or sorted(picked) != list(range(len(info.outputs))):
            raise BuilderError(
                f"its engine has the inputs {', '.join(info.inputs)} and the outputs "
                f"{', '.join(info.outputs)}; the program must pass each input once, as a separate "
                "tensor, and use every output, all of them contiguous"
            )
        names = dict(zip(tensors, info.inputs, strict=True))
        inputs = [replace(binding, name=names[binding.name]) for binding in lowered.inputs]
        outputs = [
            replace(binding, name=info.outputs[index])
            for binding, index in zip(lowered.outputs, picked, strict=True)
        ]
        engine: Any = lowered.constants[call.args[1].name].numpy()
        return encode_blob(
            engine,
            EngineInfo(
                bindings=(*inputs, *outputs),
                device_id=info.device_id,
                # Torch-TensorRT's engines do not record it; it is the installed one.
                builder=info.builder or installed_variant() or "",
                library_version=info.library_version,
                compute_capabilities=info.compute_capabilities,
                hardware_compatible=info.hardware_compatible,
                target_platform=info.target_platform,
                serialized_metadata=info.serialized_metadata,
            ),
        )


def _picked(result: Node, call: Node) -> int:
    if result.target is operator.getitem and result.args[0] is call:
        return int(str(result.args[1]))
    return -1
