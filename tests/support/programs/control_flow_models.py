"""Models with ``cond``, ``map`` and ``scan``, lowered and compared with eager."""

from __future__ import annotations

import torch
from functorch.experimental.control_flow import map as torch_map
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.export import Dim
from torch.nn import functional

from tests.support.lowering import finish


class WithLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)


class Cond(WithLinear):
    """Weights of one branch, of both, and of both and outside; numbers; a tensor from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.once = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x):
        y = self.linear(x)
        shift = torch.tensor([1.0, 2.0, 3.0, 4.0])
        z = torch.cond(
            x.sum() > 0,
            lambda a: (self.linear(a).relu() * 2 + shift) * self.scale,
            lambda a: (self.once(a).tanh() - 1) * self.scale,
            (y,),
        )
        return z.sigmoid() * self.scale


class TwoConds(WithLinear):
    """A weight that two conds and three engines outside of them use."""

    def forward(self, x):
        y = torch.cond(x.sum() > 0, self.linear, torch.tanh, (self.linear(x),))
        y = self.linear(y)
        return self.linear(torch.cond(y.sum() > 0, self.linear, torch.sin, (y,)))


class Nested(WithLinear):
    def forward(self, x, y):
        def inner(a, b):
            return torch.cond(
                b.max() > 1,
                lambda a, b: self.linear(a) @ b,
                lambda a, b: (a * 3 + b).tanh(),
                (a, b),
            )

        return torch.cond(x.sum() > 0, inner, lambda a, b: a - b * b, (self.linear(x), y))


class Map(WithLinear):
    def forward(self, xs, y):
        return torch_map(lambda x, y: self.linear(x + y).relu(), xs, y)


class CondInMap(Map):
    def forward(self, xs, y):
        def body(x, y):
            return torch.cond(
                x.sum() > 0,
                lambda a, b: self.linear(a + b),
                lambda a, b: (a - b).tanh() * a,
                (x, y),
            )

        return torch_map(body, xs, y)


class Scan(WithLinear):
    def forward(self, start, xs):
        return scan(lambda c, x: ((self.linear(c) + x).tanh(), (c * x).relu()), start, xs)


class Layers(nn.Module):
    """What TensorRT has layers for, with weights that are arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.slope = nn.PReLU()
        self.back = nn.ConvTranspose2d(8, 3, 3, 1, 1)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return torch.cond(
            x.sum() > 0,
            lambda a: self.back(self.slope(self.norm(self.conv(a)))),
            lambda a: a - functional.softplus(a),
            (x,),
        )


class Sized(WithLinear):
    def forward(self, x):
        return torch.cond(
            x.sum() > 0,
            lambda a: functional.pad(self.linear(a), (0, 1)).relu() * a.shape[0],
            lambda a: torch.cat([a.tanh(), a[:, :1]], 1),
            (x,),
        )


class State(WithLinear):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 4))

    def forward(self, x):
        self.total.add_(self.linear(x))
        y = torch.cond(
            x.sum() > 0,
            lambda a, t: self.linear(a) + t,
            lambda a, t: (a * t).tanh(),
            (x, self.total),
        )
        return y + self.total


class Sigmoid(WithLinear):
    """Something for two backends outside of the branches."""

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda a: a.relu() + 1, lambda a: a.tanh() * a, (x,))
        return self.linear(y).sigmoid()


def _first(x):
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a * 2, (x,))


def _second(x, y):
    """Control flow of any ``x``, with operators that engines have, and others."""
    return torch.cond(x.max() > 0.5, lambda a: a.cumsum(0), lambda a: a.softmax(0) * a, (y,))


class ReadLater(nn.Module):
    """The result of one ``cond`` is read after another one, which has other operands or it."""

    def forward(self, x):
        y = _first(x)
        return _second(x, x * 3), _second(x, y), y, y.relu() + 1


class ReadLaterInBranch(nn.Module):
    def forward(self, x):
        later = ReadLater()
        return torch.cond(
            x.sum() > 0, lambda a: sum(later(a)), lambda a: _first(a) * _second(a, a), (x,)
        )


class ReadAfterLoops(nn.Module):
    """Bodies overwrite the result of ``cond`` as branches do."""

    def forward(self, x):
        y = _first(x)
        z = torch_map(lambda row, other: row.cumsum(0) * other[0], x, x + 1)
        w, rows = scan(lambda c, row: ((c + row).tanh(), (c * row).relu()), x[0] * 1, x)
        return y + z, _second(x, z), w, rows, y


class StateWrittenLater(nn.Module):
    """ExecuTorch writes state at the end of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 4))

    def forward(self, x):
        y = _first(x)
        self.total.copy_(y)
        return _second(x, x + 1)


def signed(*shapes: tuple[int, ...]) -> list[tuple[torch.Tensor, ...]]:
    """Arguments whose first is positive, negative, and positive again."""
    return [
        tuple(torch.rand(shape) * (sign if index == 0 else 2) for index, shape in enumerate(shapes))
        for sign in (1, -1, 1)
    ]


def mixed(*shapes: tuple[int, ...]) -> list[tuple[torch.Tensor, ...]]:
    return [tuple(torch.randn(shape) for shape in shapes) for _ in range(2)]


# The subgraphs of the partitions; None: as many as it takes.
CASES = {
    "cond": (Cond, lambda: signed((2, 4)), ["", "cond/true", "cond/false", ""]),
    "two_conds": (
        TwoConds,
        lambda: signed((2, 4)),
        ["", "cond/true", "cond/false", "", "cond_1/true", "cond_1/false", ""],
    ),
    "nested": (
        Nested,
        # The inner cond is reached by a positive x; y decides there.
        lambda: [*signed((4, 4), (4, 4)), (torch.ones(4, 4), torch.zeros(4, 4))],
        ["", "cond/true", "cond/true/cond/true", "cond/true/cond/false", "cond/false"],
    ),
    "map": (Map, lambda: mixed((5, 2, 4), (2, 4)), ["map_impl/body"]),
    "cond_in_map": (
        CondInMap,
        lambda: mixed((7, 4, 4), (4, 4)),
        ["map_impl/body", "map_impl/body/cond/true", "map_impl/body/cond/false"],
    ),
    "scan": (Scan, lambda: mixed((2, 4), (5, 2, 4)), ["scan/body"]),
    "layers": (
        Layers,
        lambda: [(x.to(memory_format=torch.channels_last),) for (x,) in signed((2, 3, 8, 8))],
        ["", "cond/true", "cond/false"],
    ),
    "sized": (Sized, lambda: signed((3, 4)) + signed((8, 4)), ["", "cond/true", "cond/false"]),
    "state": (State, lambda: signed((2, 4)), ["", "cond/true", "cond/false", ""]),
    "read_later": (ReadLater, lambda: signed((2, 4)), None),
    "read_later_in_branch": (ReadLaterInBranch, lambda: signed((2, 4)), None),
    "read_after_loops": (ReadAfterLoops, lambda: signed((2, 4)), None),
    "state_written_later": (StateWrittenLater, lambda: signed((2, 4)), None),
}
DYNAMIC = {"sized": {"x": {0: Dim("n", max=8)}}}


def case(
    name: str,
) -> tuple[nn.Module, list[tuple[torch.Tensor, ...]], torch.export.ExportedProgram]:
    torch.manual_seed(0)
    make, calls, _ = CASES[name]
    model, arguments = make().eval(), calls()
    program = torch.export.export(model, arguments[0], dynamic_shapes=DYNAMIC.get(name))
    if isinstance(model, State | StateWrittenLater):
        model.total.zero_()  # As ExecuTorch starts.
    return model, arguments, program


def lowered(program: torch.export.ExportedProgram, *partitioners, planning=None) -> bytes:
    return bytes(finish(program, *partitioners, planning=planning).buffer)
