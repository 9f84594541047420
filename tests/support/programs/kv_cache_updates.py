"""Ways to write rows into a cache, and what the rewrite makes of each."""

from __future__ import annotations

import functools

import torch
from torch import nn

from tests.support.programs.kv_cache_models import (
    BATCH,
    HEADS,
    LENGTH,
    WIDTH,
    Cache,
    recorded,
)
from trt_et.conversion.operators.caches import update_in_place
from trt_et.conversion.operators.scatter import INDEX_PUT
from trt_et.conversion.rewriting import rewrite
from trt_et.engine_info import Alias
from trt_et.engine_program.program import unlift
from trt_et.engines import BuildRequest

aten = torch.ops.aten

ONE = torch.tensor([5])
RUN = torch.arange(3)


def rows(count: int = 1, dtype: torch.dtype = torch.float32, *shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(shape or (BATCH, HEADS, count, WIDTH)).to(dtype)


def put(cache, position, new):
    cache[:, :, position] = new


def put_at_scalar(cache, position, new):
    aten.index_put_(cache, [None, None, position], new)


def copy_rows(cache, position, new):
    cache.index_copy_(2, position, new)


def copy_run(cache, position, new):
    cache.index_copy_(2, torch.arange(new.shape[2]) + position, new)


def copy_run_of_several(cache, position, new):
    cache.index_copy_(2, position + (1 + torch.arange(new.shape[2])) + position[0], new)


def executorch_llama(cache, position, new):
    """What ExecuTorch's own Llama does with dynamic shapes."""
    start = position[0].item()
    torch._check_is_size(start)
    torch._check(start < LENGTH)
    cache.index_copy_(2, torch.arange(new.shape[2]) + start, new)


def put_slice(first=None, last=None):
    def put(cache, position, new):
        cache[:, :, first:last] = new

    return put


def put_constant_run(cache, position, new):
    cache[:, :, torch.arange(2, 5)] = new


def put_listed_run(cache, position, new):
    cache[:, :, torch.tensor([3, 4, 5])] = new


slice_last = put_slice(-3)


def scatter_slice(cache, position, new):
    cache.copy_(torch.slice_scatter(cache, new, 2, 1, 4))


def slice_all_batches(cache, position, new):
    cache[:, :, 2:5] = new[:1]


FORMS = {
    "one position": (put, ONE, rows()),
    "one position, int32": (put, ONE.int(), rows()),
    "one position without a dimension": (put_at_scalar, torch.tensor(5), rows()[:, :, 0]),
    "one position from the end": (put, torch.tensor([-2]), rows()),
    "rows for all batches": (put, ONE, rows(1, torch.float32, HEADS, 1, WIDTH)),
    "one number for all": (put, ONE, rows(1, torch.float32, 1)),
    "index_copy": (copy_rows, ONE, rows()),
    "index_copy of a run": (copy_run, ONE, rows(3)),
    "index_copy of a sum": (copy_run_of_several, torch.tensor([2]), rows(3)),
    "ExecuTorch's Llama": (executorch_llama, ONE, rows(3)),
    "a constant run": (put_constant_run, ONE, rows(3)),
    "a listed run": (put_listed_run, ONE, rows(3)),
    "the first rows": (put_slice(last=3), ONE, rows(3)),
    "a slice": (put_slice(2, 5), ONE, rows(3)),
    "the last rows": (slice_last, ONE, rows(3)),
    "a slice for all batches": (slice_all_batches, ONE, rows(3)),
    "slice_scatter": (scatter_slice, ONE, rows(3)),
}


def add_to_it(cache, position, new):
    cache.add_(new)


LONG = rows(LENGTH)


@functools.cache
def recording(form: str) -> tuple[Cache, BuildRequest]:
    write, position, new = FORMS[form]
    model = Cache(write)
    (request,), _ = recorded(model, (position, new))
    return model, request


def rewritten(request: BuildRequest) -> tuple[torch.fx.GraphModule, tuple[Alias, ...]]:
    module = unlift(request.program.exported)
    rewrite(module, INDEX_PUT)
    return module, update_in_place(module, request.program.aliased_outputs)


def aliases(requests: list[BuildRequest]) -> list[Alias]:
    return [alias for request in requests for alias in rewritten(request)[1]]


def outputs_of(
    request: BuildRequest, model: nn.Module, *inputs: torch.Tensor
) -> dict[str, torch.Tensor]:
    """What the rewritten partition computes, by the names of the nodes in the program."""
    module, _ = rewritten(request)
    values = {"position": inputs[0], "rows": inputs[1], "b_cache": model.cache.clone()}
    names = request.program.names
    args = [values[names[binding.name]] for binding in request.program.inputs]
    results = request.program.exported.graph.output_node().args[0]
    found = module(*args)
    return {names[node.name]: value for node, value in zip(results, found, strict=True)}


def calls(module: torch.fx.GraphModule) -> list[object]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]
