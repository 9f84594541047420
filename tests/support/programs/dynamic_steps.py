"""Steps of random programs with a dynamic number of rows.

Each takes two tensors of [n, 4], whole numbers and a mask of the same shape, and returns a float32
tensor of that shape. n is a multiple of 6.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _flat_pairs(a: Tensor, b: Tensor) -> Tensor:
    n = a.shape[0]
    pairs = a.unsqueeze(1).expand(n, n, 4) + b.unsqueeze(0).expand(n, n, 4)
    return pairs.reshape(n * n, 4).tanh().reshape(n, n, 4).mean(1)


def _attention(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    allowed = mask.any(1).unsqueeze(0) | torch.ones(a.shape[0], a.shape[0], dtype=torch.bool).tril()
    return (a @ b.t()).tanh().masked_fill(~allowed, float("-inf")).softmax(-1) @ b


def _write(a: Tensor, mask: Tensor, value: object, *, adds: bool = False) -> Tensor:
    written = a.clone()
    if adds:
        written[mask] += value  # type: ignore[operator]
    else:
        written[mask] = value  # type: ignore[assignment]
    return written


def _pool(a: Tensor) -> Tensor:
    pooled = F.max_pool2d(a[None, None], (4, 1), (4, 1), ceil_mode=True)
    return pooled[0, 0].mean(0) - a


def _either(a: Tensor, b: Tensor) -> Tensor:
    """Choose by data. Operands of ``cond`` must not be one tensor."""
    branches = (lambda x, y: x.softmax(0) + y, lambda x, y: x - y.tanh())
    return torch.cond(a.sum() > 0, *branches, (a + 0.0, b * 1.0))


def _by_size(a: Tensor, b: Tensor) -> Tensor:
    branches = (lambda x, y: x.relu() - y, lambda x, y: (x @ y.t()).tanh() @ y * 0.25)
    return torch.cond(a.shape[0] > 6, *branches, (a + 0.0, b * 1.0))


STEPS: dict[str, Step] = {
    # A symbol twice in a product.
    "pairs": lambda a, b, i, m: (a.unsqueeze(1) - b.unsqueeze(0)).abs().mean(1),
    "flat pairs": lambda a, b, i, m: _flat_pairs(a, b),
    "products": lambda a, b, i, m: (a @ b.t()).tanh().flatten().reshape(-1, a.shape[0]) @ a * 0.2,
    "distances": lambda a, b, i, m: torch.cdist(a, b).mean(1, keepdim=True) - b,
    "nearest": lambda a, b, i, m: b[(i.unsqueeze(1) - i.unsqueeze(0)).abs().sum(-1).argmax(1)],
    "triangle": lambda a, b, i, m: torch.ones(a.shape[0], a.shape[0]).tril() @ a * 0.1 + b,
    # Parts of dynamic sizes.
    "chunks": lambda a, b, i, m: torch.cat(a.chunk(2)[::-1]),
    "chunks of two": lambda a, b, i, m: torch.cat(
        [x * y.tanh() for x, y in zip(a.chunk(2), b.chunk(2), strict=True)]
    ),
    "thirds": lambda a, b, i, m: torch.cat(torch.tensor_split(a, 3)[::-1]) + b,
    "third": lambda a, b, i, m: torch.cat([a[: a.shape[0] // 3], b[a.shape[0] // 3 :]]),
    "first and others": lambda a, b, i, m: torch.cat(a.split([1, a.shape[0] - 1])[::-1]),
    "split": lambda a, b, i, m: torch.cat(a.split(a.shape[0] // 2)[::-1]).tanh(),
    "gate": lambda a, b, i, m: torch.cat([F.glu(a, 0), F.glu(b, 0)]),
    "halves": lambda a, b, i, m: a.unflatten(0, (2, -1)).flip(0).flatten(0, 1),
    "turns": lambda a, b, i, m: torch.stack(a.chunk(2), 1).flatten(0, 1),
    "roll": lambda a, b, i, m: a.roll(1, 0) - b,
    "last": lambda a, b, i, m: a - b[-1:],
    "windows": lambda a, b, i, m: F.pad(a, (0, 0, 1, 1)).unfold(0, 3, 1).mean(-1),
    "apart": lambda a, b, i, m: a.unfold(0, 3, 3).sum(-1).repeat(3, 1) * 0.25,
    "pool": lambda a, b, i, m: _pool(a),
    "every other": lambda a, b, i, m: torch.cat([a[::2], b[1::2]]),
    # Masks.
    "fill": lambda a, b, i, m: a.masked_fill(m, 0.5),
    "write": lambda a, b, i, m: _write(a, m, -0.5),
    "write add": lambda a, b, i, m: _write(a, m, 1.0, adds=True),
    "write rows": lambda a, b, i, m: _write(a, m[:, 0], b[0]),
    "write own": lambda a, b, i, m: _write(a, m, a[m] * 2 + 1),
    "choose": lambda a, b, i, m: torch.where(m | (a > b), a, b * 0.5),
    "attention": lambda a, b, i, m: _attention(a, b, m),
    "share": lambda a, b, i, m: (a * m).sum(0) / m.sum(0).clamp(min=1) + b,
    "exclusive": lambda a, b, i, m: ((m ^ (i > 0)) & ~(a > 1)).float() - b,
    "all": lambda a, b, i, m: torch.where((m | (i > 3)).all(1, keepdim=True), a, b),
    "running mask": lambda a, b, i, m: (m.cumsum(0) % 2 == 0) * a,
    # Mixed dtypes.
    "cat of int": lambda a, b, i, m: torch.cat([a, i], 1)[:, 2:6],
    "stack of int": lambda a, b, i, m: torch.stack([i, a]).mean(0),
    "stack of bool": lambda a, b, i, m: torch.stack([a, m]).sum(0),
    "int32": lambda a, b, i, m: (i.int() * i) * 0.125 + a,
    "remainder": lambda a, b, i, m: (i % 3) * a,
    "quotient": lambda a, b, i, m: i // 2 + a / 2,
    "true quotient": lambda a, b, i, m: i / 4 - a,
    "half": lambda a, b, i, m: (i.half() * 0.5 + m) - a,
    "bfloat16": lambda a, b, i, m: torch.maximum(i.bfloat16() * 0.5, m.bfloat16()) * a,
    "angles": lambda a, b, i, m: (i.double() * 0.1).cos().float() * a,
    "float64": lambda a, b, i, m: (a.double() + i).tanh().float(),
    "where of int": lambda a, b, i, m: torch.where(m, i, a),
    "counts": lambda a, b, i, m: m.sum(1, keepdim=True) * 0.25 + a,
    "rows": lambda a, b, i, m: a[i.int() % 6].sum(1) * 0.25 + b,
    "uint8": lambda a, b, i, m: (i + 9).to(torch.uint8).float() * 0.1 - a,
    # Control flow.
    "cond": lambda a, b, i, m: _either(a, b),
    "cond of size": lambda a, b, i, m: _by_size(a, b),
    "cond twice": lambda a, b, i, m: _by_size(_either(a, b), a) + _either(b, a),
}
