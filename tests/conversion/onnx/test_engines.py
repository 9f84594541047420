"""What TensorRT-RTX makes of a payload, next to what it would make of plainer operators."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.support.lowering import lower
from tests.support.models import Function
from tests.support.onnx.comparison import HAS_PARSER, rtx
from tests.support.onnx.payloads import of_program
from trt_et.inspection import EngineKernels, read_kernels

pytestmark = pytest.mark.skipif(not HAS_PARSER, reason="tensorrt-rtx is not installed")


def kernels_of(model: onnx.ModelProto) -> EngineKernels:
    trt, logger, builder = rtx()
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(model.SerializeToString()), parser.get_error(0).desc()
    engine = builder.build_serialized_network(network, builder.create_builder_config())
    kernels = read_kernels(bytes(engine))
    assert kernels is not None
    return kernels


class Excited(nn.Module):
    """Channels of an image, scaled by what they are on average."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convolutions(x)
        y = y * y.mean((2, 3), keepdim=True).sigmoid()
        return self.head(y.mean((2, 3)))


def with_reduce_mean(model: onnx.ModelProto) -> onnx.ModelProto:
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    plain.graph.initializer.append(
        onnx.helper.make_tensor("image", onnx.TensorProto.INT64, [2], [2, 3])
    )
    for node in plain.graph.node:
        if node.op_type == "AveragePool":
            node.op_type = "ReduceMean"
            node.input.append("image")
            del node.attribute[:]
    return plain


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_mean_of_an_image_reads_and_writes_less_than_a_reduce_mean(dtype):
    module = Excited().eval().requires_grad_(False).to(dtype)
    program = torch.export.export(module, (torch.randn(1, 3, 64, 64, dtype=dtype),))
    (payload,) = of_program(lower(program, builder="onnx"))
    model = payload.with_weights()
    ours, plain = kernels_of(model), kernels_of(with_reduce_mean(model))
    assert len(ours.kernels) < len(plain.kernels)
    assert ours.bytes_moved < 0.9 * plain.bytes_moved


def test_a_mean_of_an_image_in_bfloat16_is_built():
    module = Excited().eval().requires_grad_(False).bfloat16()
    program = torch.export.export(module, (torch.randn(1, 3, 64, 64).bfloat16(),))
    (payload,) = of_program(lower(program, builder="onnx"))
    assert "AveragePool" in {node.op_type for node in payload.proto.graph.node}
    assert kernels_of(payload.with_weights())


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_products_and_a_softmax_become_the_kernel_of_the_attention_layer(options):
    heads = [torch.randn(2, 4, 96, 64).half() for _ in range(3)]
    model = Function(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **options))
    program = torch.export.export(model, tuple(heads))
    (payload,) = of_program(lower(program, builder="onnx"))
    names = [kernel.name for kernel in kernels_of(payload.with_weights()).kernels]
    assert sum("mha" in name for name in names) == 1, names
