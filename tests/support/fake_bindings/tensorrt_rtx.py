"""What the Python provider uses of TensorRT-RTX's bindings, over engines that are JSON.

An engine {"factor": 2, ...} multiplies its input by that. CUDA is tests/support/fake_cuda.c, whose
memory is the host's and whose streams do not queue. "fail" names a call that fails, "raise" one
that raises.
"""

from __future__ import annotations

import ctypes
import enum
import json
import math
import os
import time

__version__ = "1.5.0.114"

DataType = enum.Enum("DataType", "FLOAT HALF INT32 FP8")
TensorIOMode = enum.Enum("TensorIOMode", "NONE INPUT OUTPUT")
TensorLocation = enum.Enum("TensorLocation", "DEVICE HOST")
TensorFormat = enum.Enum("TensorFormat", "LINEAR CHW4")


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    def __init__(self) -> None:
        pass


def complain(logger: ILogger, reason: str) -> None:
    """As the real one does: what is wrong, then where it noticed."""
    logger.log(ILogger.ERROR, reason)
    logger.log(ILogger.ERROR, "[checkMacros.cpp::catchCudaError::229] Error Code 1: Cuda Runtime")


class Runtime:
    made = 0

    def __init__(self, logger: ILogger) -> None:
        Runtime.made += 1
        self.logger = logger
        if "FAKE_TENSORRT_NO_START" in os.environ:
            complain(logger, "CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def deserialize_cuda_engine(self, data: memoryview) -> Engine | None:
        facts = json.loads(bytes(data))
        time.sleep(facts.get("seconds", 0))  # As the real one, it lets go of the GIL.
        if facts.get("fail") == "deserialize":
            complain(self.logger, "Magic tag does not match")
            return None
        return Engine(facts, self.logger)


class Engine:
    made = 0

    def __init__(self, facts: dict, logger: ILogger) -> None:
        Engine.made += 1
        self.facts, self.logger = facts, logger
        self.num_io_tensors = facts.get("count", 2)
        self.num_optimization_profiles = len(facts.get("profiles", [0]))

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        if name == self.facts["input"]:
            return TensorIOMode.INPUT
        return TensorIOMode.OUTPUT if name == self.facts["output"] else TensorIOMode.NONE

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation[self.facts.get("location", "DEVICE")]

    def get_tensor_format(self, name: str) -> TensorFormat:
        return TensorFormat[self.facts.get("format", "LINEAR")]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self.facts.get("dtype", "FLOAT")]

    def get_tensor_shape(self, name: str) -> list[int]:
        return self.facts["shape"]

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[list[int]]:
        low, high = self.facts["profiles"][profile]
        return [low, high, high]

    def create_execution_context(self) -> ExecutionContext | None:
        return None if self.facts.get("fail") == "context" else ExecutionContext(self)


class ExecutionContext:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.shape = engine.facts["shape"]
        self.profile = 0
        self.addresses: dict[str, int] = {}

    def _call(self, name: str) -> bool:
        if self.engine.facts.get("raise") == name:
            raise RuntimeError(f"from {name}")
        if self.engine.facts.get("fail") == name:
            complain(self.engine.logger, f"log of {name}")
            return False
        return True

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self.profile = profile
        return self._call("profile")

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, high = self.engine.facts["profiles"][self.profile]
        assert all(a <= s <= b for a, s, b in zip(low, shape, high, strict=True))
        self.shape = list(shape)
        return self._call("set_input_shape")

    def get_tensor_shape(self, name: str) -> list[int]:
        return [-1] if self.engine.facts.get("late") else self.shape

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return self._call("set_tensor_address")

    def execute_async_v3(self, stream: int) -> bool:
        time.sleep(self.engine.facts.get("run_seconds", 0))  # Without the GIL, too.
        if not self._call("execute") or not stream:
            return False
        facts, count = self.engine.facts, math.prod(self.shape)
        array = ctypes.c_float * count
        source = array.from_address(self.addresses[facts["input"]])
        target = array.from_address(self.addresses[facts["output"]])
        for i in range(count):
            target[i] = source[i] * facts["factor"]
        return True
