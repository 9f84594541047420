"""Inputs of a program: from files, from numbers, or random."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from trt_et.errors import OptionError, RunError
from trt_et.inspection import MethodInfo, TensorValue
from trt_et.runtime.layout import inverse, lay_out

_ARRAYS: Final = (".npy", ".npz")
_UNNAMED: Final = re.compile(r"arr_\d+")  # As ``numpy.savez`` calls arrays without a name.
_AT_MOST: Final = 1 << 34  # Bytes of one input: a damaged file can ask for any size.


def make_inputs(
    method: MethodInfo,
    sources: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
    seed: int,
) -> list[Any]:
    """Make one value for each input of a method.

    Args:
        method: The method, whose tensors have the types and sizes of the inputs.
        sources: Files (``.npy``, ``.npz``, raw bytes) or numbers in the order of the inputs; a
            ``.npz`` whose arrays have the inputs' names may have another order. Empty: random
            floats, and integers that are 0 or 1.
        shapes: Sizes of random and raw inputs of dynamic sizes, by index.
        seed: The seed of random inputs.

    Raises:
        OptionError: There are too many or too few, one has another type or shape, or a file names
            some inputs and not the others.
        RunError: A file cannot be read.
    """
    expected = method.inputs
    names = input_names(method)
    labels = _labels(names)
    sizes = [shapes.get(str(index)) for index in range(len(expected))]
    if unknown := sorted(set(map(int, shapes)) - set(range(len(expected)))):
        raise OptionError(
            f"there is no input {unknown[0]}; the method has {len(expected)}, counted from 0"
        )
    if not sources:
        generator = torch.Generator().manual_seed(seed)
        values = [
            _random(label, value, shape, generator)
            for label, value, shape in zip(labels, expected, sizes, strict=True)
        ]
        return lay_out(method.inputs, values)
    given: list[Any] = []
    for source in sources:
        given += _in_order(source, _read(source), names, len(given))
    _check_count(method, given)
    values = [_convert(*parts) for parts in zip(labels, expected, given, sizes, strict=True)]
    values = lay_out(method.inputs, values)
    check_inputs(method, values)
    return values


def input_names(method: MethodInfo) -> list[str]:
    """Return the model's names of a method's inputs; one is empty if no engine takes the input."""
    names = method.value_names
    return [names.get(index, "") for index in method.input_values]


def order_by_name(names: Sequence[str], given: Collection[str]) -> list[str] | None:
    """Return given names in the order of the inputs; None if they are not the inputs' names.

    Args:
        names: The names of the inputs. One may be empty: it gets the remaining name.
        given: The names to put in order.
    """
    left = [name for name in given if name not in names]
    if len(given) != len(names) or len(left) != names.count("") or len(left) > 1:
        return None
    return [name or left[0] for name in names]


def _in_order(source: str, read: Any, names: Sequence[str], begin: int = 0) -> list[Any]:  # noqa: ANN401
    """Return what ``_read`` returned, for the inputs from index ``begin`` on."""
    if not isinstance(read, dict):
        return [read]
    order = order_by_name(names[begin : begin + len(read)], read)
    if order is None and not read.keys().isdisjoint(names):
        raise OptionError(
            f"{source} has the arrays {', '.join(read)}; the inputs are "
            f"{', '.join(_labels(names))}: name each array as its input, or save all without "
            "names, in the order of the inputs"
        )
    return [read[name] for name in order or read]


def _labels(names: Sequence[str]) -> list[str]:
    return [f"input {at} ({name})" if name else f"input {at}" for at, name in enumerate(names)]


def read_calibration(sources: Sequence[Path], model: str) -> list[tuple[Any, ...]]:
    """Read the option ``calibration`` of the partitioner.

    Args:
        sources: Files (``.npy``, ``.npz``), each with the inputs of one call, in order or with the
            names of the inputs, or folders of such files.
        model: ``MODULE:CALLABLE``. It is made if a file has names.

    Raises:
        OptionError: A file has another type or names some inputs and not the others, or a folder
            lacks a file.
        RunError: A file cannot be read.
    """
    calls = []
    names: list[str] | None = None
    for source in sources:
        files = [source]
        if source.is_dir():
            files = sorted(file for file in source.iterdir() if file.suffix in _ARRAYS)
        if not files or files[0].suffix not in _ARRAYS:
            raise OptionError(
                f"the calibration {source} is no .npy or .npz file, or folder of them"
            )
        for file in files:
            read = _read(str(file))
            if names is None and isinstance(read, dict) and not all(map(_UNNAMED.fullmatch, read)):
                names = _forward_names(model)
            calls.append(tuple(map(torch.as_tensor, _in_order(str(file), read, names or ()))))
    return calls


def _forward_names(model: str) -> list[str]:
    from trt_et.cli.models import load_model

    module, args, kwargs, _ = load_model(model)
    if not all(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values())):
        return []  # The inputs of the program are the tensors inside.
    return [*kwargs] or [*inspect.signature(module.forward).parameters][: len(args)]


def check_inputs(method: MethodInfo, values: Sequence[Any]) -> None:
    """Check that a method takes these values.

    Raises:
        OptionError: There are too many or too few, or a tensor has another type, shape or layout
            in memory.
    """
    _check_count(method, values)
    labels = _labels(input_names(method))
    for label, expected, value in zip(labels, method.inputs, values, strict=True):
        if expected is None or not isinstance(value, torch.Tensor):
            continue
        if value.dtype != (dtype := getattr(torch, expected.dtype)):
            raise OptionError(f"{label} is {value.dtype}; expected {dtype}")
        _check_sizes(label, expected, tuple(value.shape))
        _check_layout(label, expected, value)


def _check_layout(label: str, expected: TensorValue, value: torch.Tensor) -> None:
    """Check the strides: ExecuTorch's Python binding copies memory without a look at them."""
    order = expected.dim_order
    if value.permute(order or tuple(range(value.dim()))).is_contiguous():
        return
    is_image = value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
    layout = "is channels_last" if is_image else f"has the strides {list(value.stride())}"
    if not order:
        raise OptionError(f"{label} {layout}; pass input.contiguous()")
    wanted = "channels_last" if order == (0, 2, 3, 1) else f"the dimension order {list(order)}"
    copy = ", memory_format=torch.channels_last" if order == (0, 2, 3, 1) else ""
    raise OptionError(
        f"{label} {layout}; expected {wanted}, as the program was exported: "
        + (f"pass input.contiguous({copy[2:]})" if copy else "lay it out in that order")
    )


def _check_count(method: MethodInfo, values: Sequence[Any]) -> None:
    if len(values) != len(names := input_names(method)):
        count = f"{len(values)} input{'' if len(values) == 1 else 's'}"
        known = f": {', '.join(names)}" if names and all(names) else ""
        raise OptionError(f"got {count}; {method.name} takes {len(names)}{known}")


def _check_sizes(label: str, value: TensorValue, shape: Sequence[int] | None) -> tuple[int, ...]:
    """Return the sizes of an input: ``shape``, or else the largest."""
    sizes = value.sizes if shape is None else tuple(shape)
    fits = len(sizes) == len(value.sizes) and all(
        size == most or (value.is_dynamic and 0 <= size <= most)
        for size, most in zip(sizes, value.sizes, strict=True)
    )
    if not fits:
        most = "at most " if value.is_dynamic else ""
        raise OptionError(
            f"{label} has the sizes {list(sizes)}; expected {most}{list(value.sizes)}"
        )
    if math.prod(sizes) * max(1, value.nbytes // max(1, math.prod(value.sizes))) > _AT_MOST:
        raise RunError(f"{label} of the sizes {list(sizes)} is larger than 16 GiB")
    return sizes


def _random(
    label: str,
    value: TensorValue | None,
    shape: Sequence[int] | None,
    generator: torch.Generator,
) -> torch.Tensor:
    if value is None:
        raise OptionError(f"{label} is no tensor: give every input with --input")
    sizes = _check_sizes(label, value, shape)
    dtype = getattr(torch, value.dtype, None)
    if dtype is None:
        raise OptionError(f"{label} has the type {value.dtype}, which is not supported here")
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, generator=generator).to(dtype)
    return torch.randint(0, 2, sizes, generator=generator).to(dtype)


def _read(source: str) -> Any:  # noqa: ANN401
    """Return a number, an array, bytes, or the arrays of a ``.npz`` by name."""
    try:
        return int(source)
    except ValueError:
        pass
    path = Path(source)
    if path.suffix in (".pt", ".pth"):
        raise OptionError(
            f"the input {source} would be read as raw bytes, like every file that is no .npy or "
            ".npz: save the tensor with numpy.save"
        )
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RunError(f"the input {source} cannot be read: {reason}") from error


def _convert(
    label: str,
    value: TensorValue | None,
    given: Any,  # noqa: ANN401
    shape: Sequence[int] | None,
) -> Any:  # noqa: ANN401
    if value is None:
        return given.item() if isinstance(given, np.ndarray) and given.ndim == 0 else given
    dtype = getattr(torch, value.dtype)
    if isinstance(given, bytes):
        sizes = _check_sizes(label, value, shape)
        needed = math.prod(sizes) * dtype.itemsize
        if len(given) != needed:
            raise OptionError(f"{label} has {len(given)} bytes; expected {needed}")
        if not given:
            return torch.empty(sizes, dtype=dtype)
        order = value.dim_order or tuple(range(len(sizes)))
        memory = torch.frombuffer(bytearray(given), dtype=dtype).reshape([sizes[d] for d in order])
        return memory.permute(inverse(order))
    tensor = torch.as_tensor(np.ascontiguousarray(given) if np.ndim(given) else given)
    # NumPy lacks some types, and a number on the command line has none.
    has_type = isinstance(given, np.ndarray) and hasattr(np, value.dtype)
    return tensor if has_type else tensor.to(dtype)
