"""Keeps the engines of programs that Torch-TensorRT compiled (``execute_engine`` nodes).

Such a program contains engines as objects, or as text if it was compiled for another machine.
ExecuTorch's passes support neither. ``lift_torch_tensorrt_engines`` turns each one into a call
of ``trt_et::prebuilt_engine``, whose engine is a constant tensor of bytes.
"""

from __future__ import annotations

import base64
import binascii
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec
from torch.fx import Graph, GraphModule, Node

from trt_et.blob.model import Binding, EngineInfo
from trt_et.errors import BlobError, PartitionError
from trt_et.graph.constants import add_constant
from trt_et.graph.subgraphs import copied_graph
from trt_et.ops.prebuilt_engine import PREBUILT_ENGINE, info_text

_CALLS: Final = ("tensorrt::execute_engine", "tensorrt::no_op_placeholder_for_execute_engine")
# Positions in Torch-TensorRT's list of an engine's serialized fields.
_DEVICE, _ENGINE, _INPUTS, _OUTPUTS, _HARDWARE, _METADATA, _PLATFORM, _ALLOCATOR = range(2, 10)
_ALIASES: Final = 12  # Since 2.14.
_DELIMITER: Final = "%"


def lift_torch_tensorrt_engines(program: ExportedProgram) -> ExportedProgram:
    """Turn the engines of a program, which Torch-TensorRT may have returned, into constants.

    Raises:
        PartitionError: An engine is not supported; the message has the node.
    """
    if not any(map(_calls_engine, program.graph.nodes)):
        return program
    graph, _ = copied_graph(program.graph)
    specs = list(program.graph_signature.input_specs)
    constants = dict(program.constants)
    for index, node in enumerate(filter(_calls_engine, list(graph.nodes))):
        info, engine = _read(node.name, _serialized(program, node))
        target = f"_trt_et_engine_{index}"
        constants[target] = engine
        _replace(graph, node, add_constant(graph, specs, target, engine), info)
    dropped = _drop_objects(graph, specs)
    signature = ExportGraphSignature(
        [spec for spec in specs if spec.arg.name not in dropped],
        list(program.graph_signature.output_specs),
    )
    kept = {spec.target for spec in signature.input_specs}
    constants = {k: v for k, v in constants.items() if k in kept or isinstance(v, torch.Tensor)}
    graph.lint()
    return program._update(GraphModule(program.graph_module, graph), signature, constants=constants)


def _calls_engine(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.name in _CALLS


def _serialized(program: ExportedProgram, node: Node) -> list[Any]:
    """Return Torch-TensorRT's list from the node's arguments or its engine object."""
    given = list(node.args[1:])
    if len(given) > 1:
        engine = given[_ENGINE] if len(given) > _ENGINE else None
        if isinstance(engine, Node):
            given[_ENGINE] = _value(program, engine)
        return given
    engine = _value(program, given[0]) if given and isinstance(given[0], Node) else None
    fields = getattr(engine, "serialized_info", None)
    if fields is None and engine is not None and hasattr(engine, "__getstate__"):
        state = engine.__getstate__()
        fields = state[0] if isinstance(state, tuple) else state
    if not isinstance(fields, Sequence) or isinstance(fields, str):
        raise PartitionError(
            f"node {node.name}: its engine is a {type(engine).__name__}, whose content cannot be "
            "read; save and load the program with the Torch-TensorRT that compiled it"
        )
    return list(fields)


def _value(program: ExportedProgram, node: Node) -> Any:  # noqa: ANN401
    if node.op == "get_attr":
        return getattr(program.graph_module, str(node.target), None)
    for spec in program.graph_signature.input_specs:
        if spec.arg.name == node.name:
            values = {**program.state_dict, **program.constants}
            return values.get(str(spec.target), values.get(node.name))
    return None


def _read(name: str, fields: list[Any]) -> tuple[EngineInfo, torch.Tensor]:
    if len(fields) <= _PLATFORM:
        raise PartitionError(
            f"node {name}: its engine's description has {len(fields)} fields; expected at least "
            f"{_PLATFORM + 1}. Compile the program again with a current Torch-TensorRT"
        )
    if len(fields) > _ALLOCATOR and str(fields[_ALLOCATOR]) == "1":
        raise PartitionError(
            f"node {name}: the shapes of its engine's outputs depend on data, which an ExecuTorch "
            "delegate cannot return. Lower the plain exported program instead"
        )
    if len(fields) > _ALIASES and str(fields[_ALIASES]):
        raise PartitionError(
            f"node {name}: its engine updates inputs in place ({fields[_ALIASES]}), which trt-et "
            "does only for engines that it builds. Lower the plain exported program instead"
        )
    texts = {index: str(fields[index]) for index in range(len(fields)) if index != _ENGINE}
    device = texts[_DEVICE].split(_DELIMITER)[0]
    info = EngineInfo(
        (*_bindings(texts[_INPUTS], is_input=True), *_bindings(texts[_OUTPUTS], is_input=False)),
        device_id=int(device) if device.isdecimal() else None,
        hardware_compatible=texts[_HARDWARE] == "1",
        serialized_metadata=texts[_METADATA],
        target_platform=texts[_PLATFORM],
    )
    return info, _bytes(name, fields[_ENGINE])


def _bindings(names: str, *, is_input: bool) -> list[Binding]:
    """Return bindings without dtypes and shapes, which Torch-TensorRT's list does not have."""
    return [Binding(name, "", (), is_input) for name in names.split(_DELIMITER) if name]


def _bytes(name: str, engine: object) -> torch.Tensor:
    if isinstance(engine, str):
        try:
            engine = base64.b64decode(engine, validate=True)
        except binascii.Error as error:
            raise PartitionError(f"node {name}: its engine is no base64 text: {error}") from error
    if isinstance(engine, bytes | bytearray):
        engine = torch.frombuffer(bytearray(engine), dtype=torch.uint8) if engine else None
    if not isinstance(engine, torch.Tensor) or engine.dtype is not torch.uint8:
        raise PartitionError(
            f"node {name}: it has no engine; expected bytes, found {type(engine).__name__}"
        )
    return engine.contiguous()


def _replace(graph: Graph, node: Node, engine: Node, info: EngineInfo) -> None:
    tensors: Any = node.args[0]
    value = node.meta.get("val")
    results = list(value) if isinstance(value, list | tuple) else [value]
    for what, bindings, count in (
        ("inputs", info.inputs, len(tensors)),
        ("outputs", info.outputs, len(results)),
    ):
        if len(bindings) != count:
            names = ", ".join(binding.name for binding in bindings)
            raise PartitionError(
                f"node {node.name}: its engine has {len(bindings)} {what} ({names}); the program "
                f"has {count}"
            )
    outputs = []
    for binding, result in zip(info.outputs, results, strict=True):
        if not isinstance(result, torch.Tensor) or not all(type(n) is int for n in result.shape):
            raise PartitionError(
                f"node {node.name}: an output of its engine has a dynamic shape; trt-et takes only "
                "engines of static shapes. Lower the plain exported program instead"
            )
        dtype = str(result.dtype).removeprefix("torch.")
        outputs.append(replace(binding, dtype=dtype, shape=tuple(result.shape)))
    try:
        text = info_text(replace(info, bindings=(*info.inputs, *outputs)))
    except BlobError as error:
        raise PartitionError(f"node {node.name}: {error}") from error
    with graph.inserting_before(node):
        new = graph.call_function(PREBUILT_ENGINE, (list(tensors), engine, text))
    new.meta = {**node.meta, "val": results}
    node.replace_all_uses_with(new)
    for user in new.users:
        # Torch-TensorRT's exporter gives the only result of an engine as a list.
        if user.target is operator.getitem:
            user.meta["val"] = results[int(user.args[1])]  # type: ignore[arg-type]
    graph.erase_node(node)


def _drop_objects(graph: Graph, specs: list[InputSpec]) -> set[str]:
    """Erase what nothing uses any more: the objects and texts that engines came from."""
    objects = {spec.arg.name for spec in specs if spec.kind is InputKind.CUSTOM_OBJ}
    dropped = set()
    for node in list(graph.nodes):
        if not node.users and (node.op == "get_attr" or node.name in objects):
            dropped.add(node.name)
            graph.erase_node(node)
    return dropped
