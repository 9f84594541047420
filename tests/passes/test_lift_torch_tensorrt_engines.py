"""Programs that Torch-TensorRT compiled keep their engines."""

from __future__ import annotations

import base64
import operator
from typing import Any

import pytest
import torch
from torch import nn
from torch.export.graph_signature import CustomObjArgument, InputKind, InputSpec

from tests.support.lowering import blobs, lower, target_devices
from tests.support.programs.quantized_networks import needs_rtx
from trt_et import TensorRTPartitioner
from trt_et.conversion import torch_tensorrt_import
from trt_et.conversion.installed import installed_variant
from trt_et.engine_info import Binding, EngineInfo, decode_blob
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines.prebuilt import PrebuiltBuilder
from trt_et.errors import BuilderError, PartitionError
from trt_et.ops.prebuilt_engine import info_text

ENGINE = bytes(range(256)) * 5
DEVICE = "2%8%9%0%NVIDIA L4"
INFO = ["9", "engine", DEVICE, ENGINE, "x%y", "sum%product", "1", "meta", "linux_x86_64", "0"]

if installed_variant() is not None:
    torch_tensorrt_import.torch_tensorrt()

# What Torch-TensorRT registers only where its C++ library is.
_library = torch.library.Library("tensorrt", "FRAGMENT")


def _define(name: str, schema: str) -> Any:
    packet = getattr(torch.ops.tensorrt, name, None)
    if packet is None:
        _library.define(name + schema)
        packet = getattr(torch.ops.tensorrt, name)
    return packet.default


TEXT_CALL = _define(
    "no_op_placeholder_for_execute_engine",
    "(Tensor[] inputs, str a, str b, str c, str engine, str d, str e, str f, str g, str h, str i)"
    " -> Tensor[]",
)
OBJECT_CALL = _define("execute_engine", "(Tensor[] input_tensors, Any engine) -> Tensor[]")


class EngineObject:
    """An engine as Torch-TensorRT's runtimes hold it: it says what it is when it is saved."""

    def __init__(self, info: list[Any]) -> None:
        self.info = info

    def __getstate__(self) -> tuple[list[Any], str]:
        engine = base64.b64encode(self.info[3]).decode()
        return [*self.info[:3], engine, *self.info[4:]], "TRTEngine"


class Model(nn.Module):
    """``split`` stands where the engine will be called."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first, second = torch.ops.aten.split.Tensor(torch.cat([y, self.linear(x)]), 2)
        return torch.cumsum(first * second, 1)


def engine_object(info: list[Any], form: str) -> Any:
    if form == "object":
        return EngineObject(info)
    from torch_tensorrt.dynamo.runtime._TRTEngine import EngineSerializer

    return EngineSerializer(info)


def compiled(info: list[Any], form: str) -> torch.export.ExportedProgram:
    """A program as Torch-TensorRT leaves it: its engine as an object, as text, or as a buffer."""
    program = torch.export.export(Model().eval(), (torch.randn(2, 4), torch.randn(2, 4)))
    graph, signature = program.graph, program.graph_signature
    split = next(node for node in graph.nodes if node.target is torch.ops.aten.split.Tensor)
    y, linear = split.args[0].args[0]
    with graph.inserting_before(split):
        if form in ("object", "serializer"):
            first = next(node for node in graph.nodes if node.name == "x")
            with graph.inserting_before(first):
                engine = graph.placeholder("obj_engine")
            engine.meta["val"] = argument = CustomObjArgument("obj_engine", "")
            spec = InputSpec(InputKind.CUSTOM_OBJ, argument, "engine")
            signature.input_specs.insert(2, spec)
            program.constants["engine"] = engine_object(info, form)
            call = graph.call_function(OBJECT_CALL, ([linear, y], engine))
        else:
            payload: Any = base64.b64encode(info[3]).decode()
            if form == "buffer":
                program.graph_module.register_buffer(
                    "_trt_engine_0", torch.tensor(list(info[3]), dtype=torch.uint8)
                )
                payload = graph.get_attr("_trt_engine_0")
            call = graph.call_function(TEXT_CALL, ([linear, y], *info[:3], payload, *info[4:]))
    call.meta = dict(split.meta)
    split.replace_all_uses_with(call)
    graph.eliminate_dead_code()
    return program


@pytest.mark.parametrize(
    "form", ["object", "text", "buffer", pytest.param("serializer", marks=needs_rtx)]
)
def test_the_engine_is_taken_as_it_is(form):
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=[torch.ops.aten.cumsum])
    program = compiled(INFO, form)
    before = str(program.graph)
    pte = lower(program, partitioner=partitioner)
    assert str(program.graph) == before
    kinds = [p.operators for p in partitioner.report.partitions]
    assert [any("prebuilt" in op for op in ops) for ops in kinds] == [False, True, False]
    assert kinds[1] == ("trt_et::prebuilt_engine.default", "getitem", "getitem")
    assert target_devices(pte) == [[b"cuda:0"], [b"cuda:2"], [b"cuda:0"]]
    decoded = decode_blob(blobs(pte)[1])
    assert bytes(decoded.engine) == ENGINE
    assert decoded.magic == b"TR01"
    info = decoded.info
    assert [(b.name, b.shape) for b in info.outputs] == [("sum", (2, 4)), ("product", (2, 4))]
    assert {b.name for b in info.inputs} == {"x", "y"}
    assert info.hardware_compatible
    assert (info.serialized_metadata, info.target_platform) == ("meta", "linux_x86_64")
    assert not info.is_reference


def built(order: list[int]) -> EngineInfo:
    """The metadata of an engine that takes a partition's inputs in this order."""
    inputs = [Binding(name, "", (), True) for name in "xy"]
    text = info_text(EngineInfo((*inputs, Binding("sum", "float32", (3,), False))))

    class Call(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("engine", torch.tensor(list(ENGINE), dtype=torch.uint8))

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            tensors = [(a, b)[index] for index in order]
            return torch.ops.trt_et.prebuilt_engine(tensors, self.engine, text)[0]

    program = torch.export.export(Call(), (torch.randn(1), torch.randn(2)))
    request = BuildRequest("test", make_engine_program(program, "test"), 0, BuildOptions())
    return decode_blob(PrebuiltBuilder().build(request)).info


def test_its_inputs_have_the_order_of_the_delegates_arguments():
    for order, names in (([0, 1], "xy"), ([1, 0], "yx")):
        found = [(binding.name, binding.shape) for binding in built(order).inputs]
        assert found == [(names[0], (1,)), (names[1], (2,))]
    with pytest.raises(BuilderError, match="pass each input once"):
        built([0, 0])


def changed(index: int, value: Any) -> list[Any]:
    return [*INFO[:index], value, *INFO[index + 1 :]]


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (INFO[:5], "5 fields"),
        (changed(9, "1"), "depend on data"),
        ([*INFO, "0", "0", "sum@x@kv"], r"updates inputs in place \(sum@x@kv\)"),
        (changed(4, "x"), r"1 inputs \(x\); the program has 2"),
        (changed(5, "sum"), r"1 outputs \(sum\); the program has 2"),
        (changed(3, b""), "it has no engine"),
    ],
)
def test_bad_engine_info_names_the_node(info, message):
    with pytest.raises(PartitionError, match=f"node execute_engine.*: .*{message}"):
        lower(compiled(info, "object"))


def test_text_that_is_no_engine_names_the_node():
    program = compiled(INFO, "text")
    (call,) = [node for node in program.graph.nodes if node.target is TEXT_CALL]
    call.args = (*call.args[:4], "?", *call.args[5:])
    with pytest.raises(PartitionError, match=f"node {call.name}: its engine is no base64 text"):
        lower(program)


def test_an_unreadable_device_is_said_and_becomes_gpu_0(caplog):
    pte = lower(compiled(changed(2, "?"), "text"), excluded_ops=[torch.ops.aten.cumsum])
    assert target_devices(pte)[1] == [b"cuda:0"]
    assert "tensorrt_1" in caplog.text


def test_an_engine_of_which_an_output_is_not_used_is_refused():
    program = compiled(INFO, "text")
    call = next(node for node in program.graph.nodes if "no_op" in node.name)
    first, second = [n for n in call.users if n.target is operator.getitem]
    second.replace_all_uses_with(first)
    program.graph.eliminate_dead_code()
    with pytest.raises(PartitionError, match="use every output"):
        lower(program)
