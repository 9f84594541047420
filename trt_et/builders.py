"""Keeps the import path of 0.1.0 for builders of engines; use ``trt_et.engines``."""

from trt_et.engines import BuildOptions, BuildRequest, EngineBuilder

__all__ = ["BuildOptions", "BuildRequest", "EngineBuilder"]
