"""The few functions of the CUDA runtime that the scripts call.

Without PyTorch, which may have been built without CUDA.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["CudaRuntime"]


class CudaRuntime:
    """Calls of ``libcudart`` on the first GPU; a failure is a RuntimeError."""

    def __init__(self) -> None:
        name = os.environ.get("TRT_ET_CUDART_LIBRARY", "libcudart.so.13")
        self._library = ctypes.CDLL(name)

    def allocate(self, size: int) -> int:
        """The address of so many zero bytes on the GPU, which are never given back."""
        pointer = ctypes.c_void_p()
        self._call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        self._call("cudaMemset", pointer, 0, ctypes.c_size_t(size))
        return int(pointer.value or 0)

    def create_stream(self) -> int:
        """The handle of a new stream."""
        stream = ctypes.c_void_p()
        self._call("cudaStreamCreate", ctypes.byref(stream))
        return int(stream.value or 0)

    def wait(self, stream: int) -> None:
        """Until all of the stream is done."""
        self._call("cudaStreamSynchronize", ctypes.c_void_p(stream))

    def used_memory(self) -> int:
        """Bytes of the GPU that are in use, by anybody, once all work is done."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cudaDeviceSynchronize")
        self._call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} failed with error {code}")
