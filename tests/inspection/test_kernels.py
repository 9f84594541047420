"""The kernels of TensorRT-RTX engines, and of texts that are not what TensorRT-RTX writes."""

from __future__ import annotations

import random
import time

import pytest
import torch

from tests.support.kernel_texts import ADD, HEADER, TENSORS, engine, frame, text
from tests.support.lowering import finish
from tests.support.models import Function
from trt_et import TensorRTPartitioner
from trt_et.blob.codec import decode_blob
from trt_et.inspection import EngineKernels, inspect_program, read_kernels

FUSION = """fully_connected={ name="[MATRIX_MULTIPLY]-[aten_ops.linear.default]-[linear_7_mm]" }
  relu={ name="[RELU]-[aten_ops.relu.default]-[relu_2]" }"""
LAUNCH = 'runtime_fusion={ name=__myl_FcRelu input_args={ "x.1" "weight" } '
LAUNCH += 'output_args={ "y.1" } binary=0 }'


class Perceptron(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.nn.functional.gelu(self.first(x))) + x


def built(module: torch.nn.Module, *args: torch.Tensor, dynamic: object = None) -> bytes:
    """Return the engine that TensorRT-RTX builds of a module."""
    exported = torch.export.export(module.eval(), args, dynamic_shapes=dynamic)
    pte = finish(exported, TensorRTPartitioner(builder="tensorrt_rtx")).buffer
    (delegate,) = inspect_program(pte)[0].delegates
    return bytes(decode_blob(delegate.blob).engine)


def kernels_of(*args: object, **kwargs: object) -> EngineKernels:
    """Return the kernels of a hand-made program with these parts."""
    found = read_kernels(engine([frame(text(*args, **kwargs))]))
    assert found is not None
    return found


def test_kernels_of_a_built_engine_have_operators_nodes_and_bytes():
    """This fails if a new version of TensorRT-RTX writes another text."""
    found = read_kernels(built(Perceptron(), torch.randn(4, 16)))
    assert found is not None
    first, second = found.kernels
    assert first.operators == ("matmul", "add", "div", "erf", "add", "mul", "mul")
    assert second.operators == ("matmul", "add", "add")
    assert first.nodes == ("linear_0", "gelu_0")
    assert second.nodes == ("linear_1", "add_0")
    x, hidden = 4 * 16 * 4, 4 * 32 * 4
    weights = 16 * 32 * 4
    assert (first.bytes_read, first.bytes_written) == (x, hidden)
    assert (second.bytes_read, second.bytes_written) == (hidden + x, x)
    assert (first.constant_bytes, second.constant_bytes) == (weights + 32 * 4, weights + 16 * 4)
    assert found.traffic == 2 * (x + hidden) + x
    assert found.constant_bytes == 2 * weights + 32 * 4 + 16 * 4
    assert found.activation_memory > hidden


def test_a_kernel_from_cuda_source_is_read_from_a_built_engine():
    found = read_kernels(built(Function(lambda x: torch.relu(x + 1) * 2), torch.randn(8, 8)))
    assert found is not None
    (kernel,) = found.kernels
    assert kernel.kind == "function"
    assert {"add", "relu", "mul"} <= set(kernel.operators)
    assert (kernel.bytes_read, kernel.bytes_written) == (256, 256)
    assert (found.sources, found.distinct_sources) == (1, 1)


def test_dynamic_sizes_have_no_bytes_but_constants():
    size = torch.export.Dim("size", min=1, max=8)
    found = read_kernels(built(Perceptron(), torch.randn(4, 16), dynamic=({0: size},)))
    assert found is not None
    assert found.kernels
    assert all(kernel.bytes_read is None for kernel in found.kernels)
    assert all(kernel.bytes_written is None for kernel in found.kernels)
    assert found.traffic is None
    assert found.bytes_moved is None
    assert found.constant_bytes >= 2 * 16 * 32 * 4


def test_a_hand_made_program_is_read():
    found = kernels_of()
    (kernel,) = found.kernels
    assert (kernel.kind, kernel.name, kernel.operators) == ("function", "__myl_Add", ("add",))
    assert (kernel.bytes_read, kernel.bytes_written, kernel.constant_bytes) == (256, 128, 64)
    assert kernel.bytes_moved == 448
    assert found.activation_memory == 1024


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"vtrt",
        b"vtrt" + bytes(100),
        engine([]),
        engine(magic=b"ftrt"),
        engine([text().encode()]),
        engine([frame(text(), magic=b"MLYN")]),
        engine([frame(text(), size=1 << 63)]),
        engine([frame(text(), size=3)]),
        engine()[:-200],
        engine([frame(text(header=HEADER.replace("5", "6")))]),
        engine([frame(text(header=HEADER.replace("5", "4")))]),
        engine([frame(text(header="region = { size=1 }"))]),
        engine([frame(text()), frame(text())]),
        engine([frame(text(FUSION, header="version = 4")), frame(text())]),
        engine([frame(text(main='launch={ name="unknown" results={ "y.1" } }'))]),
        engine([frame(text(header=HEADER.replace("1024", "all")))]),
        engine([frame(text(header=HEADER.replace("1024", "-1024")))]),
        engine([frame(text(header=HEADER.replace("1024", "9" * 5000)))]),
        engine([frame(text().replace("descriptors", "tensors"))]),
        engine([frame(text().replace("main {", "main ["))]),
        engine([frame(text(main=ADD.rstrip("}")))]),
        engine([frame(text(main="function=__myl_Add"))]),
        engine([frame(text(main="= 1"))]),
        engine([frame(text(main="add=={ }"))]),
        engine([frame(text(main='add={ name="__myl_Add }'))]),
        engine([frame(text(main="add={ " * 5000))]),
        engine([frame(text(tensors='sub_tensor={ base="gone" dims={ 4 } name="x" }'))]),
        engine([frame(text(tensors=TENSORS.replace("const_payload_size=64", "rank=1")))]),
        engine([frame(text(tensors=TENSORS.replace("payload_size=64", "payload_size=0")))]),
        engine([frame(text(tensors=TENSORS.replace('"devmem"', '"other"')))]),
        engine([frame(text(tensors=TENSORS.replace("dims={ 4 16 }", "")))]),
        engine([frame(text(tensors=TENSORS.replace("{ 4 16 }", "{ n=4 16 }")))]),
        engine([frame(text(header=HEADER.replace("place=accelerator", "place=elsewhere")))]),
        engine([frame(text()), b"header {\n  version = 5\n}"]),
        engine([frame("header {\n")]),
        b"PK\x03\x04 an archive" * 100,
    ],
)
def test_what_is_not_a_known_text_has_no_kernels(data):
    assert read_kernels(data) is None


def test_an_engine_that_is_cut_anywhere_has_no_kernels():
    whole = engine([frame(text(LAUNCH)), frame(text(FUSION, header="version = 4"))])
    assert read_kernels(whole) is not None
    assert not any(read_kernels(whole[:end]) for end in range(len(whole)))


def test_changed_bytes_never_raise():
    whole = engine([frame(text(LAUNCH)), frame(text(FUSION, header="version = 4"))])
    chosen = random.Random(0)
    for _ in range(2_000):
        mutant = bytearray(whole)
        for _ in range(chosen.randint(1, 3)):
            mutant[chosen.randrange(len(mutant))] = chosen.choice(b'\x00\xff{}="9a \n')
        read_kernels(bytes(mutant))


def test_more_text_than_an_engine_has_is_not_read(monkeypatch):
    monkeypatch.setattr("trt_et.inspection.kernel_text._MOST_TEXT", len(text()))
    assert read_kernels(engine()) is not None
    monkeypatch.setattr("trt_et.inspection.kernel_text._MOST_TEXT", len(text()) - 1)
    assert read_kernels(engine()) is None


def test_what_follows_an_engine_is_not_read():
    assert read_kernels(engine() + frame(text())) == read_kernels(engine())


def test_an_engine_in_a_view_is_read():
    assert read_kernels(memoryview(engine())) == read_kernels(engine())


def test_signals_jumps_and_the_hosts_arithmetic_are_no_kernels():
    found = kernels_of(
        'memset={ name="init" output={"flag" } src="1b" stream=0 }\n'
        '  copy={ name="to_host" output={"flag" } input={"x.1" } speculate={ }}\n'
        '  cjmp={ name="branch" input={"flag" } target={bb1 bb2 } }\n label bb2: \n'
        f"  {ADD}\n" + '  signal={ name="done" stream=1 event=2 }\n'
    )
    assert [kernel.kind for kernel in found.kernels] == ["function"]


def test_a_fill_of_gpu_memory_is_a_launch():
    found = kernels_of('memset={ name="init" output={"y.1" } src="0" stream=0 }')
    assert [(k.kind, k.operators, k.bytes_written) for k in found.kernels] == [
        ("memset", ("memset",), 128)
    ]


def test_a_tensor_that_a_kernel_names_twice_counts_once():
    twice = ADD.replace('{ "x.1" "weight" }', '{ "x.1" "x.1" "weight" "weight" }')
    assert kernels_of(twice).kernels == kernels_of().kernels


def test_numbers_that_the_host_passes_are_not_read_from_the_gpus_memory():
    passed = ADD.replace('"x.1" "weight"', '"x.1" "weight" "flag"')
    assert kernels_of(passed).kernels == kernels_of().kernels


def test_views_count_as_what_they_show():
    views = """
  sub_tensor={ base="x.1" dims={ 4 8 } name="half" strides={ 16 1 } type=float }
  sub_tensor={ base="weight" dims={ 4 16 } name="repeated" strides={ 0 1 } type=float }"""
    main = ADD.replace('{ "x.1" "weight" }', '{ "half" "repeated" }')
    (kernel,) = kernels_of(main, TENSORS + views).kernels
    assert (kernel.bytes_read, kernel.constant_bytes) == (4 * 8 * 4, 64)


def test_a_tensor_of_an_unknown_type_has_no_bytes():
    (kernel,) = kernels_of(tensors=TENSORS.replace("type=half", "type=fp2")).kernels
    assert (kernel.bytes_read, kernel.bytes_written) == (256, None)


def test_a_tensor_that_is_not_described_has_no_bytes():
    (kernel,) = kernels_of(ADD.replace('"x.1"', '"z.1"')).kernels
    assert (kernel.bytes_read, kernel.constant_bytes) == (None, 64)


def test_kernels_of_one_source_count_once_among_the_distinct_ones():
    found = kernels_of(f"{ADD}\n  {ADD}\n  {ADD.replace('0x1', '0x2')}")
    assert (len(found.kernels), found.sources, found.distinct_sources) == (3, 3, 2)


def fused(header: str) -> EngineKernels:
    fusion = frame(text(FUSION, header=f"version = 4\n  {header}"))
    found = read_kernels(engine([frame(text(LAUNCH)), fusion]))
    assert found is not None
    return found


def test_a_fusion_names_the_nodes_that_it_computes():
    (kernel,) = fused('inputs={ "x.1" "weight" }\n outputs={ "y.1" }').kernels
    assert kernel.operators == ("matmul", "relu")
    assert kernel.nodes == ("linear_7", "relu_2")


def test_a_fusion_with_other_ends_is_not_taken_for_the_kernels_own():
    (kernel,) = fused('inputs={ "x.1" }\n outputs={ "y.1" }').kernels
    assert kernel.operators == ("matmul", "relu")  # Its name says so.
    assert kernel.nodes == ()


@pytest.mark.parametrize(
    ("output", "nodes"),
    [
        ("[SHUFFLE]-[aten_ops.permute.default]-[permute_4]_output.1", ("permute_4",)),
        ("native_layer_norm_0_layer_norm_normalization.1", ("native_layer_norm_0",)),
        ("[CONVOLUTION]-[aten_ops.convolution.default]-[convolution_1]_output.1_3", ()),
        ("node_linear_0_output.1", ("linear_0",)),
        ("__myln_k_arg__bb1_2", ()),
        ("(Unnamed Layer* 3) [Softmax]_output.1", ()),
        ("output0.1", ()),
    ],
)
def test_an_output_names_its_node_unless_it_is_another_layout_of_a_value(output, nodes):
    tensors = TENSORS.replace('"y.1"', f'"{output}"')
    (kernel,) = kernels_of(ADD.replace('"y.1"', f'"{output}"'), tensors).kernels
    assert kernel.nodes == nodes


def test_a_large_engine_is_passed_over_quickly():
    data = engine([frame(text()), bytes(100 << 20)])
    start = time.process_time()
    assert read_kernels(memoryview(data)) is not None
    assert time.process_time() - start < 2


@pytest.mark.parametrize("unit", ["NLYM", "header {", '"', "{", "[a]-[", "a_1"])
def test_repeated_pieces_take_no_forever(unit):
    name = unit * (1 << 18)  # A megabyte or more: it would take minutes if it were quadratic.
    data = engine([frame(text(f'add={{ name="{name}" output={{ "y.1" }} }}')), name.encode()])
    start = time.process_time()
    read_kernels(data)
    assert time.process_time() - start < 5
