"""Models as NVIDIA's modelopt quantizes them, with or without it.

Its export leaves one call of ``tensorrt::quantize_op`` for each tensor that it quantizes. Where
modelopt is not installed the operator is defined here, with the same schema. What it computes is
written down here once more, with torch's own 8-bit floats and fake quantization.
"""

from __future__ import annotations

import importlib.util

import torch
from torch import nn

E4M3 = torch.float8_e4m3fn


def define_operator() -> None:
    if importlib.util.find_spec("modelopt"):
        import modelopt.torch.quantization  # noqa: F401
    elif not hasattr(torch.ops.tensorrt, "quantize_op"):
        torch.library.define(
            "tensorrt::quantize_op",
            "(Tensor input, Tensor amax, int num_bits, int exponent_bits, bool unsigned, "
            "bool narrow_range) -> Tensor",
        )
        torch.library.register_fake("tensorrt::quantize_op", lambda x, *_: torch.empty_like(x))


define_operator()


def expected_fp8(x: torch.Tensor, amax: torch.Tensor) -> torch.Tensor:
    scale = 448 / amax.float()
    rounded = (x.float() * scale).clamp(-448, 448).to(E4M3)
    return (rounded.float() * (1 / scale)).to(x.dtype)


def expected_int(x: torch.Tensor, amax: torch.Tensor, bits: int = 8) -> torch.Tensor:
    high = 2 ** (bits - 1) - 1
    scale = amax.float() / high
    if amax.numel() == 1:
        return torch.fake_quantize_per_tensor_affine(x.float(), scale.item(), 0, -high - 1, high)
    zeros = torch.zeros(amax.numel(), dtype=torch.int32)
    axis = list(amax.shape).index(amax.numel())
    return torch.fake_quantize_per_channel_affine(
        x.float(), scale.flatten(), zeros, axis, -high - 1, high
    )


class Quantizer(nn.Module):
    """One of modelopt's quantizers, with the range that it found.

    Args:
        x: What it shall quantize well.
        bits: All bits of a number, and those of its exponent.
        channels: Whether each part along the first axis has a range of its own.
        dynamic: Whether the range is found anew for each input.
    """

    def __init__(
        self,
        x: torch.Tensor,
        bits: tuple[int, int] = (8, 4),
        *,
        channels: bool = False,
        dynamic: bool = False,
    ) -> None:
        super().__init__()
        self.bits, self.dynamic = bits, dynamic
        axes = list(range(1, x.dim())) if channels else list(range(x.dim()))
        self.register_buffer("amax", x.detach().abs().amax(axes, keepdim=channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        amax = x.abs().amax() if self.dynamic else self.amax.detach()
        if torch.compiler.is_exporting():
            return torch.ops.tensorrt.quantize_op(x, amax, *self.bits, False, False)
        return expected_fp8(x, amax) if self.bits[1] else expected_int(x, amax, self.bits[0])


class Quantized(nn.Module):
    def __init__(self, layer: nn.Module, x: torch.Tensor, weight_bits, input_bits) -> None:
        super().__init__()
        self.layer = layer
        self.input = Quantizer(x, input_bits)
        self.weight = Quantizer(layer.weight, weight_bits, channels=not weight_bits[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parameters = {"weight": self.weight(self.layer.weight), "bias": self.layer.bias}
        return torch.func.functional_call(self.layer, parameters, (self.input(x),))


class Blocks(nn.Module):
    """A linear layer, its weight quantized to 4 bits in blocks of its rows."""

    def __init__(self, width: int, block: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.block = block
        self.quantizer = Quantizer(self._blocks(), (4, 0), channels=True)

    def _blocks(self) -> torch.Tensor:
        return self.layer.weight.reshape(-1, self.block)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.quantizer(self._blocks()).reshape(self.layer.weight.shape)
        return nn.functional.linear(x, weight, self.layer.bias)


def fake_quantized(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    bits: tuple[int, int] = (8, 4),
    *,
    input_bits: tuple[int, int] | None = None,
) -> nn.Module:
    """The model with all of its linear layers and convolutions between quantizers."""
    seen: dict[str, torch.Tensor] = {}
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, (nn.Linear, nn.Conv2d))
    }
    for name, layer in layers.items():
        layer.register_forward_pre_hook(lambda _, args, name=name: seen.update({name: args[0]}))
    with torch.no_grad():
        model(*inputs)
    for name, layer in layers.items():
        layer._forward_pre_hooks.clear()
        owner = model.get_submodule(name.rpartition(".")[0])
        setattr(
            owner, name.rpartition(".")[2], Quantized(layer, seen[name], bits, input_bits or bits)
        )
    return model.eval()


def exported(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(model, inputs)
