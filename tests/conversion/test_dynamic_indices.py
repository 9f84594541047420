"""Indices, starts and ends along dynamic dimensions count as torch counts them.

The networks are evaluated on the CPU at the smallest, the best and the largest size.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import blobs, lower
from tests.support.mended import leave_out
from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.sampled import sampled
from trt_et.conversion import trial
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines.serialize import build_network
from trt_et.errors import BuilderError

aten = torch.ops.aten
X = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
TABLE = torch.arange(16.0).view(16, 1, 1)
LSTM = nn.LSTM(3, 4, batch_first=True).eval()


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[-1] = 1.0
    y[1:-1] = 2.0
    return y


# With the smallest size that the program takes.
CASES = {
    "the last": (1, lambda x: x[-1]),
    "one of them": (
        1,
        lambda x: [
            *(x.transpose(0, 1)[:, -1], x[x.shape[0] - 1], x[0], x[[0, -1]]),
            *(x.flatten(0, 1)[-1], x.cumsum(0)[-1], LSTM(x)[0][-1]),
            x.gather(0, x.argmax(0, keepdim=True)),
        ],
    ),
    "one or two of three": (
        3,
        lambda x: [
            *(x.select(0, -2), x.narrow(0, -2, 2), x.index_select(0, torch.tensor([1, 0]))),
            x[(x[:2, 0, 0] > 0).long() - 1],
            x.gather(0, torch.tensor([[[0, 1, 0], [1, 0, 1]]])),
        ],
    ),
    "up to a number": (1, lambda x: [x[:100], x + TABLE[: x.shape[0]]]),
    "slices": (3, lambda x: [x[-2:], x[:-1], x[-3::2], x.diff(dim=0)]),
    "from beyond the start": (3, lambda x: x[-9:-1]),
    "between the ends": (4, lambda x: [x[1:-1], x[1 : x.shape[0] - 1]]),
    "split at a computed size": (
        3,
        lambda x: [*x.split([1, x.shape[0] - 1]), x.split([x.shape[0] - 1, 1])[1]],
    ),
    "split at both ends": (4, lambda x: x.tensor_split([1, -1])),
    "rolled": (3, lambda x: [x.roll(-1, 0), x.roll((1, -7), (0, 1)), x.flip(0, 1)]),
    "the last one written": (1, lambda x: aten.select_scatter(x, x[0], 0, -1)),
    "the last two written": (3, lambda x: x.slice_scatter(torch.ones(2, 4, 3), 0, -2)),
    "written in place": (4, written),
    "reflected": (
        3,
        lambda x: nn.functional.pad(x.permute(1, 2, 0), (1, 2), mode="reflect"),
    ),
}


def dynamic(smallest: int, function) -> torch.export.ExportedProgram:
    # The product in front and behind keeps moves alone from being left to the CPU.
    def model(x):
        return torch.utils._pytree.tree_map(lambda y: y * 3, function(x * 2))

    sizes = (({0: Dim("n", min=smallest, max=7)},),)
    return torch.export.export(Function(model), (X,), dynamic_shapes=sizes)


@pytest.mark.parametrize("case", sampled(CASES, 6))
def test_the_network_equals_eager_at_every_size(case):
    lower_and_compare(dynamic(*CASES[case]))


@pytest.mark.parametrize("case", ["the last", "written in place"])
def test_an_engine_is_built(case):
    assert blobs(lower(dynamic(*CASES[case]), builder="tensorrt_rtx"))


@pytest.mark.parametrize("sizes", [None, (({2: Dim("n", min=2, max=7)},),)])
def test_bounds_beyond_a_known_size_are_the_size(sizes):
    def sliced(x):
        y = x * 2
        slices = (y[-9:], y[-9:3], y[:, -9:], y[3:100], torch.cat([y, y[4:2]]))
        return [part * 3 for part in slices]

    lower_and_compare(torch.export.export(Function(sliced), (X,), dynamic_shapes=sizes))


def test_what_is_written_to_a_slice_is_between_what_was_there():
    def written(x):
        y = x * 2
        results = (
            y.slice_scatter(y[:2], 0, 1, None, 2),
            y.slice_scatter(y[:3], 0, -9, 3),
            y.slice_scatter(y[:, :2], 1, 1, 3),
            y.slice_scatter(y + 1, 1),
            y.select_scatter(y[:, 0], 1, -1),
        )
        return [result * 3 for result in results]

    lower_and_compare(torch.export.export(Function(written), (X,)))


@pytest.mark.usefixtures("registry_is_put_back")
def test_a_network_that_gathers_by_a_negative_index_is_not_built():
    """What the converters of Torch-TensorRT alone make of it."""
    leave_out(["select"])
    program = make_engine_program(dynamic(*CASES["the last"]).run_decompositions({}), "test")
    # Past the support check, which refuses it.
    with pytest.raises(BuilderError, match=r"partition test at node .*select.*negative index"):
        build_network(BuildRequest("test", program, 0, BuildOptions()))


@pytest.mark.parametrize(
    ("indices", "refused"), [((0, 1), False), ((0, -1), True), ((-1, 0), True)]
)
@pytest.mark.parametrize("layer", ["gather", "gather ND", "scatter"])
def test_a_negative_index_among_several_is_found(indices, refused, layer):
    trial.convertible_operators()
    import tensorrt as trt

    from trt_et.conversion.index_check import IndexCheck

    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    net = builder.create_network(0)
    x = net.add_input("x", trt.float32, (-1, -1))
    kept = np.array([indices], np.int32)
    index = net.add_constant(kept.shape, kept).get_output(0)
    check = IndexCheck(net)
    check.check_new_layers()
    if layer == "scatter":
        value = np.ones(1, np.float32)
        net.add_scatter(x, index, net.add_constant((1,), value).get_output(0), trt.ScatterMode.ND)
    else:
        mode = trt.GatherMode.ND if "ND" in layer else trt.GatherMode.DEFAULT
        net.add_gather_v2(x, index, mode)
    with pytest.raises(ValueError, match="negative index") if refused else nullcontext():
        check.check_new_layers()
