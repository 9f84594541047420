"""One operator in a network of its own, by ours and by the ONNX parser: what differs by over 5 %.

``python -m benchmarks.engines.operators [NAME ...]`` prints it; all take half an hour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.aot.processes import run
from benchmarks.engines.goals import TASKS, figure_of
from benchmarks.engines.models import Model
from tests.support.markdown import table

_WAYS = ("ours", "onnx_parser")
_DIFFERENCE = 1.05
_AT_ONCE = 8  # Networks of a process.
DTYPES = ("float16", "float32")

Call = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _image() -> torch.Tensor:
    return torch.rand(2, 32, 28, 28) + 0.1


def _tokens() -> torch.Tensor:
    return torch.randn(2, 96, 128)


def _ranks() -> torch.Tensor:
    """Rows without equal values, whose order could be another."""
    return torch.rand(2, 96, 128).argsort(-1).float()


def _heads(length: int = 96, heads: int = 4) -> torch.Tensor:
    return torch.randn(2, heads, length, 64)


_POINTWISE: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "ceil", "cos", "cosh", "erf"),
            *("exp", "exp2", "expm1", "floor", "isinf", "isnan", "log", "log10", "log1p", "log2"),
            *("logical_not", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin"),
            *("sinh", "sqrt", "square", "tan", "tanh", "trunc", "frac", "isfinite"),
        )
    },
    **{
        name: getattr(functional, name)
        for name in (
            *("celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu"),
            *("logsigmoid", "mish", "relu", "relu6", "selu", "silu", "softplus", "softsign"),
            *("tanhshrink", "hardshrink", "softshrink"),
        )
    },
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "threshold": lambda x: functional.threshold(x, 0.2, 0.1),
    "clamp": lambda x: x.clamp(0.2, 0.8),
    "clamp_min": lambda x: x.clamp(min=0.2),
    "add_scalar": lambda x: x + 1.5,
    "rsub_scalar": lambda x: 1.0 - x,
    "mul_scalar": lambda x: x * 0.7,
    "div_scalar": lambda x: x / 3.0,
    "pow_scalar": lambda x: x**2.5,
    "pow_2": lambda x: x**2,
    "scalar_pow": lambda x: torch.pow(2.0, x),
    "remainder_scalar": lambda x: torch.remainder(x, 0.3),
    "fmod_scalar": lambda x: torch.fmod(x, 0.3),
    "floor_divide": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "gt_scalar": lambda x: x > 0.5,
    "eq_scalar": lambda x: x == 0.5,
    "where_scalar": lambda x: torch.where(x > 0.5, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, -1.0),
    "nan_to_num": torch.nan_to_num,
    "to_float": lambda x: x.float() * 2,
    "to_half": lambda x: x.half() * 2,
    "to_int32": lambda x: x.to(torch.int32),
    "glu": lambda x: functional.glu(x, 1),
}
_PAIRS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "fmod"),
            *("remainder", "eq", "ge", "gt", "le", "lt", "ne", "hypot", "logaddexp"),
        )
    },
    "add_alpha": lambda x, y: torch.add(x, y, alpha=0.5),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "logical_and": lambda x, y: torch.logical_and(x > 0.5, y > 0.5),
    "where": lambda x, y: torch.where(x > y, x, y),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "cosine_similarity": lambda x, y: functional.cosine_similarity(x, y, 1),
    "mse_loss": functional.mse_loss,
}
_OF_IMAGES: dict[str, Callable[..., Any]] = {
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 2),
    "avg_pool2d_padded": lambda x: functional.avg_pool2d(x, 3, 2, 1),
    "avg_pool2d_without_padding": lambda x: functional.avg_pool2d(
        x, 3, 2, 1, count_include_pad=False
    ),
    "max_pool2d": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "max_pool2d_indices": lambda x: functional.max_pool2d(x, 2, return_indices=True),
    "adaptive_avg_pool2d_1": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "adaptive_avg_pool2d_7": lambda x: functional.adaptive_avg_pool2d(x, 7),
    "adaptive_avg_pool2d_3": lambda x: functional.adaptive_avg_pool2d(x, 3),
    "adaptive_max_pool2d_1": lambda x: functional.adaptive_max_pool2d(x, 1),
    "conv2d": nn.Conv2d(32, 48, 3, padding=1),
    "conv2d_1x1": nn.Conv2d(32, 48, 1),
    "conv2d_depthwise": nn.Conv2d(32, 32, 3, padding=1, groups=32),
    "conv2d_grouped": nn.Conv2d(32, 64, 3, padding=1, groups=4),
    "conv2d_stride": nn.Conv2d(32, 48, 3, 2, 1, bias=False),
    "conv2d_batch_norm_relu": nn.Sequential(
        nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU()
    ),
    "conv2d_silu": nn.Sequential(nn.Conv2d(32, 48, 3, padding=1), nn.SiLU()),
    "conv2d_hardswish": nn.Sequential(nn.Conv2d(32, 48, 3, padding=1), nn.Hardswish()),
    "conv2d_gelu": nn.Sequential(nn.Conv2d(32, 48, 3, padding=1), nn.GELU()),
    "conv2d_leaky_relu": nn.Sequential(nn.Conv2d(32, 48, 3, padding=1), nn.LeakyReLU(0.1)),
    "conv2d_prelu": nn.Sequential(nn.Conv2d(32, 48, 3, padding=1), nn.PReLU(48)),
    "conv_transpose2d": nn.ConvTranspose2d(32, 16, 2, 2),
    "batch_norm": nn.BatchNorm2d(32),
    "group_norm": nn.GroupNorm(8, 32),
    "group_norm_silu": nn.Sequential(nn.GroupNorm(8, 32), nn.SiLU()),
    "instance_norm": nn.InstanceNorm2d(32, affine=True),
    "layer_norm_channels": lambda x: functional.layer_norm(x.permute(0, 2, 3, 1), (32,)),
    "local_response_norm": nn.LocalResponseNorm(5),
    "prelu": nn.PReLU(32),
    "pad_constant": lambda x: functional.pad(x, (1, 1, 1, 1)),
    "pad_reflect": lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pad_replicate": lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"),
    "pad_circular": lambda x: functional.pad(x, (1, 1, 1, 1), mode="circular"),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: functional.channel_shuffle(x, 4),
    "interpolate_nearest": lambda x: functional.interpolate(x, scale_factor=2.0),
    "interpolate_bilinear": lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "interpolate_bicubic": lambda x: functional.interpolate(x, scale_factor=2.0, mode="bicubic"),
    "unfold": lambda x: functional.unfold(x, 3, padding=1),
    "mean_spatial": lambda x: x.mean((2, 3)),
    "mean_spatial_kept": lambda x: x.mean((2, 3), keepdim=True),
    "permute": lambda x: x.permute(0, 2, 3, 1).contiguous(),
    "flatten_transpose": lambda x: x.flatten(2).transpose(1, 2).contiguous(),
    "flip": lambda x: x.flip(3),
    "roll": lambda x: x.roll((3, 3), (2, 3)),
    "slice": lambda x: x[:, 4:20, ::2].contiguous(),
    "chunk": lambda x: torch.cat(x.chunk(4, 1)[::-1], 1),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "squeeze_excite": lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(),
}


def _reductions() -> dict[str, Callable[..., Any]]:
    along = ("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "softmax", "log_softmax")
    more = ("cumsum", "logsumexp", "var", "std", "all", "any")
    return {name: lambda x, name=name: getattr(torch, name)(x, dim=-1) for name in (*along, *more)}


_OF_TOKENS: dict[str, Callable[..., Any]] = {
    **_reductions(),
    "max_dim": lambda x: tuple(x.max(-1)),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "normalize": lambda x: functional.normalize(x, dim=-1),
    "layer_norm": nn.LayerNorm(128),
    "rms_norm": nn.RMSNorm(128),
    "linear": nn.Linear(128, 256),
    "linear_no_bias": nn.Linear(128, 256, bias=False),
    "linear_relu": nn.Sequential(nn.Linear(128, 256), nn.ReLU()),
    "linear_gelu": nn.Sequential(nn.Linear(128, 256), nn.GELU()),
    "linear_gelu_tanh": nn.Sequential(nn.Linear(128, 256), nn.GELU("tanh")),
    "linear_silu": nn.Sequential(nn.Linear(128, 256), nn.SiLU()),
    "linear_layer_norm": nn.Sequential(nn.Linear(128, 256), nn.LayerNorm(256)),
    "mlp_gelu": nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)),
    "conv1d": nn.Conv1d(96, 64, 3, padding=1),
    "avg_pool1d": lambda x: functional.avg_pool1d(x, 2),
    "tril": torch.tril,
    "triu": torch.triu,
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2).contiguous(),
    "index_select": lambda x: x.index_select(1, torch.tensor([3, 1, 4])),
    "index_tensor": lambda x: x[:, torch.tensor([3, 1, 4])],
    "expand": lambda x: x.unsqueeze(1).expand(2, 4, 96, 128).contiguous(),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :4] * 2, 1, 0, 4),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, 3),
    "masked_softmax": lambda x: x.masked_fill(x < 0, float("-inf")).softmax(-1),
    "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x),
    "pairwise": lambda x: torch.cdist(x, x),
}
_ATTENTION = functional.scaled_dot_product_attention


def _calls() -> Iterator[tuple[str, Call]]:
    for name, function in (_POINTWISE | _OF_IMAGES).items():
        yield name, (function, (_image(),))
    for name, function in _PAIRS.items():
        yield name, (function, (_image(), _image()))
    yield "add_broadcast", (torch.add, (_image(), torch.randn(1, 32, 1, 1)))
    for name, function in _OF_TOKENS.items():
        yield name, (function, (_tokens(),))
    yield "topk", (lambda x: tuple(x.topk(5, -1)), (_ranks(),))
    yield "sort", (lambda x: tuple(x.sort(-1)), (_ranks(),))
    yield "bmm", (torch.bmm, (_tokens(), torch.randn(2, 128, 64)))
    yield "matmul", (torch.matmul, (_tokens(), torch.randn(128, 64)))
    baddbmm = (torch.randn(2, 96, 64), _tokens(), torch.randn(2, 128, 64))
    yield "baddbmm", (lambda a, b, c: torch.baddbmm(a, b, c, beta=0.5, alpha=2.0), baddbmm)
    addmm = (torch.randn(64), torch.randn(96, 128), torch.randn(128, 64))
    yield "addmm", (torch.addmm, addmm)
    ids = torch.randint(0, 96, (2, 16))
    yield "embedding", (nn.Embedding(512, 128), (ids,))
    yield "gather", (lambda x, i: x.gather(1, i[..., None].expand(2, 16, 128)), (_tokens(), ids))
    index = torch.rand(2, 96, 128).argsort(1)[:, :16]  # No row twice, which one is kept is open.
    yield (
        "scatter",
        (lambda x, i, y: x.scatter(1, i, y), (_tokens(), index, torch.randn(2, 16, 128))),
    )
    scatter = (_tokens(), index, torch.randn(2, 16, 128))
    yield "scatter_add", (lambda x, i, y: x.scatter_add(1, i, y), scatter)
    rows = (_tokens(), torch.tensor([3, 7]), torch.randn(2, 2, 128))
    yield "index_copy", (lambda x, i, y: x.index_copy(1, i, y), rows)
    yield "index_put", (lambda x, i, y: x.index_put((torch.arange(2)[:, None], i), y), rows)
    yield "one_hot", (lambda i: functional.one_hot(i, 96).float(), (ids,))
    qkv = (_heads(), _heads(), _heads())
    yield "attention", (_ATTENTION, qkv)
    yield "attention_causal", (lambda q, k, v: _ATTENTION(q, k, v, is_causal=True), qkv)
    yield "attention_scale", (lambda q, k, v: _ATTENTION(q, k, v, scale=0.5), qkv)
    grouped = (_heads(), _heads(heads=2), _heads(heads=2))
    yield "attention_grouped", (lambda q, k, v: _ATTENTION(q, k, v, enable_gqa=True), grouped)
    one = (_heads(), _heads(heads=1), _heads(heads=1))
    yield "attention_one_key_head", (lambda q, k, v: _ATTENTION(q, k, v, enable_gqa=True), one)
    yield "attention_float_mask", (_ATTENTION, (*qkv, torch.randn(2, 1, 96, 96)))
    yield "attention_bool_mask", (_ATTENTION, (*qkv, torch.rand(2, 1, 96, 96) > 0.2))
    yield "attention_key_mask", (_ATTENTION, (*qkv, torch.rand(2, 1, 1, 96) > 0.2))
    yield "lstm", (nn.LSTM(128, 64, batch_first=True), (torch.randn(2, 8, 128),))
    yield "gru", (nn.GRU(128, 64, batch_first=True), (torch.randn(2, 8, 128),))
    yield "conv3d", (nn.Conv3d(8, 16, 3, padding=1), (torch.randn(1, 8, 8, 16, 16),))
    yield "max_pool3d", (lambda x: functional.max_pool3d(x, 2), (torch.randn(1, 8, 8, 16, 16),))
    grid = torch.rand(2, 14, 14, 2) * 2 - 1
    yield "grid_sample", (lambda x, g: functional.grid_sample(x, g), (_image(), grid))


def make_network(name: str) -> Model:
    """The network of that name, in float32: the same each time and on each machine."""
    torch.manual_seed(0)
    function, inputs = dict(_calls())[name]
    network = deepcopy(_Function(function))
    for module in network.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return Model(network.eval().requires_grad_(False), inputs)


def inputs_of(name: str) -> tuple[torch.Tensor, ...]:
    """Inputs of a network, from the process's random numbers as they are."""
    return dict(_calls())[name][1]


def names() -> list[str]:
    """All networks."""
    return [name for name, _ in _calls()]


def main() -> None:
    """Build all networks, or those of some names, and print those that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these networks; all by default")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES)
    arguments = parser.parse_args()
    every, dtypes = arguments.names or names(), arguments.dtypes
    shared = {"ways": list(_WAYS), "dtypes": dtypes}
    tasks = [
        ("operators", {"names": every[at : at + _AT_ONCE], **shared})
        for at in range(0, len(every), _AT_ONCE)
    ]
    head = ("network", "dtype", "kernels: ours", "parser", "KB moved: ours", "parser")
    sys.stdout.write("\n".join(table(head, [])) + "\n")
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(partial(run, module=TASKS), tasks):
            lines = table(head, [row for name in found for row in differing(name, found[name])])[2:]
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()


def differing(name: str, dtypes: dict[str, Any]) -> Iterator[list[str]]:
    """Rows of the table: the dtypes in which kernels or bytes differ, or in which a way fails."""
    for dtype, ways in dtypes.items():
        if failed := [
            f"{way}: {facts['failed']}" for way, facts in ways.items() if "failed" in facts
        ]:
            yield [name, dtype, "; ".join(failed)]
            continue
        pairs = [[figure_of(ways[way], key) for way in _WAYS] for key in ("kernels", "moved_bytes")]
        if any(_differ(*pair) for pair in pairs):
            (a, b), (c, d) = pairs
            yield [name, dtype, *map(str, (a, b, (c or 0) // 1000, (d or 0) // 1000))]


def _differ(ours: int | None, other: int | None) -> bool:
    if ours is None or other is None:
        return ours is not other
    return not 1 / _DIFFERENCE <= (ours or 1) / (other or 1) <= _DIFFERENCE


if __name__ == "__main__":
    main()
