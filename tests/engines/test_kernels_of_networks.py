"""Our engines move no more bytes in no more kernels than those of TensorRT-RTX's own ONNX parser.

Both are built here, from one program. A case that fails has lost what its operator's file says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.programs.pt2e import quantize
from tests.support.programs.quantized_networks import needs_rtx
from tests.support.sampled import sampled
from trt_et.engine_info import decode_blob
from trt_et.inspection import EngineKernels, read_kernels

pytestmark = needs_rtx
MORE = 1.03


@dataclass
class Case:
    """A model in half precision, and its inputs."""

    model: nn.Module | Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    dynamic_shapes: Any = None

    def program(self, dtype: torch.dtype = torch.float16) -> torch.export.ExportedProgram:
        model = self.model if isinstance(self.model, nn.Module) else Function(self.model)
        inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in self.inputs)
        return torch.export.export(
            model.eval().to(dtype), inputs, dynamic_shapes=self.dynamic_shapes
        )


class Excited(nn.Module):
    """An inverted residual of MobileNet: batch norms, hard activations, a pool between products."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Sequential(
            *(nn.Conv2d(16, 48, 1, bias=False), nn.BatchNorm2d(48), nn.Hardswish(inplace=True)),
            nn.Conv2d(48, 48, 5, padding=2, groups=48, bias=False),
            *(nn.BatchNorm2d(48), nn.Hardswish(inplace=True)),
        )
        self.gate = nn.Sequential(
            *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(48, 16, 1), nn.ReLU()),
            *(nn.Conv2d(16, 48, 1), nn.Hardsigmoid()),
        )
        self.after = nn.Sequential(nn.Conv2d(48, 16, 1, bias=False), nn.BatchNorm2d(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        return x + self.after(y * self.gate(y))


class Cached(nn.Module):
    """Attention of new tokens to a cache of keys and values, up to each token's position."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, cache: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query = self.inner(x).unflatten(-1, (2, 32)).transpose(1, 2)
        y = F.scaled_dot_product_attention(query, cache, cache, mask)
        return self.outer(y.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    """A block of a diffusion model's U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, 32) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(16, 32)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.convolutions[0](F.silu(self.norms[0](x)))
        h = h + self.time(F.silu(y))[:, :, None, None]
        return x + self.convolutions[1](F.silu(self.norms[1](h)))


class Attention(nn.Module):
    """Attention of a transformer, with a causal mask or one from outside."""

    def __init__(self, *, is_causal: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 192), nn.Linear(64, 64)
        self.is_causal = is_causal

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        parts = self.inner(x).unflatten(-1, (3, 2, 32)).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(*parts, mask, is_causal=self.is_causal)
        return self.outer(y.transpose(1, 2).flatten(2))


def with_zeros(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """Give a layer the bias of a layer that was not trained; exporters to ONNX drop it."""
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def norm_and_relu(width: int) -> list[nn.Module]:
    return [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]


IMAGE, TOKENS, MATRICES = torch.rand(1, 16, 28, 28), torch.rand(1, 48, 64), torch.rand(4, 32, 32)
CASES = {
    **{
        function.__name__: Case(function, (IMAGE,))
        for function in (F.silu, F.hardswish, F.mish, F.logsigmoid)
    },
    "biases of zeros": Case(
        nn.Sequential(
            *(with_zeros(nn.Conv2d(16, 16, 3)), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            *(nn.LayerNorm(16), with_zeros(nn.Linear(16, 8))),
        ),
        (IMAGE,),
    ),
    "a hard activation in place": Case(
        nn.Sequential(nn.Conv2d(16, 16, 1), nn.Hardswish(inplace=True)), (IMAGE,)
    ),
    "baddbmm": Case(lambda x: torch.baddbmm(x, x, x, alpha=0.125), (MATRICES,)),
    "instance norms": Case(nn.InstanceNorm2d(16, affine=True), (IMAGE,)),
    "a mean of an image": Case(nn.AdaptiveAvgPool2d(1), (IMAGE,)),
    "a maximum of an image": Case(nn.AdaptiveMaxPool2d(1), (IMAGE,)),
    "a maximum of a convolution": Case(
        nn.Sequential(
            *(nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Conv2d(16, 8, 1))
        ),
        (IMAGE,),
    ),
    "a window of a whole image": Case(nn.MaxPool2d(28), (IMAGE,)),
    "batch norms": Case(nn.Sequential(*norm_and_relu(16), *norm_and_relu(16)), (IMAGE,)),
    "a convolution that is padded before": Case(
        nn.Sequential(
            *(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(16, 16, 3, 2, groups=16), nn.ReLU6()),
            *(nn.ConstantPad2d((1, 1, 2, 0), 0.0), nn.Conv2d(16, 8, 3)),
        ),
        (IMAGE,),
    ),
    "squeeze and excite": Case(nn.Sequential(*(Excited() for _ in range(2))), (IMAGE,)),
    "a U-Net's block": Case(Residual(), (torch.rand(1, 32, 16, 16), torch.rand(1, 16))),
    "attention": Case(Attention(), (TOKENS,)),
    "causal attention": Case(Attention(is_causal=True), (TOKENS,)),
    "masked attention": Case(Attention(), (TOKENS, torch.rand(1, 1, 48, 48))),
    "attention of some keys": Case(Attention(), (TOKENS, torch.ones(1, 1, 48, 48).bool())),
}
BATCH, LENGTH = Dim("batch", min=1, max=8), Dim("length", min=2, max=64)


class Computed(Attention):
    """Attention with a mask that no input but the size changes, as BERT computes it."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        tokens = torch.arange(x.shape[1])[None, None, :, None]
        return super().forward(x, (tokens >= 0).expand(x.shape[0], 1, x.shape[1], x.shape[1]))


# With dynamic sizes no bytes are known.
SIZES = {0: BATCH, 1: LENGTH}
DYNAMIC = {
    "attention, a batch": Case(Attention(), (torch.rand(2, 48, 64),), ({0: BATCH},)),
    "attention, two sizes": Case(Attention(), (torch.rand(2, 48, 64),), (SIZES,)),
    "causal attention, two sizes": Case(
        Attention(is_causal=True), (torch.rand(2, 48, 64),), (SIZES,)
    ),
    "a mask of sizes": Case(Computed(), (torch.rand(2, 48, 64),), {"x": SIZES}),
    "a mask of keys": Case(
        Attention(),
        (torch.rand(2, 48, 64), torch.ones(2, 1, 1, 48).bool()),
        (SIZES, {0: BATCH, 3: LENGTH}),
    ),
    "a float mask": Case(
        Attention(),
        (torch.rand(2, 48, 64), torch.rand(2, 1, 48, 48)),
        (SIZES, {0: BATCH, 2: LENGTH, 3: LENGTH}),
    ),
    "a cache": Case(
        Cached(),
        (torch.rand(1, 4, 64), torch.rand(1, 2, 96, 32), torch.ones(1, 1, 4, 96).bool()),
        {"x": {1: LENGTH}, "cache": None, "mask": {2: LENGTH}},
    ),
}
# Cases that also have to keep to the half model's bytes if float32 models compute in float16.
ROUNDED = {"squeeze and excite": 1.2, "a U-Net's block": 1.5}


def kernels(engine: bytes) -> EngineKernels:
    found = read_kernels(engine)
    assert found is not None, "TensorRT-RTX writes another text: see trt_et/inspection/kernels.py"
    return found


def ours(program: torch.export.ExportedProgram, **options: Any) -> EngineKernels:
    (blob,) = blobs(lower(program, builder="tensorrt_rtx", **options))
    return kernels(decode_blob(blob).engine)


def by_the_parser(case: Case) -> EngineKernels:
    import tensorrt_rtx as trt

    inputs = tuple(x.half() if x.is_floating_point() else x for x in case.inputs)
    model = torch.onnx.export(case.program(), inputs, dynamo=True, verbose=False).model_proto
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(model.SerializeToString()), parser.get_error(0).desc()
    config = builder.create_builder_config()
    config.add_optimization_profile(profile_of(case, network, builder))
    return kernels(bytes(builder.build_serialized_network(network, config)))


def profile_of(case: Case, network: Any, builder: Any) -> Any:
    """The profile of up to the largest dynamic sizes, best at those of the inputs."""
    profile = builder.create_optimization_profile()
    for index, example in enumerate(case.inputs):
        given = network.get_input(index)
        sizes = [
            (1, size, 64) if known == -1 else (known,) * 3
            for known, size in zip(given.shape, example.shape, strict=True)
        ]
        if -1 in given.shape:
            profile.set_shape(given.name, *zip(*sizes, strict=True))
    return profile


@pytest.mark.parametrize("name", sampled(DYNAMIC, 8))
def test_attention_of_dynamic_sizes_has_no_more_kernels_than_the_parsers(name):
    have, want = ours(DYNAMIC[name].program()), by_the_parser(DYNAMIC[name])
    assert len(have.kernels) <= len(want.kernels), f"ours: {have}; the parser's: {want}"


def assert_no_more(have: EngineKernels, want: EngineKernels) -> None:
    text = f"ours: {have}; the parser's: {want}"
    assert len(have.kernels) <= len(want.kernels), text
    assert have.bytes_moved is not None
    assert want.bytes_moved is not None
    assert have.bytes_moved <= MORE * want.bytes_moved, text
    assert have.activation_memory <= 1.05 * want.activation_memory, text


@pytest.mark.parametrize("name", sampled(CASES, 3))
def test_an_engine_is_no_worse_than_the_parsers(name):
    assert_no_more(ours(CASES[name].program()), by_the_parser(CASES[name]))


@pytest.mark.parametrize("name", sampled(ROUNDED, 2))
def test_float16_of_a_float32_model_moves_about_the_bytes_of_a_half_model(name):
    rounded = ours(CASES[name].program(torch.float32), precision="float16")
    half = by_the_parser(CASES[name])
    assert rounded.bytes_moved is not None
    assert half.bytes_moved is not None
    assert rounded.bytes_moved <= ROUNDED[name] * half.bytes_moved, f"{rounded}; half: {half}"


def test_an_attention_in_half_precision_keeps_its_kernel_beside_int8_layers():
    model = nn.Sequential(nn.LayerNorm(64), Attention()).half().requires_grad_(False)
    engine = ours(quantize(model, (TOKENS.half(),)))
    assert [kernel.kind for kernel in engine.kernels if "_mha_" in kernel.name] == ["function"]
