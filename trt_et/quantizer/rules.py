"""Chooses the configuration of a node: by module name, module type, operator, or for all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import Final, TypeAlias

from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationConfig

from trt_et.errors import OptionError
from trt_et.quantizer.operators import QUANTIZED_OPS

Config: TypeAlias = QuantizationConfig | None

_SHOWN: Final = 5
OPERATORS: Final = {
    name: op
    for op in QUANTIZED_OPS
    for name in (str(op), str(op).rpartition(".")[0])  # aten.linear.default, aten.linear
}


class Rules:
    """The configurations that a caller set."""

    def __init__(self) -> None:
        self.everywhere: Config = None
        self.names: dict[str, Config] = {}
        self.types: dict[str, Config] = {}
        self.ops: dict[str, Config] = {}

    def config_of(self, node: Node) -> Config:
        """Return the configuration of a node: the innermost module's, else the operator's."""
        modules = list(_modules(node))
        for name in _outwards(_inner_owner(node, modules)):
            if name in self.names:
                return self.names[name]
        for name, _ in modules:
            if name in self.names:
                return self.names[name]
        for _, type_name in modules:
            if type_name in self.types:
                return self.types[type_name]
        for name in _names(node):
            if name in self.ops:
                return self.ops[name]
        return self.everywhere

    def names_operator(self, node: Node) -> bool:
        """Return whether the caller set a configuration of a node's operator."""
        return any(name in self.ops for name in _names(node))

    def check(self, model: GraphModule) -> None:
        """Check that each rule matches something in an exported module.

        Raises:
            OptionError: It lacks the module, type or operator of a rule.
        """
        names: set[str] = set()
        types: set[str] = set()
        ops: set[str] = set()
        for module in model.modules():
            for node in module.graph.nodes if isinstance(module, GraphModule) else ():
                names.update(_outwards(_weight_owner(node)))
                for name, type_name in _modules(node):
                    names.update(_outwards(name))
                    types.add(type_name)
                ops.update(_names(node))
        _check("module named", self.names, names)
        _check("module of the type", self.types, types)
        _check("call of the operator", self.ops, ops & OPERATORS.keys())


def _check(what: str, given: Collection[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name, sorted(known - {""}), n=_SHOWN, cutoff=0.5)
            near = near or sorted(known - {""})[:_SHOWN]
            hint = f"; it has {', '.join(map(repr, near))}" if near else ""
            raise OptionError(f"the program has no {what} {name!r}{hint}")


def _names(node: Node) -> tuple[str, str]:
    """Return the names of a node's operator, with and without the overload."""
    target = str(node.target)
    return target, target.rpartition(".")[0]


def _modules(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the names and types of the modules that a node is in, the innermost first."""
    stack = node.meta.get("nn_module_stack") or {}
    for path, kind in reversed(list(stack.values())):
        name = path.removeprefix("L['self']").removeprefix(".").partition("@")[0]
        type_name = f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else kind
        yield name, type_name


def _weight_owner(node: Node) -> str:
    """Return the name of the module that a node's weight is in; empty without one.

    Some modules, such as ``nn.MultiheadAttention``, use a submodule's weight without calling it.
    """
    weights = [source for source in node.all_input_nodes if source.op == "get_attr"]
    return str(weights[0].target).rpartition(".")[0] if weights else ""


def _inner_owner(node: Node, modules: Sequence[tuple[str, str]]) -> str:
    """Return the owner of a node's weight if it is within the innermost module; else empty.

    A module that two others share owns its weight by one of its names.
    """
    owner = _weight_owner(node)
    innermost = modules[0][0] if modules else ""
    return owner if not innermost or f"{owner}.".startswith(f"{innermost}.") else ""


def _outwards(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
