"""A model in Python code, named as ``MODULE:CALLABLE``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from trt_et.errors import OptionError, RunError

__all__ = ["load_model"]


def load_model(name: str) -> tuple[Any, tuple[Any, ...], Any]:
    """Call what ``MODULE:CALLABLE`` names.

    Args:
        name: The module (as imported, or a file's path) and, behind ``:``, a function without
            arguments in it that returns ``(module, example_inputs[, dynamic_shapes])``.

    Returns:
        The module in evaluation mode, its example inputs, and its dynamic shapes or None.

    Raises:
        OptionError: The name is malformed, or there is no such thing.
        RunError: The callable fails, or returns something else.
    """
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise OptionError(f"{name!r} is not MODULE:CALLABLE")
    function = getattr(_import(where), attribute, None)
    if not callable(function):
        raise OptionError(f"{where} has no callable {attribute!r}")
    try:
        result = function()
    except Exception as error:  # Any error of the user's own code.
        raise RunError(f"{name} fails: {type(error).__name__}: {error}") from error
    import torch

    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise RunError(f"{name} does not return (module, example_inputs[, dynamic_shapes])")
    module, inputs = result[:2]
    if not isinstance(module, torch.nn.Module) or not isinstance(inputs, tuple):
        kinds = f"{type(module).__name__} and {type(inputs).__name__}"
        raise RunError(f"{name} returns {kinds}; expected a torch.nn.Module and a tuple of inputs")
    return module.eval(), inputs, result[2] if len(result) == 3 else None


def _import(where: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            if spec is None or spec.loader is None:
                raise OptionError(f"{where} cannot be imported: it is not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return module
        return importlib.import_module(where)
    except OptionError:
        raise
    except Exception as error:  # Any error of the user's own code.
        raise OptionError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
