"""The ways to an engine of TensorRT-RTX that are compared, none of which needs a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.engines.models import Model
from trt_et.graph.symbolic_shapes import shape_range


def export(model: Model) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(model.module, model.inputs, dynamic_shapes=model.dynamic_shapes)


def _lower(model: Model, **options: Any) -> bytes:
    from executorch.exir import to_edge_transform_and_lower

    from trt_et import TensorRTPartitioner

    partitioner = TensorRTPartitioner(**options)
    lowered = to_edge_transform_and_lower(export(model), partitioner=[partitioner])
    return bytes(lowered.to_executorch().buffer)


def engines_of(pte: bytes) -> list[bytes]:
    """The engines of a program, in the order of its delegates."""
    from trt_et.engine_info import decode_blob
    from trt_et.inspection import inspect_program

    return [
        bytes(decode_blob(delegate.blob).engine)
        for method in inspect_program(pte)
        for delegate in method.delegates
    ]


def ours(model: Model) -> list[bytes]:
    """``TensorRTPartitioner()``."""
    return engines_of(_lower(model))


def ours_precision(model: Model) -> list[bytes]:
    """``TensorRTPartitioner(precision="float16")``."""
    return engines_of(_lower(model, precision="float16"))


def ours_onnx(model: Model) -> list[bytes]:
    """``builder="onnx"``, and TensorRT-RTX's build of its networks."""
    from trt_et.engines.rtx_network import build_rtx_engine
    from trt_et.runtime.networks import build_program

    pte = _lower(model, builder="onnx")
    return engines_of(build_program(pte, build_rtx_engine)[0])


def onnx_parser(model: Model) -> list[bytes]:
    """``torch.onnx.export(dynamo=True)``, and the library's own parser."""
    import tensorrt_rtx as trt

    ranges = _ranges(export(model))
    exported = torch.onnx.export(
        model.module, model.inputs, dynamo=True, dynamic_shapes=model.dynamic_shapes, verbose=False
    )
    assert exported is not None
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    flag = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    network = builder.create_network(1 << int(flag))
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.ERROR))
    if not parser.parse(exported.model_proto.SerializeToString()):
        raise RuntimeError(f"the parser refuses the model: {parser.get_error(0).desc()}")
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    for index, shapes in enumerate(ranges):
        if -1 in network.get_input(index).shape:
            profile.set_shape(network.get_input(index).name, *shapes)
    config.add_optimization_profile(profile)
    return [bytes(builder.build_serialized_network(network, config))]


def _ranges(program: torch.export.ExportedProgram) -> list[tuple[tuple[int, ...], ...]]:
    """Smallest, best tuned and largest shape of each input, as ours take them."""
    names = program.graph_signature.user_inputs
    values = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    return [
        tuple(zip(*(shape_range(size) for size in values[name].shape), strict=True))
        for name in names
    ]


def torch_tensorrt(model: Model) -> list[bytes]:
    """Torch-TensorRT's lowering and converters."""
    from benchmarks.aot.peers import bare_build

    program = export(model)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "engine"
        bare_build(program, path)
        return [path.read_bytes()]


WAYS: dict[str, Callable[[Model], list[bytes]]] = {
    way.__name__: way for way in (ours, onnx_parser, torch_tensorrt, ours_onnx, ours_precision)
}
