"""A lowered program refuses the sizes that the guards of ``torch.export`` refuse."""

from __future__ import annotations

import io
import logging
import re

import pytest
import torch
from torch.export import Dim
from torch.nn import functional

from tests.support.lowering import lower
from tests.support.models import Function
from tests.support.simulated_gpus import load_method
from trt_et.graph.own_symbols import with_own_symbols
from trt_et.mends.guarded_sizes import narrow_guarded_sizes

N, M = Dim("n", min=2, max=8), Dim("m", min=2, max=8)
FIVE_TO_8 = Dim.AUTO(min=5, max=8)
LONG = Dim("n", min=2, max=100_000)


def fixed(x):
    return functional.interpolate(x * 2, (int(x.shape[-2] // 14 * 14), 6), mode="bilinear")


def in_one_branch(x):
    # torch.export itself refuses a condition that it can solve.
    return x * 2 if x.shape[0] // 3 * x.shape[0] < 40 else x + 1


def of_multiples(x):
    return x * 2 if x.shape[0] ** 2 % 16 == 0 else x + 1


def of_two_sizes(x):
    return x * 2 if x.shape[0] * x.shape[1] % 6 == 0 else x + 1


# The model, an example, its dynamic sizes, the range that is left, and what the warning says.
GUARDED = {
    "one size": (
        fixed,
        (1, 3, 56, 6),
        {2: 14 * N},
        (56, 56),
        r"dimension 2 of input inputs_0 was .* 28 to 112, .* at \S+:\d+ in fixed .*takes 56 only",
    ),
    "a range": (in_one_branch, (6, 2), {0: 2 * N}, (4, 10), "4 to 16, .*takes 4 to 10"),
    "a long range": (in_one_branch, (6, 2), {0: 2 * LONG}, (4, 10), "4 to 200000, .*4 to 10"),
    "the upper end": (in_one_branch, (14, 2), {0: 2 * LONG}, (12, 200_000), "12 to 200000"),
    "no bound": (in_one_branch, (6, 2), {0: Dim.AUTO}, (2, 11), "takes 2 to 11"),
    "multiples": (of_multiples, (8, 2), {0: 2 * N}, None, "size 6, for example, gives a wrong"),
    "multiples, long": (of_multiples, (8, 2), {0: 2 * LONG}, None, "size 6, for example"),
    "two sizes": (of_two_sizes, (3, 4), {0: N, 1: M}, None, "size 2, for example"),
}
USUAL = {
    "batch": (lambda x: functional.softmax(x, -1) @ x.mT, (3, 4, 4), {0: N}),
    "reshape": (lambda x: x.reshape(x.shape[0] * 2, -1).relu(), (4, 4), {0: N}),
    "split": (lambda x: torch.cat(x.chunk(2, 1)), (4, 4), {0: N}),
    "half": (lambda x: x[: x.shape[0] // 2] * 2, (4, 4), {0: 2 * N}),
    "strides": (lambda x: functional.max_pool2d(x, 2), (1, 2, 8, 8), {2: 2 * N, 3: 2 * M}),
    "length of a part": (lambda x: [y.relu() for y in x.split(4, 1)], (3, 6, 4), {1: FIVE_TO_8}),
    "sum of sizes": (lambda x: torch.cat([x.flatten(), x.flatten()]), (3, 4), {0: N, 1: M}),
}


def exported(function, shape, sizes) -> torch.export.ExportedProgram:
    example = (torch.randn(shape),)
    return torch.export.export(Function(function), example, dynamic_shapes=((sizes,),))


def messages(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("trt_et")]


def size_range(program, dim: int) -> tuple[int, int]:
    (node,) = (n for n in program.graph.nodes if n.name in program.graph_signature.user_inputs)
    size = node.meta["val"].shape[dim]
    if isinstance(size, int):
        return size, size
    bounds = program.range_constraints[size.node.expr]
    return int(bounds.lower), int(min(bounds.upper, 2**31))


@pytest.mark.parametrize("name", GUARDED)
def test_sizes_that_a_guard_refuses_leave_the_range_or_are_reported(name, caplog):
    function, shape, sizes, left, message = GUARDED[name]
    program = exported(function, shape, sizes)
    dim = next(iter(sizes))
    before = size_range(program, dim)
    for given in (program, reloaded(program)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            narrowed = with_own_symbols(given)
            narrow_guarded_sizes(narrowed)
        # A file has no lines of the model.
        expected = message if given is program else message.replace(r" at \S+:\d+ in fixed ", "")
        assert any(re.search(expected, text) for text in messages(caplog)), caplog.text
        assert size_range(narrowed, dim) == (left or before)
        assert size_range(given, dim) == before


def reloaded(program):
    file = io.BytesIO()
    torch.export.save(program, file)
    return torch.export.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("name", USUAL)
def test_usual_programs_keep_their_ranges_without_a_warning(name, caplog):
    program = exported(*USUAL[name])
    before = dict(program.range_constraints)
    with caplog.at_level(logging.WARNING):
        narrow_guarded_sizes(program)
    assert program.range_constraints == before
    assert messages(caplog) == []


class Guided(torch.nn.Module):
    def forward(self, x, first, second):
        return torch.cat([x, x]) + torch.cat([first, second])


def test_sizes_of_inputs_that_must_fit_together_are_reported_once(caplog):
    batch = {0: Dim.AUTO(min=2, max=5)}
    inputs = tuple(torch.ones(3, 4) for _ in range(3))
    program = torch.export.export(Guided(), inputs, dynamic_shapes=(batch,) * 3)
    before = dict(program.range_constraints)
    with caplog.at_level(logging.WARNING):
        narrow_guarded_sizes(program)
    assert program.range_constraints == before
    (text,) = messages(caplog)
    assert "assumed that 2 * x.size()[0] == " in text
    assert "sizes do not fit" in text


def test_the_lowered_program_takes_the_exported_size_and_no_other():
    function, shape, sizes, *_ = GUARDED["one size"]
    method = load_method(lower(exported(function, shape, sizes)))
    x = torch.randn(shape)
    torch.testing.assert_close(method.execute([x])[0], fixed(x))
    with pytest.raises(RuntimeError, match="0x10"):
        method.execute([torch.randn(1, 3, 28, 6)])
