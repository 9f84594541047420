"""Models in Python code, named as ``MODULE:CALLABLE``, and their export."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import re
import sys
import tempfile
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import torch
from executorch.exir import (
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from torch.export import ExportedProgram

from trt_et.cli.common import check_model
from trt_et.cli.output import check_output, write_output
from trt_et.cli.steps import Steps
from trt_et.errors import OptionError, RunError, TrtEtError
from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner


class EagerModel(NamedTuple):
    """A model in evaluation mode, and the other arguments of ``torch.export.export``."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any


def load_model(name: str) -> EagerModel:
    """Make the model that ``MODULE:CALLABLE`` names.

    Args:
        name: The module (as imported, or a file's path), a colon, and a function without arguments
            that returns ``(module, example_inputs[, dynamic_shapes])``; the example inputs are a
            tuple, or a dict by name.

    Raises:
        OptionError: The name is malformed, or the module or function does not exist.
        RunError: The function fails, or returns something else.
    """
    check_model(name)
    where, _, attribute = name.rpartition(":")
    module = _import(where)
    function = getattr(module, attribute, None)
    if function is None:
        callables = [key for key, value in vars(module).items() if callable(value)]
        close = get_close_matches(attribute, callables)
        near = f"; did you mean {' or '.join(close)}?" if close else ""
        raise OptionError(f"{where} has no callable {attribute!r}{near}")
    if isinstance(function, torch.nn.Module) or not callable(function):
        raise OptionError(
            f"{name} is {type(function).__name__}; expected a function that returns "
            "(module, example_inputs[, dynamic_shapes])"
        )
    try:
        result = function()
    except Exception as error:  # Any error of the user's own code.
        raise RunError(f"{name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        kind = type(result).__name__
        given = f"{len(result)} values" if isinstance(result, tuple) else kind
        raise RunError(
            f"{name} returns {given}; expected (module, example_inputs[, dynamic_shapes])"
        )
    model, inputs = result[:2]
    if not isinstance(model, torch.nn.Module) or not isinstance(inputs, tuple | dict):
        kinds = f"{type(model).__name__} and {type(inputs).__name__}"
        raise RunError(
            f"{name} returns {kinds}; expected a torch.nn.Module, and a tuple or dict of inputs"
        )
    args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
    return EagerModel(model.eval(), args, kwargs, result[2] if len(result) == 3 else None)


def _import(where: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        assert spec is not None  # The suffix names a loader.
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    except Exception as error:  # Any error of the user's own code.
        raise OptionError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error


_NO_STEPS: Final = Steps()


def explain_model(
    name: str, partitioner: TensorRTPartitioner, steps: Steps = _NO_STEPS
) -> dict[str, Any]:
    """Report what lowering the model would do, without building engines."""
    program = _export(name, steps)
    with steps.step("lower and partition"), _refusals_of_lowering(name):
        return _facts(partitioner.explain(program))


def export_model(
    name: str,
    partitioner: TensorRTPartitioner,
    output: Path,
    steps: Steps = _NO_STEPS,
    *,
    external_engines: bool = False,
) -> dict[str, Any]:
    """Lower the model, write it, and report the result.

    With the partitioner's option ``external_engines``, a second file next to ``output`` has the
    engines.

    Raises:
        RunError: ``torch.export`` or ExecuTorch refuses the model, or the file cannot be written.
        TrtEtError: An engine cannot be built.
    """
    check_output(output)
    exported = _export(name, steps)
    with steps.step("lower, partition and build"), _refusals_of_lowering(name):
        manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    with steps.step("plan memory and write the file"):
        with _refusals_of_lowering(name):
            program = manager.to_executorch(config)
        data = _write_data(program, output.parent) if external_engines else []
        write_output(output, program.write_to_file)
    facts = {"bytes": output.stat().st_size, "file": str(output), "data": data}
    return {**_facts(partitioner.report), **facts}


def _write_data(program: ExecutorchProgramManager, folder: Path) -> list[str]:
    """Write a program's further files; they appear when they are complete."""
    try:
        with tempfile.TemporaryDirectory(prefix=".trt-et-", dir=folder) as unfinished:
            program.write_tensor_data_to_file(unfinished)
            files = sorted(Path(unfinished).iterdir())
            return [str(file.replace(folder / file.name)) for file in files]
    except OSError as error:
        raise RunError(f"the engines cannot be written into {folder}: {error}") from error


# Texts of ExecuTorch's verifiers.
_NOT_CORE: Final = re.compile(r"_core_aten_ops_exception_list=\[torch\.ops\.([^\]]+)\]")
_MISMATCH: Final = re.compile(r"Operator: <EdgeOpOverload: (\S+)>.* with args: (\{.*\})")
_DTYPE: Final = re.compile(r"'(?!__ret_)(\w+)': torch\.(\w+)")


@contextlib.contextmanager
def _refusals_of_lowering(name: str) -> Iterator[None]:
    """Turn an error of ExecuTorch while it lowers the model ``name`` into one sentence."""
    try:
        yield
    except (TrtEtError, OSError):
        raise
    except Exception as error:  # ExecuTorch raises many types, as torch.export does.
        raise RunError(f"{name} cannot be lowered: {_refusal(error)}") from error


def _refusal(error: Exception) -> str:
    text = str(error).strip()
    if operators := _NOT_CORE.findall(text):
        return (
            f"ExecuTorch takes Core ATen operators only, not {', '.join(operators)}; "
            "compute it outside the model"
        )
    if calls := _MISMATCH.findall(text):
        names = ", ".join(
            f"{operator} ({', '.join(map(' '.join, _DTYPE.findall(dtypes)))})"
            for operator, dtypes in calls
        )
        return (
            f"operators have inputs of different dtypes: {names}; give the inputs the model's dtype"
        )
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


# torch.export's message names the line of the model that failed.
_CALL: Final = re.compile(
    r"The following call raised this error:\n  File \"(.+)\", line (\d+), in .+\n +(.+)"
)


def export_module(name: str, model: EagerModel) -> ExportedProgram:
    """Call ``torch.export``.

    Raises:
        RunError: ``torch.export`` refuses the model ``name``; the message has one line.
    """
    # It logs a traceback of many lines before the error, which has the same facts.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    try:
        return torch.export.export(
            model.module, model.args, model.kwargs, dynamic_shapes=model.dynamic_shapes
        )
    except Exception as error:  # torch.export raises many types if it cannot trace a model.
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        source = "".join(f", at {Path(p).name}:{n}: {s}" for p, n, s in _CALL.findall(str(error)))
        raise RunError(
            f"torch.export refuses {name}: {type(error).__name__}: {first}{source}"
        ) from error


def _export(name: str, steps: Steps) -> ExportedProgram:
    with steps.step("load the model"):
        model = load_model(name)
    with steps.step("torch.export"):
        return export_module(name, model)


def _facts(report: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"engines": len(report.partitions), "lines": str(report).splitlines()}
