"""Scales of activations become vectors, so that an engine holds the kernels of all layers once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.support.lowering import blobs, lower
from tests.support.mended import leave_out
from tests.support.models import Function
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.pt2e import quantize
from tests.support.programs.quantized_models import MODELS
from tests.support.programs.quantized_networks import needs_rtx
from trt_et.conversion.operators.quantization import ACTIVATION_SCALE
from trt_et.conversion.rewriting import rewrite
from trt_et.engine_info import decode_blob
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engine_program.program import unlift
from trt_et.engines import BuildOptions, BuildRequest

pytestmark = needs_rtx

LAYERS = 4
SCALE = 0.1
HOW = (SCALE, 0, -128, 127, torch.int8)

quantized = torch.ops.quantized_decomposed


def kernels(dtype: torch.dtype) -> Counter[bytes]:
    """The kernel sources of an engine of equal layers with different scales, by name."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(32, 32), nn.GELU())]
    program = quantize(nn.Sequential(*layers).to(dtype), (torch.randn(4, 32, dtype=dtype),))
    (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
    return Counter(re.findall(rb"__global__ void (\w+)", decode_blob(blob).engine))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_engine_holds_the_kernel_of_equal_layers_once(dtype):
    assert set(kernels(dtype).values()) == {1}


@pytest.mark.usefixtures("registry_is_put_back")
def test_otherwise_tensorrt_rtx_holds_it_for_each_layer():
    leave_out([ACTIVATION_SCALE.name])
    assert max(kernels(torch.float32).values()) == LAYERS - 1


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_are_the_same(name):
    torch.manual_seed(0)
    model, shape = MODELS[name]
    inputs = (torch.randn(shape),)
    program = quantize(model(), inputs).run_decompositions({})
    asked = BuildRequest("test", make_engine_program(program, "test"), 0, BuildOptions())
    assert compare(asked, *inputs).outcome == "equal"


def int8(x: torch.Tensor) -> torch.Tensor:
    steps = quantized.quantize_per_tensor.default(x, *HOW)
    return quantized.dequantize_per_tensor.default(steps, *HOW)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return int8(x * 2)


def pooled(x: torch.Tensor) -> torch.Tensor:
    """The first quantize layer has a vector; TensorRT pools the int8 numbers that it makes."""
    return int8(F.max_pool2d(doubled(x), 2))


def attended(x: torch.Tensor) -> torch.Tensor:
    """The kernel of an attention writes int8 numbers itself."""
    return int8((x @ x.transpose(1, 2)).transpose(1, 2).reshape(2, 9))


def constants(
    function: Callable[..., Any], shape: tuple[int, ...], sizes: dict[int, Any]
) -> tuple[list[float], list[tuple[int, ...]]]:
    """The scales by which a function quantizes after the rewrite, and the shapes of vectors."""
    inputs = (torch.randn(shape),)
    program = torch.export.export(Function(function), inputs, dynamic_shapes=((sizes,),))
    module = unlift(make_engine_program(program.run_decompositions({}), "test").exported)
    rewrite(module, ACTIVATION_SCALE)
    quantize = quantized.quantize_per_tensor.default
    calls = [node for node in module.graph.nodes if node.target is quantize]
    vectors = [tuple(vector.shape) for vector in module.buffers() if vector.dim()]
    return [call.args[1] for call in calls], vectors


def attended_by_sdpa(x: torch.Tensor) -> torch.Tensor:
    return int8(F.scaled_dot_product_attention(x, x, x).transpose(1, 2).reshape(2, 12))


def tiny(x: torch.Tensor) -> torch.Tensor:
    """The reciprocal of the scale is beyond float32."""
    how = (1e-39, 0, -128, 127, torch.int8)
    return quantized.dequantize_per_tensor.default(
        quantized.quantize_per_tensor.default(x * 2, *how), *how
    )


BATCH, WIDTH = Dim("batch", min=2, max=8), Dim("width", min=2, max=8)


@pytest.mark.parametrize(
    ("function", "shape", "sizes", "scales", "vectors"),
    [
        (doubled, (2, 3, 4), {}, [1.0], [(1, 1, 4)]),
        (doubled, (2, 3, 1), {}, [1.0], [(1, 3, 1)]),
        (doubled, (2, 3, 4), {0: BATCH, 2: WIDTH}, [1.0], [(1, 3, 1)]),
        (doubled, (2, 4), {0: BATCH, 1: WIDTH}, [SCALE], []),
        (doubled, (1, 1), {}, [SCALE], []),
        (pooled, (2, 3, 4, 4), {}, [1.0, SCALE], [(1, 1, 1, 4)]),
        (attended, (2, 3, 4), {}, [SCALE], []),
        (attended_by_sdpa, (2, 1, 3, 4), {}, [SCALE], []),
        (tiny, (2, 3, 4), {}, [1e-39], []),
    ],
)
def test_the_vector_is_along_the_last_axis_of_a_known_size(function, shape, sizes, scales, vectors):
    found, shapes = constants(function, shape, sizes)
    assert found == pytest.approx(scales)
    assert shapes == vectors


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_scales_are_float32_whatever_the_default_dtype_is(dtype, monkeypatch):
    asked = torch.export.export(Function(doubled), (torch.randn(2, 3, 4),)).run_decompositions({})
    request = BuildRequest("test", make_engine_program(asked, "test"), 0, BuildOptions())
    torch.set_default_dtype(dtype)
    try:
        assert compare(request).outcome == "equal"
    finally:
        torch.set_default_dtype(torch.float32)
