"""Models in Python code, named as ``MODULE:CALLABLE``, and their export."""

from __future__ import annotations

import importlib
import importlib.util
import re
import secrets
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from torch.export import ExportedProgram

from trt_et.cli.steps import Steps
from trt_et.errors import OptionError, RunError
from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner

__all__ = ["EagerModel", "explain_model", "export_model", "export_module", "load_model"]


class EagerModel(NamedTuple):
    """A model, and how ``torch.export`` shall export it.

    Attributes:
        module: The model, in evaluation mode.
        args: Its example inputs by position.
        kwargs: Its example inputs by name.
        dynamic_shapes: As ``torch.export.export`` takes them, or None.
    """

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
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise OptionError(f"{name!r} is not MODULE:CALLABLE, such as model.py:make")
    function = getattr(_import(where), attribute, None)
    if not callable(function):
        raise OptionError(f"{where} has no callable {attribute!r}")
    if isinstance(function, torch.nn.Module):
        raise OptionError(
            f"{name} is a {type(function).__name__}; expected a function that returns "
            "(module, example_inputs[, dynamic_shapes])"
        )
    try:
        result = function()
    except Exception as error:  # Any error of the user's own code.
        raise RunError(f"{name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise RunError(f"{name} does not return (module, example_inputs[, dynamic_shapes])")
    module, inputs = result[:2]
    if not isinstance(module, torch.nn.Module) or not isinstance(inputs, tuple | dict):
        kinds = f"{type(module).__name__} and {type(inputs).__name__}"
        raise RunError(
            f"{name} returns {kinds}; expected a torch.nn.Module, and a tuple or dict of inputs"
        )
    args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
    return EagerModel(module.eval(), args, kwargs, result[2] if len(result) == 3 else None)


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
    with steps.step("lower and partition"):
        return _facts(partitioner.explain(program))


def export_model(
    name: str, partitioner: TensorRTPartitioner, output: Path, steps: Steps = _NO_STEPS
) -> dict[str, Any]:
    """Lower the model, write it, and report the result.

    Raises:
        RunError: ``torch.export`` refuses the model, or the file cannot be written.
        TrtEtError: An engine cannot be built.
    """
    if not output.parent.is_dir():  # Engines can take minutes to build.
        raise RunError(f"{output} cannot be written: there is no folder {output.parent}")
    if output.is_dir():
        raise RunError(f"{output} cannot be written: it is a folder")
    exported = _export(name, steps)
    with steps.step("lower, partition and build"):
        manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    with steps.step("plan memory and write the file"):
        _write(manager.to_executorch(config), output)
    return {**_facts(partitioner.report), "bytes": output.stat().st_size, "file": str(output)}


def _write(program: Any, output: Path) -> None:  # noqa: ANN401
    unfinished = output.with_name(f"{output.name}.{secrets.token_hex(4)}.part")
    try:
        with unfinished.open("xb") as file:
            program.write_to_file(file)
        unfinished.replace(output)
    except OSError as error:
        raise RunError(f"{output} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


# torch.export's message names the line of the model that failed.
_CALL: Final = re.compile(
    r"The following call raised this error:\n  File \"(.+)\", line (\d+), in .+\n +(.+)"
)


def export_module(name: str, model: EagerModel) -> ExportedProgram:
    """Call ``torch.export``.

    Raises:
        RunError: ``torch.export`` refuses the model ``name``; the message has one line.
    """
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
