"""Makes a module of some calls of a plain ATen graph.

The support check converts such modules before there are partitions. Weights that are not known yet
are zeros, which take no memory until something reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.utils._mode_utils import no_dispatch

from trt_et.blob.model import Binding
from trt_et.engine_program.contiguous_boundary import make_binding
from trt_et.engine_program.sizes_from_inputs import replace_sizes
from trt_et.errors import BuilderError
from trt_et.graph.fragment import Fragment
from trt_et.graph.insertion import fake_mode_of
from trt_et.graph.size_expressions import ShownSizes
from trt_et.graph.symbolic_shapes import shape_env_of

# Converters refuse scales of zero; a float weight of up to this many elements is made of ones.
_SMALL: Final = 1 << 20


@dataclass(frozen=True)
class FragmentModule:
    """A fragment that can be converted; ``module`` is plain ATen, constants as attributes.

    For every call of the module's graph, ``names`` has the name of the call that it is a copy of.
    """

    module: GraphModule
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    names: Mapping[str, str]


def make_fragment_module(fragment: Fragment) -> FragmentModule:
    """Make a module of a fragment; its tensors become bindings, its sizes are read off them.

    Raises:
        BuilderError: A size cannot be computed, or an argument is neither a tensor nor a size.
        UnboundedDimension: A dimension has no upper bound.
    """
    root = torch.nn.Module()
    graph = Graph()
    new: dict[Node, Node] = {}
    tensors: list[Node] = []
    sizes: list[Node] = []
    for source in fragment.sources:
        value = source.meta.get("val")
        if isinstance(value, torch.Tensor):
            if source not in fragment.constants:
                tensors.append(source)
        elif isinstance(value, int | torch.SymInt):
            sizes.append(source)
        else:
            raise BuilderError(f"its argument {source.name} is neither a tensor nor a size")
    for index, source in enumerate(tensors):
        new[source] = _placeholder(graph, f"input{index}", source.meta["val"])
    inputs = [new[source] for source in tensors]
    mode = fake_mode_of((*fragment.calls, *fragment.sources)) or FakeTensorMode()
    inputs += _shape_input(graph, tensors, sizes, mode)
    for index, source in enumerate(sizes):
        new[source] = _placeholder(graph, f"size{index}", source.meta["val"])
    placeholders = {node.name for node in graph.nodes}
    for index, source in enumerate(fragment.sources):
        if source not in new:
            root.register_buffer(f"_constant{index}", _constant_value(fragment, source))
            new[source] = graph.get_attr(f"_constant{index}")
            new[source].meta = {"val": source.meta["val"]}
    names = {}
    for call in fragment.calls:
        new[call] = graph.node_copy(call, new.__getitem__)
        # Torch-TensorRT takes items out of the stack of modules, which copies share.
        new[call].meta = {"val": call.meta.get("val")}
        names[new[call].name] = call.name
    graph.output(tuple(new[call] for call in fragment.outputs))
    replace_sizes(graph, placeholders)
    return FragmentModule(
        GraphModule(root, graph),
        tuple(make_binding(node.name, node.meta["val"], is_input=True) for node in inputs),
        tuple(
            make_binding(f"output{index}", call.meta["val"], is_input=False)
            for index, call in enumerate(fragment.outputs)
        ),
        names,
    )


def _placeholder(graph: Graph, name: str, value: Any) -> Node:  # noqa: ANN401
    node = graph.placeholder(name)
    node.meta["val"] = value
    return node


def _shape_input(
    graph: Graph, tensors: Sequence[Node], sizes: Sequence[Node], mode: FakeTensorMode
) -> list[Node]:
    """Add an input that shows the symbols that no other input shows; none if there are none."""
    shown = ShownSizes(tensors)
    missing: dict[Any, torch.SymInt] = {}
    for source in sizes:
        size = source.meta["val"]
        if not shown.show(size):
            symbols = sorted(size.node.expr.free_symbols, key=str)
            missing |= {
                s.node.expr: s
                for s in (_symbol(shape_env_of(size), s) for s in symbols)
                if not shown.show(s)
            }
    if not missing:
        return []
    shape = list(missing.values())
    with mode:
        value = torch.empty(shape)
    return [_placeholder(graph, "shape", value)]


def _symbol(environment: Any, symbol: Any) -> Any:  # noqa: ANN401
    hint = environment.backed_var_to_val.get(symbol)
    return environment.create_symintnode(symbol, hint=None if hint is None else int(hint))


def _constant_value(fragment: Fragment, source: Node) -> torch.Tensor:
    known = fragment.constants[source]
    if known is not None and not isinstance(known, FakeTensor):
        return known.detach()
    value: torch.Tensor = source.meta["val"]
    shape = [int(size) for size in value.shape]
    with no_dispatch():
        if value.numel() <= _SMALL:
            make = torch.ones if value.dtype.is_floating_point else torch.zeros
            return make(shape, dtype=value.dtype)
        # NumPy leaves zeros to the system, which maps them when they are read; torch.zeros writes.
        zeros = np.zeros(math.prod(shape) * value.dtype.itemsize, np.uint8)
        return torch.from_numpy(zeros).view(value.dtype).view(shape)
