"""What is read from a .pte is what ExecuTorch's own deserializer reads."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.schema import DataLocation, DelegateCall, KernelCall, Tensor

from tests.support.cli.sample_programs import program
from tests.support.sampled import sampled
from trt_et.errors import BlobError
from trt_et.inspection import inspect_program
from trt_et.inspection.reader import read_inputs


@pytest.mark.parametrize(
    "kind", sampled(["split", "dynamic", "rtx", "foreign", "xnnpack", "cpu"], 2)
)
def test_values_calls_memory_and_delegates_are_those_of_executorch(kind):
    pte = program(kind)
    (ours,) = inspect_program(pte)
    assert read_inputs(pte) == {ours.name: ours.inputs}
    restored = deserialize_pte_binary(pte).program
    (theirs,) = restored.execution_plan
    assert ours.name == theirs.name
    assert list(ours.input_values) == theirs.inputs
    assert list(ours.output_values) == theirs.outputs
    assert list(ours.cpu_operators) == [f"{op.name}.{op.overload}" for op in theirs.operators]
    for value, their in zip(ours.values, theirs.values, strict=True):
        assert (value is not None) == isinstance(their.val, Tensor)
        if value is not None:
            assert list(value.sizes) == list(their.val.sizes)
            dtype = getattr(torch, value.dtype)
            assert value.nbytes == math.prod(value.sizes) * dtype.itemsize
            assert value.dtype.replace("float32", "float") == their.val.scalar_type.name.lower()
            assert value.is_dynamic == (their.val.shape_dynamism.value != 0)
            extra = their.val.extra_tensor_info
            device = f"cuda:{extra.device_index}" if extra and extra.device_type.value else "cpu"
            assert value.device == device
    instructions = [i.instr_args for chain in theirs.chains for i in chain.instructions]
    for call, their in zip(ours.calls, instructions, strict=True):
        index = their.op_index if isinstance(their, KernelCall) else their.delegate_index
        assert isinstance(their, DelegateCall) == (call.kind == "delegate")
        assert (call.index, list(call.args)) == (index, their.args)
    assert sum(use.planned_bytes for use in ours.devices) == sum(theirs.non_const_buffer_sizes)
    for delegate, their in zip(ours.delegates, theirs.delegates, strict=True):
        assert delegate.backend_id == their.id
        assert their.processed.location is DataLocation.INLINE
        blob = bytes(restored.backend_delegate_data[their.processed.index].data)
        assert delegate.blob == blob == pte[delegate.offset : delegate.offset + delegate.size]
        specs = [(spec.key, bytes(spec.value)) for spec in their.compile_specs]
        assert list(delegate.compile_specs) == specs


def test_a_reference_engine_shows_its_operators():
    (method,) = inspect_program(program("split"))
    assert method.delegates[1].operators[-1] == "aten::sub.out"
    assert inspect_program(program("rtx"))[0].delegates[0].operators == ()


def test_copies_between_host_and_gpu_are_counted_with_their_bytes():
    (method,) = inspect_program(program("split"))
    copies = [(copy.direction, copy.device, copy.nbytes) for copy in method.copies]
    assert copies.count(("h2d", "cuda:1", 32)) == 3
    assert copies.count(("d2h", "cuda:1", 32)) == 2
    assert method.operator_calls == {"aten::cumsum.out": 1}


def test_damaged_and_truncated_files_are_refused():
    for data, match in (
        (b"\xff\xff\xff\x7fET12", "its tables are damaged"),
        (b"\x08\0\0\0ET12\0\0\0\0", "it has no method"),
        (program("rtx")[:-200], "truncated"),
    ):
        with pytest.raises(BlobError, match=match):
            inspect_program(data)
    for data in (b"\xff\xff\xff\x7fET12", program("rtx")[:-200], b""):
        with pytest.raises(BlobError):
            read_inputs(data)


def test_tables_that_share_their_parts_are_not_read_forever():
    """3,000 methods that are one, with 3,000 values that are one: nine million in 24 KB."""
    count = 3_000
    root, methods, method, values, value = 20, 28, 12_032, 12_040, 24_044

    def vector(at: int, target: int) -> bytes:
        return struct.pack(
            f"<I{count}I", count, *(target - at - 4 * i for i in range(1, count + 1))
        )

    data = struct.pack("<I4s", root, b"ET12")
    data += struct.pack("<HHHHHH", 10, 8, 0, 4, 4, 0)  # Slots 1 and 2 are one field, at 4.
    data += struct.pack("<iI", root - 8, methods - root - 4) + vector(methods, method)
    data += struct.pack("<iI", method - 8, values - method - 4) + vector(values, value)
    data += struct.pack("<iHH", -4, 4, 4)
    for read in (inspect_program, read_inputs):
        with pytest.raises(BlobError, match="too often"):
            read(data)
