"""Compares the outputs of a program and of its engines with the eager model's."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from trt_et.cli.arrays import compare_arrays, to_numpy
from trt_et.cli.common import check_plot
from trt_et.cli.inputs import (
    check_inputs,
    input_names,
    make_inputs,
    order_by_name,
)
from trt_et.cli.models import EagerModel, export_module, load_model
from trt_et.cli.partition_comparison import compare_partitions
from trt_et.cli.program import LoadedMethod, Request
from trt_et.errors import OptionError, RunError
from trt_et.inspection.tables import Shown, Table
from trt_et.runtime.layout import lay_out


class _Writable(Protocol):
    """A program in memory, such as ``ExecutorchProgramManager``."""

    def write_to_file(self, open_file: io.BufferedIOBase) -> None: ...


@dataclass(frozen=True)
class Comparison(Shown):
    """The result of ``trt_et.compare``. ``print`` and notebooks show it as a table.

    Attributes:
        outputs: For each output: its ``name`` (the model's, or empty), ``shape``,
            ``expected_shape``, ``nans``, ``expected_nans``, ``largest_error``,
            ``largest_relative_error`` (to the largest expected value), ``mean_error``, ``cosine``
            and ``snr_db`` (the signal-to-noise ratio in decibels). The last five
            are missing if the shapes differ.
        engines: For each engine, in the order in which they run: ``partition``, ``device``,
            ``modules``, ``operators``, and ``outputs`` with their ``name`` and the same facts.
            Errors of earlier engines do not count.
    """

    outputs: Sequence[Mapping[str, Any]]
    engines: Sequence[Mapping[str, Any]] = ()

    def rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the name and the facts of each compared tensor: outputs, then engines."""
        for index, facts in enumerate(self.outputs):
            yield f"output {facts.get('name') or index}", facts
        for engine in self.engines:
            ends = dict.fromkeys([*engine["modules"][:1], *engine["modules"][-1:]])
            within = f" ({' ... '.join(ends)})" if ends else ""
            for facts in engine["outputs"]:
                yield f"{engine['partition']}{within}: {facts['name']}", facts

    def __str__(self) -> str:
        from rich.console import Console

        # In a notebook, rich would also display the table.
        console = Console(file=io.StringIO(), width=140, force_jupyter=False)
        console.print(self)
        return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]

    def tables(self) -> Iterator[Table]:
        """Yield one table, with a row for each compared tensor."""
        rows = []
        for name, facts in self.rows():
            if "largest_error" not in facts:
                shapes = f"{facts['shape']}, expected {facts['expected_shape']}"
                rows.append((name, f"shape {shapes}", "", "", "", ""))
                continue
            cells = (
                f"{facts['largest_error']:.3g}",
                f"{facts['largest_relative_error']:.2e}",
                f"{facts['mean_error']:.3g}",
                f"{facts['cosine']:.6f}",
                f"{facts['snr_db']:.1f}",
            )
            rows.append((name, *cells))
        numbers = ("largest error", "of the largest value", "mean error", "cosine", "SNR, dB")
        yield Table("Compared with the model", ("tensor", *numbers), rows, numbers)

    def plot(self, path: str | Path) -> None:
        """Draw the relative error of each tensor as a bar, the worst first.

        Args:
            path: The file; its suffix chooses the format, such as ``.png`` or ``.svg``.

        Raises:
            OptionError: matplotlib is not installed, or does not know the suffix.
            RunError: The folder of the file does not exist, or it is a folder.
        """
        check_plot(Path(path))
        from matplotlib.figure import Figure

        errors = {
            name: facts.get("largest_relative_error", math.inf) for name, facts in self.rows()
        }
        worst = sorted(errors, key=errors.__getitem__, reverse=True)
        figure = Figure(figsize=(9, 1.2 + 0.3 * len(worst)), layout="constrained")
        axes = figure.subplots()
        finite = [error for error in errors.values() if 0 < error < math.inf] or [1e-6]
        left, right = min(finite) / 10, max(finite) * 10
        # Equal tensors have no bar; those with NaNs or another shape have the longest.
        lengths = [min(max(errors[name], left), right) for name in worst]
        axes.barh(range(len(worst)), lengths, color="#76b900")
        axes.set_yticks(range(len(worst)), worst)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(left, right)
        engines = " and engine" if self.engines else ""
        axes.set_title(f"Largest error of each output{engines}, relative")
        axes.set_xlabel("largest error / largest expected value")
        figure.savefig(path)


def compare(
    program: str | Path | bytes | _Writable,
    model: torch.nn.Module,
    inputs: tuple[Any, ...] | dict[str, Any],
    *,
    method: str = "",
    per_engine: bool = True,
    excluded_ops: Sequence[str] = (),
    min_block_size: int = 1,
    dynamic_shapes: Any = None,  # noqa: ANN401
    cuda: str = "",
) -> Comparison:
    """Run a program and its eager model on the same inputs; compare the outputs and each engine.

    The program runs in this process. Each engine is compared with torch on the inputs that it had.

    Args:
        program: The ``.pte``: a path, its bytes, or what ``to_executorch`` returns. If its engines
            are in a second file, this is read from the folder of the path.
        model: The model that it was exported from.
        inputs: The model's inputs, as a tuple, or a dict by name.
        method: The method. Empty: the first.
        per_engine: Also compare each engine. The program must come from ``TensorRTPartitioner``
            alone, on the plain exported model.
        excluded_ops: As at the export.
        min_block_size: As at the export.
        dynamic_shapes: As at ``torch.export.export``.
        cuda: ``real``, ``simulated:N`` or ``auto:N``. Empty: the value of ``TRT_ET_CUDA``, else
            real.

    Raises:
        OptionError: The inputs do not fit, the model is no module, the program is none or lacks the
            method.
        RunError: The program cannot be run, or was not exported from this model in this way.
    """
    if not isinstance(inputs, tuple | dict):
        raise OptionError(f"inputs is {type(inputs).__name__}; expected a tuple, or a dict by name")
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise OptionError(f"model is {kind}; expected a module: compare(program, model, inputs)")
    if not isinstance(program, str | Path | bytes) and not hasattr(program, "write_to_file"):
        raise OptionError(
            f"program is {type(program).__name__}; expected a .pte file, its bytes or an "
            "ExecutorchProgramManager: call .to_executorch() first"
        )
    args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
    eager = EagerModel(model.eval(), args, kwargs, dynamic_shapes)
    with tempfile.TemporaryDirectory(prefix="trt-et-") as folder:
        file = Path(folder, "program.pte")
        if isinstance(program, str | Path):
            file = Path(program)
        elif isinstance(program, bytes):
            file.write_bytes(program)
        else:
            with file.open("wb") as opened:
                program.write_to_file(opened)
            if write_data := getattr(program, "write_tensor_data_to_file", None):
                write_data(folder)
        request = Request(
            "compare",
            str(file),
            method,
            cuda,
            eager="the model",
            per_partition=per_engine,
            excluded_ops=excluded_ops,
            min_block_size=min_block_size,
        )
        return _compare(request, eager)


def compare_request(request: Request) -> dict[str, Any]:
    """Run the program and the model of a request; the answer has ``Comparison``'s attributes.

    The inputs are the model's example inputs unless the request has inputs or shapes.
    """
    comparison = _compare(request, load_model(request.eager))
    answer: dict[str, Any] = {"outputs": comparison.outputs}
    return answer | ({"partitions": comparison.engines} if request.per_partition else {})


def _compare(request: Request, model: EagerModel) -> Comparison:
    program = LoadedMethod(request)
    if not model.args and (order := order_by_name(input_names(program.method), model.kwargs)):
        # torch.export takes inputs with names in the order of the dict, here maybe another one.
        model = model._replace(kwargs={name: model.kwargs[name] for name in order})
    inputs, spec = pytree.tree_flatten((model.args, model.kwargs))
    if request.inputs or request.shapes:
        inputs = make_inputs(program.method, request.inputs, request.shapes, request.seed)
        _check_equal("takes", "inputs", len(inputs), spec.num_leaves)
    engines: list[dict[str, Any]] = []
    if request.per_partition:  # Before the model is called, which may change its state.
        exported = export_module(request.eager, model)
        engines = compare_partitions(request, program.method, exported, inputs)
    given = lay_out(program.method.inputs, inputs)
    try:
        check_inputs(program.method, given)
    except OptionError as error:
        raise RunError(
            f"the program does not take the model's example inputs: {error}; was it exported "
            "from this model?"
        ) from None
    # The model may write into its inputs.
    copies = [i.clone() if isinstance(i, torch.Tensor) else i for i in given]
    outputs = [to_numpy(value) for value in program(copies)]
    args, kwargs = pytree.tree_unflatten(inputs, spec)
    with torch.no_grad():
        expected = [to_numpy(value) for value in pytree.tree_leaves(model.module(*args, **kwargs))]
    _check_equal("has", "outputs", len(outputs), len(expected))
    compared = map(compare_arrays, outputs, expected)
    named = zip(program.method.output_names, compared, strict=True)
    return Comparison([{"name": name, **facts} for name, facts in named], engines)


def _check_equal(verb: str, what: str, count: int, expected: int) -> None:
    if count != expected:
        raise RunError(
            f"the program {verb} {count} {what}, the model {expected}; was it exported from this "
            "model?"
        )
