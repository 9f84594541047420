"""Small models, quantized by the PT2E flow as ExecuTorch's users do it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torch.nn import functional
from torchao.quantization.pt2e import MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationSpec

Inputs = tuple[torch.Tensor, ...]


class Residual(nn.Module):
    """Convolutions, a sum of two branches, pooling before a convolution, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 2)
        x = torch.relu(self.inner(x) + x)
        return self.head(self.depthwise(x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).reshape(batch, length, 3, 4, width // 4)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Mlp(nn.Sequential):
    def __init__(self, width: int = 16) -> None:
        super().__init__(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))


MODELS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (2, 3, 16, 16)),
    "block": (Block, (2, 5, 32)),
    "mlp": (Mlp, (4, 16)),
}


def _symmetric(dtype: torch.dtype, low: int, high: int) -> QuantizationSpec:
    observer, scheme = MinMaxObserver.with_args(eps=2**-12), torch.per_tensor_symmetric
    return QuantizationSpec(dtype, observer, quant_min=low, quant_max=high, qscheme=scheme)


def quantize(
    model: nn.Module,
    inputs: Inputs,
    *,
    symmetric: bool = True,
    per_channel: bool = True,
    dynamic: bool = False,
    fp8: bool = False,
) -> torch.export.ExportedProgram:
    """A quantized program.

    Args:
        model: In eval mode.
        inputs: Calibrated with these, and with two more like them.
        symmetric: Whether zero points of activations are 0; those of weights are.
        per_channel: Whether weights have a scale for each channel.
        dynamic: Whether activations get their scales when the program runs.
        fp8: Whether it is 8-bit floats that activations and weights are quantized to.
    """
    config = get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=dynamic)
    if symmetric and not dynamic:
        spec = _symmetric(torch.int8, -128, 127)
        config = replace(config, input_activation=spec, output_activation=spec)
    if fp8:
        spec = _symmetric(torch.float8_e4m3fn, -448, 448)
        config = replace(config, input_activation=spec, output_activation=spec, weight=spec)
    exported = torch.export.export(model, inputs).module()
    prepared = prepare_pt2e(exported, XNNPACKQuantizer().set_global(config))
    for scale in (1.0, 0.5, -1.0):
        prepared(*(tensor * scale for tensor in inputs))
    return torch.export.export(convert_pt2e(prepared), inputs)


@cache
def quantized(
    name: str, *, symmetric: bool = True, per_channel: bool = True
) -> tuple[torch.export.ExportedProgram, Inputs]:
    """The quantized program of that name and its inputs; the same ones every time."""
    torch.manual_seed(0)
    model, shape = MODELS[name]
    inputs = (torch.randn(shape),)
    program = quantize(model().eval(), inputs, symmetric=symmetric, per_channel=per_channel)
    return program, inputs
