"""Nothing that the caller has is changed: the program, its metadata and symbols, the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_leaves

from tests.support.lowering import export_with_batch, reference
from tests.support.models import Function, State, make
from tests.support.programs.kv_cache_models import Recorder
from tests.support.sampled import sampled
from trt_et import PartitionError, TensorRTPartitioner
from trt_et.errors import BuilderError
from trt_et.graph.subgraphs import nodes_of

N = Dim("n", min=2, max=8)


def choose(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() @ x.mT, lambda x: x @ x.mT, (x,))


def rows_by_a_mask(x):
    return x[x[:, 0] > 0] * 2


def of_one_size(x):
    return x * 2 if x.shape[0] // 3 * x.shape[0] < 40 else x + 1


def viewed(x):
    return x.flatten(1).view(x.shape[0], x.shape[1], x.shape[1]).relu()


def dynamic(function: Callable[..., Any], shape: tuple[int, ...], sizes: Any) -> ExportedProgram:
    example = (torch.randn(shape),)
    return torch.export.export(Function(function), example, dynamic_shapes=((sizes,),))


class Rows(State):
    """State with a dynamic size beside it."""

    def forward(self, x):
        self.total.add_(x.sum(0))
        return x @ self.total.mT


PROGRAMS: dict[str, Callable[[], ExportedProgram]] = {
    "static": lambda: torch.export.export(*make("mlp")),
    "dynamic": lambda: export_with_batch("mlp"),
    "guarded": lambda: dynamic(of_one_size, (6, 2), {0: 2 * N}),
    "quotients": lambda: dynamic(viewed, (2, 3, 3), {0: N}),
    "cond": lambda: dynamic(choose, (3, 4), {0: N}),
    "data-dependent": lambda: torch.export.export(Function(rows_by_a_mask), (torch.randn(3, 4),)),
    "state": lambda: torch.export.export(
        Rows(), (torch.randn(4, 2, 3),), dynamic_shapes=({0: N},), strict=False
    ),
    "constants": lambda: torch.export.export(
        Function(lambda x: x + torch.eye(4) + torch.ones(4, 4).cumsum(0)), (torch.randn(4, 4),)
    ),
}


class Fails(Recorder):
    """Fails after it has looked at the partition's program."""

    def build(self, request):
        super().build(request)
        raise BuilderError("it fails")


class _Fingerprint:
    """What can be seen of a program; objects that it shares with others count by identity."""

    def __init__(self, program: ExportedProgram) -> None:
        self._kept: list[object] = []  # A new object must not get the id() of an old one.
        self.facts: dict[str, Any] = {
            "program": self._attributes(vars(program)),
            "signature": repr(program.graph_signature),
            "ranges": repr(program.range_constraints),
            "calls": repr(program.module_call_graph),
            "code": program.graph_module.code,
        }
        for kind in ("state_dict", "constants"):
            for name, value in getattr(program, kind).items():
                self.facts[f"{kind} {name}"] = self._weight(value)
        nodes = nodes_of(program)
        for index, node in enumerate(nodes):
            meta = {key: self._meta(value) for key, value in node.meta.items()}
            node_facts = (node.name, node.op, str(node.target), str((node.args, node.kwargs)))
            self.facts[f"node {index}"] = (self._id(node), *node_facts, meta)
        values = tree_leaves([node.meta.get("val") for node in nodes])
        modes = {id(v.fake_mode): v.fake_mode for v in values if isinstance(v, FakeTensor)}
        for mode in modes.values():
            self._environment("mode", mode)
            if mode.shape_env is not None:
                self._environment("environment", mode.shape_env)

    def _id(self, value: object) -> tuple[str, int]:
        self._kept.append(value)
        return type(value).__qualname__, id(value)

    def _attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._id(value) for name, value in attributes.items()}

    def _weight(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return self._id(value)
        grad = value.requires_grad
        return self._id(value), value._version, grad, tuple(value.shape), value.flatten().tolist()

    def _meta(self, value: Any) -> Any:
        parts = []
        for leaf in tree_leaves(value):
            if isinstance(leaf, FakeTensor):
                mode = self._id(leaf.fake_mode)
                parts.append((self._id(leaf), str(leaf.shape), leaf.stride(), leaf.dtype, mode))
            elif dataclasses.is_dataclass(leaf) or not isinstance(leaf, torch.SymInt):
                parts.append(repr(leaf))
            else:
                parts.append((str(leaf), self._id(leaf.node), self._id(leaf.node.shape_env)))
        return repr(parts)

    def _environment(self, name: str, value: object) -> None:
        """Write down all attributes, except caches and counters that torch keeps of questions."""
        self.facts[name] = (self._id(value), f"{type(value).__module__}.{type(value).__qualname__}")
        for attribute, each in vars(value).items():
            if not any(part in attribute for part in ("cache", "memo", "counter", "converter")):
                text = repr(each) if isinstance(each, dict | list | set | int | str) else None
                self.facts[f"{name}.{attribute}"] = text or self._id(each)


def explain(program: ExportedProgram) -> None:
    reference(precision="float16").explain(program)


def lower(program: ExportedProgram) -> None:
    to_edge_transform_and_lower(program, partitioner=[reference()]).to_executorch()


def lower_to_onnx(program: ExportedProgram) -> None:
    partitioner = TensorRTPartitioner(builder="onnx", precision="float16", progress=False)
    to_edge_transform_and_lower(program, partitioner=[partitioner])


def fail(program: ExportedProgram) -> None:
    partitioner = TensorRTPartitioner(builder=Fails(), progress=False)
    with pytest.raises(PartitionError, match="it fails"):
        to_edge_transform_and_lower(program, partitioner=[partitioner])


@pytest.mark.parametrize("done", [explain, lower_to_onnx, fail])
@pytest.mark.parametrize("name", sampled(PROGRAMS, 3))
def test_it_stays_as_it_is(name, done):
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    before = _Fingerprint(program)
    done(program)
    after = _Fingerprint(program)
    assert after.facts == before.facts


def weights(model: nn.Module) -> dict[str, tuple[int, int]]:
    return {n: (id(v), v._version) for n, v in model.state_dict(keep_vars=True).items()}


def test_the_model_stays_as_it_is():
    model, inputs = make("cnn")
    program = torch.export.export(model.eval(), inputs)
    before = weights(model)
    explain(program)
    lower(program)
    assert weights(model) == before
    assert not any(module.training for module in model.modules())
