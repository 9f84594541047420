"""Find the module and the source line of the model that a node comes from."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Final

import torch
from torch.fx import Node

_FRAME: Final = re.compile(
    r'File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)\n\s*(?P<code>.*)'
)
_CODE: Final = 80
_TORCH: Final = str(Path(torch.__file__).parent)


def module_of(node: Node) -> str:
    """Return the path of the innermost module that called the operator; empty if unknown."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((str(path) for path, _ in reversed(stack.values())), "")


def source_of(node: Node) -> str:
    """Return the line of the model that called the operator; empty if ``torch.export`` has none.

    The line is the innermost one outside of torch: ``model.py:7, in forward: return x.cumsum(0)``.
    """
    lines = _FRAME.finditer(node.meta.get("stack_trace") or "")
    frames = [frame for frame in lines if not frame["file"].startswith("<")]  # Generated code.
    own = [frame for frame in frames if not frame["file"].startswith(_TORCH)] or frames
    if not own:
        return ""
    frame = own[-1]
    code = textwrap.shorten(frame["code"], _CODE, placeholder=" ...")
    return f"{Path(frame['file']).name}:{frame['line']}, in {frame['name']}: {code}"
