"""Builds engines: builders, the builds of an export, workers and the engine cache.

A caller's own builder, such as a remote build service, derives from ``EngineBuilder``.

==============  ===========================  ==================================================
name            needs                        gives
==============  ===========================  ==================================================
tensorrt        an NVIDIA GPU,               a TensorRT engine for that GPU
                torch-tensorrt
tensorrt_rtx    torch-tensorrt-rtx; or       a TensorRT-RTX engine for one or several compute
                tensorrt-rtx and onnx        capabilities; no GPU needed
onnx            onnx, onnxscript             the partition as an ONNX model; the runtime builds
                                             the engine, for the GPU that it finds
reference       nothing                      the partition as a nested ExecuTorch program, which
                                             CPU kernels run on *simulated* GPUs
auto            one of the first two         the best real one; never ``reference``
==============  ===========================  ==================================================
"""

from __future__ import annotations

from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.engines.libraries import make_builder
from trt_et.options import BuildOptions

__all__ = ["BuildOptions", "BuildRequest", "EngineBuilder", "make_builder"]
