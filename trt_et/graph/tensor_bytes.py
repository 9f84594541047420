"""Read the memory of tensors."""

from __future__ import annotations

import ctypes

import torch


def bytes_of(dense: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor, not copied; the tensor must stay alive.

    Unlike numpy, this takes every dtype, rank and quantization of torch.
    """
    size = dense.numel() * dense.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(dense.data_ptr())).cast("B")
