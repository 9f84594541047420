"""What a ``.pte`` holds: delegates of every backend, their engines, devices, memory and copies.

Nothing here imports torch or ExecuTorch: programs are read straight from the file, which may be
larger than memory.
"""

from __future__ import annotations

from trt_et.inspection.model import CopyInfo, DelegateInfo, DeviceUse, MethodInfo, ProgramInfo
from trt_et.inspection.program import inspect_file, inspect_program

__all__ = [
    "CopyInfo",
    "DelegateInfo",
    "DeviceUse",
    "MethodInfo",
    "ProgramInfo",
    "inspect_file",
    "inspect_program",
]
