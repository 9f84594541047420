"""Read optimization profiles, the ranges of dynamic dimensions that an engine is tuned for.

A caller names dimensions of the program's inputs. In all partitions, sizes are expressions of the
symbols of those dimensions. So a profile is stored as ranges of symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_unflatten

from trt_et.errors import OptionError
from trt_et.graph.symbolic_shapes import UnboundedDimension, shape_range

DimensionRange = int | tuple[int, int, int]
ProfileOption = Mapping[str, Mapping[int, DimensionRange]]
"""Input name -> dimension -> its size, or its smallest, best tuned and largest size."""
OptimizationProfile = Mapping[str, tuple[int, int, int]]
"""Name of a symbol -> its smallest, best tuned and largest value.

Symbols that are not here have the range that export recorded.
"""


def check_profiles(options: Sequence[ProfileOption]) -> tuple[ProfileOption, ...]:
    """Check the form of the option ``optimization_profiles``.

    Raises:
        OptionError: It is not a sequence of mappings of mappings, or a range is impossible.
    """
    if isinstance(options, (str, Mapping)) or not isinstance(options, Sequence):
        raise OptionError(
            f"optimization_profiles is {options!r}; expected a sequence with a mapping for each "
            "profile, such as [{'tokens': {1: (1, 16, 512)}}]"
        )
    for profile in options:
        for name, dimensions in _items(profile, "a profile of optimization_profiles"):
            for dimension, value in _items(dimensions, f"the profile of input {name!r}"):
                if type(dimension) is not int or dimension < 0:
                    raise OptionError(
                        f"optimization_profiles has the dimension {dimension!r} of input {name!r}; "
                        "expected an index, 0 or larger"
                    )
                _range(name, dimension, value)
    return tuple(options)


def resolve_profiles(
    program: ExportedProgram, options: Sequence[ProfileOption]
) -> tuple[OptimizationProfile, ...]:
    """Translate a caller's checked profiles into ranges of the program's symbols.

    Raises:
        OptionError: A name is no tensor input, a dimension is not dynamic or not a symbol by
            itself, or a range lies outside the one that export recorded.
    """
    inputs = {
        node.name: node.meta.get("val")
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs
    }
    aliases = _names_in_forward(program)
    return tuple(
        _resolve({aliases.get(name, name): sizes for name, sizes in given.items()}, inputs)
        for given in options
    )


def _names_in_forward(program: ExportedProgram) -> dict[str, str]:
    """Return the placeholders of inputs by their names in ``dynamic_shapes``.

    Both differ if Python has a function of that name: ``input`` is ``input_1`` in the graph.
    """
    names = [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    if signature is None or signature.in_spec.num_leaves != len(names):
        return {}
    args, kwargs = tree_unflatten(names, signature.in_spec)
    given = {**dict(zip(signature.forward_arg_names or (), args, strict=False)), **kwargs}
    return {name: leaf for name, leaf in given.items() if isinstance(leaf, str)}


def _resolve(profile: ProfileOption, inputs: Mapping[str, Any]) -> OptimizationProfile:
    symbols: dict[str, tuple[int, int, int]] = {}
    for name, dimensions in profile.items():
        value = inputs.get(name)
        if not isinstance(value, torch.Tensor):
            raise OptionError(
                f"optimization_profiles names the input {name!r}; the program's tensor inputs are "
                + ", ".join(key for key, item in inputs.items() if isinstance(item, torch.Tensor))
            )
        for dimension, given in dimensions.items():
            wanted = _range(name, dimension, given)
            symbol = _symbol(name, dimension, value, wanted)
            if symbols.setdefault(symbol, wanted) != wanted:
                raise OptionError(
                    f"dimension {dimension} of input {name!r} is the same as one that the profile "
                    f"gives the range {symbols[symbol]}; it cannot also be {wanted}"
                )
    return symbols


def _symbol(name: str, dimension: int, value: torch.Tensor, wanted: tuple[int, int, int]) -> str:
    where = f"dimension {dimension} of input {name!r}"
    if dimension >= value.dim():
        raise OptionError(f"optimization_profiles has {where}, which has {value.dim()} dimensions")
    size = value.shape[dimension]
    if not isinstance(size, torch.SymInt):
        raise OptionError(f"{where} is always {size}; export it with a Dim to make it dynamic")
    expression = size.node.expr
    if not expression.is_Symbol:
        raise OptionError(
            f"{where} is computed from another ({expression}); give that one's range instead"
        )
    try:
        low, _, high = shape_range(size)
    except UnboundedDimension as error:
        raise OptionError(f"{where}: {error}") from error
    if wanted[0] < low or wanted[2] > high:
        raise OptionError(
            f"{where} is {wanted[0]} to {wanted[2]} in a profile, but was exported for {low} to "
            f"{high}; export it with a wider Dim"
        )
    return str(expression)


def _range(name: str, dimension: int, value: object) -> tuple[int, int, int]:
    sizes = (value,) * 3 if type(value) is int else value
    if (
        not isinstance(sizes, Sequence)
        or len(sizes) != 3
        or not all(type(size) is int for size in sizes)
        or not 0 < sizes[0] <= sizes[1] <= sizes[2]
    ):
        raise OptionError(
            f"the range of dimension {dimension} of input {name!r} is {value!r}; expected a size, "
            "or (smallest, best, largest)"
        )
    low, best, high = sizes
    return low, best, high


def _items(mapping: object, what: str) -> list[tuple[Any, Any]]:
    if not isinstance(mapping, Mapping):
        raise OptionError(f"{what} is {mapping!r}; expected a mapping")
    return list(mapping.items())
