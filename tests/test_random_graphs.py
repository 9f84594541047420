"""Random programs: whatever is claimed and whatever is not, the lowered program equals eager.

``TRT_ET_RANDOM_GRAPHS=20000 pytest tests/test_random_graphs.py`` for a long run.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import trt_et.runtime
from trt_et import TensorRTPartitioner

EXAMPLES = int(os.environ.get("TRT_ET_RANDOM_GRAPHS", "40"))
SIZE = 4

Unary = Callable[[torch.Tensor], torch.Tensor]
UNARY: dict[str, Unary] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "abs": torch.abs,
    "neg": torch.neg,
    "t": lambda x: x.transpose(0, 1),
    "view": lambda x: x.reshape(2, 8).reshape(SIZE, SIZE),
    "slice": lambda x: torch.cat([x[2:], x[:2]]),
    "softmax": lambda x: x.softmax(-1),
    "mean": lambda x: x.mean(1, keepdim=True).expand(SIZE, SIZE),
    "clamp": lambda x: x.clamp(-1, 1),
    "cumsum": lambda x: x.cumsum(0) * 0.25,
    "flip": lambda x: x.flip(0),
    "where": lambda x: torch.where(x > 0, x, x * 0.5),
    "long": lambda x: x.clamp(-4, 4).long().float(),
    "half": lambda x: (x.clamp(-8, 8) > 0).half().float(),
    "double": lambda x: x.double().mul(0.5).float(),
    "clone": torch.clone,
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "select": lambda x: x.select(0, 1).unsqueeze(0) + x * 0.5,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": lambda a, b: a.tanh() * b,
    "max": torch.maximum,
    "matmul": lambda a, b: (a @ b) * 0.25,
    "cat": lambda a, b: torch.cat([a[:2], b[2:]]),
}
EXCLUDABLE = ("aten.relu", "aten.add.Tensor", "aten.mm", "aten.permute_copy", "aten.tanh")

Step = tuple[str, int, int]


class Program(nn.Module):
    """Runs steps over a growing list of values; its weights are shared by whoever picks them."""

    def __init__(self, steps: list[Step], outputs: list[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(SIZE, SIZE) for _ in range(2)])
        self.register_buffer("offset", torch.randn(SIZE))
        self.steps = steps
        self.outputs = outputs

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x, y, self.weights[0] + self.offset, self.weights[1] * 0.5]
        for name, first, second in self.steps:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(UNARY[name](a) if name in UNARY else BINARY[name](a, b))
        return tuple(values[-1 - index % len(self.steps)].clone() for index in self.outputs)


steps = st.lists(
    st.tuples(st.sampled_from([*UNARY, *BINARY]), st.integers(0, 50), st.integers(0, 50)),
    min_size=1,
    max_size=40,
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    steps,
    st.lists(st.integers(0, 50), min_size=1, max_size=4),
    st.sets(st.sampled_from(EXCLUDABLE)),
    st.integers(1, 3),
)
def test_the_lowered_program_equals_eager(steps, outputs, excluded, min_block_size):
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    trt_et.runtime.load(cuda="simulated:1")
    torch.manual_seed(0)
    model = Program(steps, outputs).eval()
    inputs = (torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE))
    with torch.no_grad():
        expected = model(*inputs)
        program = torch.export.export(model, inputs)
        partitioner = TensorRTPartitioner(
            builder="reference", excluded_ops=excluded, min_block_size=min_block_size
        )
        manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
    buffer = bytes(manager.to_executorch().buffer)
    loaded = Runtime.get().load_program(buffer)
    found = loaded.load_method("forward").execute(list(inputs))
    for have, want in zip(found, expected, strict=True):
        torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)
