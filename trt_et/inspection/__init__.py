"""Reads a ``.pte``: delegates of every backend, their engines, devices, memory and copies.

``tables`` and ``page`` show these facts, and the facts of a partitioner's report.
No module of this package imports torch. It maps a file into memory; the file may be larger than
the memory.
"""

from __future__ import annotations

from trt_et.inspection.kernels import EngineKernels, Kernel, read_kernels
from trt_et.inspection.model import (
    Call,
    CopyInfo,
    DelegateInfo,
    DeviceUse,
    MethodInfo,
    ProgramInfo,
    TensorValue,
)
from trt_et.inspection.reader import inspect_file, inspect_program, read_program

__all__ = [
    "Call",
    "CopyInfo",
    "DelegateInfo",
    "DeviceUse",
    "EngineKernels",
    "Kernel",
    "MethodInfo",
    "ProgramInfo",
    "TensorValue",
    "inspect_file",
    "inspect_program",
    "read_kernels",
    "read_program",
]
