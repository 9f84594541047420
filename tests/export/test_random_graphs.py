"""Random programs: whatever is delegated and whatever is not, the lowered program equals eager.

Most programs are lowered ten at a time, as submodules of one program that share its inputs and
weights, since much of the cost of lowering a program is the same however small it is. Some are
lowered alone. As many have dynamic sizes: two methods with one partitioner, five programs each.

CI runs 8, and 2 with dynamic sizes; ``make random-programs PROGRAMS=20000 SEED=7`` runs others,
and more. The seed of a shard and Hypothesis's report name the program that fails.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from torch import nn
from torch.fx import Node

from tests.support.lowering import finish, lower, reference
from tests.support.programs.dynamic_steps import STEPS
from tests.support.simulated_gpus import load_method, load_program
from trt_et.engine_program.edge_to_aten import qualified_name

PROGRAMS = int(os.environ.get("TRT_ET_RANDOM_GRAPHS", "8"))
FIRST_SEED = int(os.environ.get("TRT_ET_RANDOM_GRAPHS_SEED", "0"))
TOGETHER = 10
SHARD = 100
ALONE = max(PROGRAMS // 40, 1)
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
    "int32": lambda x: (x.clamp(-9, 9).int() * 3 - 1).float() * 0.25,
    "bool": lambda x: ((x > -1) & ~(x > 1)).float() + x * 0.5,
    "int_sum": lambda x: x.clamp(-9, 9).long().sum(0, keepdim=True).float().tanh() + x,
    "sort": lambda x: x.sort(1, descending=True).values,
    "topk": lambda x: torch.cat([x.topk(2, 0).values, x[:2]]),
    "bfloat16": lambda x: (x.bfloat16() > 0.5).float() - x,
    "split": lambda x: torch.cat(list(reversed(x.split([1, 3], 1))), 1),
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
Plan = tuple[list[Step], list[int], set[str]]


class Program(nn.Module):
    """Runs steps over a growing list of values."""

    def __init__(self, steps: list[Step], outputs: list[int]) -> None:
        super().__init__()
        self.steps = steps
        self.outputs = outputs

    def forward(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        for name, first, second in self.steps:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(UNARY[name](a) if name in UNARY else BINARY[name](a, b))
        return [values[-1 - index % len(self.steps)].clone() for index in self.outputs]


class Programs(nn.Module):
    """Several programs; the weights are shared by whoever picks them."""

    def __init__(self, plans: list[Plan]) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(SIZE, SIZE) for _ in range(2)])
        self.register_buffer("offset", torch.randn(SIZE))
        self.programs = nn.ModuleList(Program(steps, outputs) for steps, outputs, _ in plans)

    def forward(self, x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        values = [x, y, n * 0.5, self.weights[0] + self.offset, self.weights[1] * 0.5]
        results: list[torch.Tensor] = []
        for program in self.programs:
            results.extend(program(list(values)))
        return results


def exclusion(plans: list[Plan]) -> Callable[[Node], bool]:
    """Every program leaves out its own operators."""

    def excludes(node: Node) -> bool:
        for path, _ in node.meta.get("nn_module_stack", {}).values():
            found = re.search(r"programs\.(\d+)$", path)
            if found:
                name = qualified_name(node).replace("::", ".")
                return any(name.startswith(given) for given in plans[int(found[1])][2])
        return False

    return excludes


plan = st.tuples(
    st.lists(
        st.tuples(st.sampled_from([*UNARY, *BINARY]), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=40,
    ),
    st.lists(st.integers(0, 50), min_size=1, max_size=4),
    st.sets(st.sampled_from(EXCLUDABLE), max_size=3),
)


def check(plans: list[Plan], min_block_size: int) -> None:
    torch.manual_seed(0)
    model = Programs(plans).eval()
    inputs = (torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE), torch.randint(-5, 5, (SIZE, SIZE)))
    with torch.no_grad():
        expected = model(*inputs)
        program = torch.export.export(model, inputs)
        options = {"excluded_ops": [exclusion(plans)], "min_block_size": min_block_size}
        pte = lower(program, **options)
    for have, want in zip(load_method(pte).execute(list(inputs)), expected, strict=True):
        torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)


def run(check: Callable[..., None], number: int, first: int, **strategies: Any) -> None:
    """Run ``number`` examples and the one with which Hypothesis always begins, the smallest."""
    few = settings(
        max_examples=number + 1,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    seed(first)(few(given(**strategies)(check)))()


@pytest.mark.parametrize("shard", range(-(-(PROGRAMS - ALONE) // SHARD)))
def test_lowered_programs_equal_eager(shard):
    programs = min(SHARD, PROGRAMS - ALONE - shard * SHARD)
    run(
        check,
        -(-programs // TOGETHER),
        FIRST_SEED + shard,
        plans=st.lists(plan, min_size=TOGETHER, max_size=TOGETHER),
        min_block_size=st.integers(1, 3),
    )


def test_a_lowered_program_equals_eager():
    def one(plan: Plan, min_block_size: int) -> None:
        check([plan], min_block_size)

    run(one, ALONE, FIRST_SEED, plan=plan, min_block_size=st.integers(1, 3))


ROWS = (12, 6, 18)
dynamic_plan = st.lists(
    st.tuples(st.sampled_from([*STEPS]), st.integers(0, 50), st.integers(0, 50)),
    min_size=1,
    max_size=8,
)


class DynamicPrograms(nn.Module):
    """Several programs of ``STEPS``; each returns its last two values."""

    def __init__(self, plans: list[list[Step]]) -> None:
        super().__init__()
        self.plans = plans
        self.weight = nn.Parameter(torch.eye(SIZE) * 0.5)

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, i: torch.Tensor, mask: torch.Tensor
    ) -> list[torch.Tensor]:
        results: list[torch.Tensor] = []
        for steps in self.plans:
            values = [x, y @ self.weight]
            for name, first, second in steps:
                pair = (values[first % len(values)], values[second % len(values)])
                values.append(STEPS[name](*pair, i, mask))
            results.extend(value.tanh() for value in values[-2:])
        return results


def rows(count: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    shape = (count, SIZE)
    whole = torch.randint(-5, 6, shape, generator=generator)
    mask = torch.randint(0, 2, shape, generator=generator).bool()
    return (*torch.randn(2, *shape, generator=generator), whole, mask)


def check_dynamic(plans: list[list[Step]], min_block_size: int) -> None:
    dynamic = ({0: 6 * torch.export.Dim("k", min=1, max=3)},) * 4
    middle = len(plans) // 2
    models = {"first": DynamicPrograms(plans[:middle]), "second": DynamicPrograms(plans[middle:])}
    exported = {
        name: torch.export.export(model.eval(), rows(ROWS[0]), dynamic_shapes=dynamic)
        for name, model in models.items()
    }
    pte = finish(exported, reference(min_block_size=min_block_size)).buffer
    program = load_program(bytes(pte))
    for name, model in models.items():
        method = program.load_method(name)
        for count in ROWS:
            inputs = rows(count)
            with torch.no_grad():
                expected = model(*inputs)
            torch.testing.assert_close(method.execute(list(inputs)), expected, atol=1e-4, rtol=1e-4)


DYNAMIC = PROGRAMS if PROGRAMS >= SHARD else 2
DYNAMIC_TOGETHER = min(DYNAMIC, TOGETHER)


@pytest.mark.parametrize("shard", range(-(-DYNAMIC // SHARD)))
def test_lowered_programs_with_dynamic_sizes_equal_eager(shard):
    programs = min(SHARD, DYNAMIC - shard * SHARD)
    run(
        check_dynamic,
        -(-programs // DYNAMIC_TOGETHER),
        FIRST_SEED + shard,
        plans=st.lists(dynamic_plan, min_size=DYNAMIC_TOGETHER, max_size=DYNAMIC_TOGETHER),
        min_block_size=st.integers(1, 3),
    )
