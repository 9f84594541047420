"""Engines and execution contexts over the Python bindings of TensorRT and TensorRT-RTX.

What python_provider.py puts behind the C table. The bindings are a parameter everywhere: nothing
here imports TensorRT.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any, Final

logger = logging.getLogger("trt_et.tensorrt")

Shape = tuple[int, ...]


class Code:
    """ExecuTorch's error codes (executorch/runtime/core/error.h)."""

    INTERNAL: Final = 0x01
    INVALID_STATE: Final = 0x02
    NOT_SUPPORTED: Final = 0x10
    INVALID_ARGUMENT: Final = 0x12
    NOT_FOUND: Final = 0x20
    MEMORY_ALLOCATION_FAILED: Final = 0x21
    INVALID_PROGRAM: Final = 0x23
    INVALID_COMPATIBILITY: Final = 0x30


class EngineFailure(Exception):
    """A failure with ExecuTorch's code for it. Never leaves the provider."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


# TensorRT's names of the types that ExecuTorch has, and ExecuTorch's numbers for them.
_DTYPES: Final = {
    "UINT8": 0,
    "INT8": 1,
    "INT32": 3,
    "INT64": 4,
    "HALF": 5,
    "FLOAT": 6,
    "BOOL": 11,
    "BF16": 15,
}


@dataclass(frozen=True)
class Binding:
    """One input or output, as the blob names it (dtype -1, shape None: it does not say more)."""

    name: str
    is_input: bool
    dtype: int = -1
    shape: Shape | None = None


@dataclass
class Tensor:
    """One input or output, as the engine has it."""

    name: str
    is_input: bool
    dtype: int
    shape: Shape
    profiles: list[tuple[Shape, Shape]] = field(default_factory=list)
    alias_of: int = -1

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension is not fixed."""
        return any(size < 0 for size in self.shape)


class Bindings:
    """One flavour of TensorRT: its Python module, its log, and one runtime per GPU."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401
        self.module = module
        self._lock = threading.Lock()
        self._runtimes: dict[int, Any] = {}
        self._reasons: dict[int, str] = {}
        self._logger = self._make_logger()

    def runtime(self, device: int) -> Any:  # noqa: ANN401
        """The runtime for a GPU, which is the current one."""
        with self._lock:
            if device not in self._runtimes:
                self.forget()
                try:
                    self._runtimes[device] = self.module.Runtime(self._logger)
                except TypeError as error:  # What the bindings make of a null pointer.
                    what = f"{self.module.__name__} does not start on cuda:{device}"
                    raise EngineFailure(Code.INVALID_STATE, self.explain(what)) from error
            return self._runtimes[device]

    def forget(self) -> None:
        """Drop this thread's error."""
        self._reasons.pop(threading.get_ident(), None)

    def explain(self, what: str) -> str:
        """The sentence with the first error that TensorRT logged about it on this thread.

        It says what is wrong first, and then in which of its own files it noticed.
        """
        reason = self._reasons.pop(threading.get_ident(), "")
        return f"{what}: {reason}" if reason else what

    def _make_logger(self) -> Any:  # noqa: ANN401
        trt, reasons = self.module, self._reasons
        levels = {
            trt.ILogger.INTERNAL_ERROR: logging.ERROR,
            trt.ILogger.ERROR: logging.ERROR,
            trt.ILogger.WARNING: logging.WARNING,
            trt.ILogger.INFO: logging.INFO,
        }

        class Logger(trt.ILogger):  # type: ignore[name-defined]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, text: str) -> None:  # noqa: ANN401
                level = levels.get(severity, logging.DEBUG)
                if level == logging.ERROR:
                    reasons.setdefault(threading.get_ident(), text)
                logger.log(level, "%s", text)

        return Logger()


class Engine:
    """A deserialized engine. Shared by threads; TensorRT's engine allows it."""

    def __init__(
        self, bindings: Bindings, data: memoryview, device: int, named: list[Binding], built: str
    ) -> None:
        self.bindings = bindings
        bindings.forget()
        self.engine = bindings.runtime(device).deserialize_cuda_engine(data)
        if self.engine is None:
            have = getattr(bindings.module, "__version__", "?")
            what = f"{bindings.module.__name__} {have} refuses an engine of {built or '?'}"
            raise EngineFailure(Code.INVALID_COMPATIBILITY, bindings.explain(what))
        if self.engine.num_io_tensors != len(named):
            raise EngineFailure(
                Code.INVALID_PROGRAM,
                f"engine has {self.engine.num_io_tensors} inputs and outputs, its blob names "
                f"{len(named)}",
            )
        self.tensors = [self._read(binding) for binding in named]
        self._find_aliases()

    def _read(self, binding: Binding) -> Tensor:
        trt, engine, name = self.bindings.module, self.engine, binding.name
        mode = engine.get_tensor_mode(name)
        wanted = trt.TensorIOMode.INPUT if binding.is_input else trt.TensorIOMode.OUTPUT
        if mode != wanted:
            what = "input" if binding.is_input else "output"
            raise EngineFailure(Code.INVALID_PROGRAM, f"engine has no {what} '{name}'")
        if engine.get_tensor_location(name) != trt.TensorLocation.DEVICE:
            raise EngineFailure(
                Code.NOT_SUPPORTED, f"'{name}' is a shape on the host, which trt-et does not pass"
            )
        if engine.get_tensor_format(name) != trt.TensorFormat.LINEAR:
            raise EngineFailure(
                Code.NOT_SUPPORTED, f"'{name}' wants a memory layout that is not linear"
            )
        dtype = _DTYPES.get(engine.get_tensor_dtype(name).name, -1)
        if dtype < 0:
            raise EngineFailure(
                Code.NOT_SUPPORTED, f"'{name}' has a dtype that ExecuTorch does not have"
            )
        tensor = Tensor(name, binding.is_input, dtype, tuple(engine.get_tensor_shape(name)))
        if tensor.is_input and tensor.is_dynamic:
            for profile in range(engine.num_optimization_profiles):
                low, _, high = engine.get_tensor_profile_shape(name, profile)
                tensor.profiles.append((tuple(low), tuple(high)))
        _check_agreement(binding, tensor)
        return tensor

    def _find_aliases(self) -> None:
        find = getattr(self.engine, "get_aliased_input_tensor", None)
        inputs = {tensor.name: i for i, tensor in enumerate(self.tensors) if tensor.is_input}
        for tensor in self.tensors:
            if find is not None and not tensor.is_input:
                tensor.alias_of = inputs.get(find(tensor.name) or "", -1)

    def profile_for(self, shapes: dict[int, Shape], current: int) -> int:
        """The optimization profile that takes these inputs; the current one where it does."""
        count = self.engine.num_optimization_profiles
        for profile in sorted(range(count), key=lambda p: (p != current, p)):
            if all(self._fits(index, shape, profile) for index, shape in shapes.items()):
                return profile
        wrong = " ".join(
            f"{self.tensors[i].name[:30]}{list(shape)}"
            for i, shape in shapes.items()
            if self.tensors[i].is_dynamic
        )
        raise EngineFailure(
            Code.INVALID_ARGUMENT,
            f"none of the engine's {count} optimization profiles takes {wrong}",
        )

    def _fits(self, index: int, shape: Shape, profile: int) -> bool:
        tensor = self.tensors[index]
        if not tensor.is_dynamic:
            return True
        low, high = tensor.profiles[profile]
        return all(a <= size <= b for a, size, b in zip(low, shape, high, strict=True))


def _check_agreement(binding: Binding, tensor: Tensor) -> None:
    """What the delegate checks of its arguments, it knows from the blob."""
    if binding.shape is None or binding.dtype < 0:
        return
    same = binding.dtype == tensor.dtype and len(binding.shape) == len(tensor.shape)
    # A dimension that the blob fixes may be dynamic in the engine.
    same = same and all(
        said == found or (said >= 0 and found < 0)
        for said, found in zip(binding.shape, tensor.shape, strict=True)
    )
    # A 0-d tensor may be [1] to the engine.
    scalar = binding.dtype == tensor.dtype and binding.shape == () and tensor.shape in ((), (1,))
    if not same and not scalar:
        raise EngineFailure(
            Code.INVALID_PROGRAM,
            f"blob and engine disagree on '{tensor.name}', which is {list(tensor.shape)} to the "
            "engine",
        )


class Context:
    """An execution context: used by one thread at a time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        engine.bindings.forget()
        self.context = engine.engine.create_execution_context()
        if self.context is None:
            raise EngineFailure(
                Code.MEMORY_ALLOCATION_FAILED,
                engine.bindings.explain("TensorRT gives no execution context"),
            )
        self._shapes: dict[int, Shape] = {}
        self._profile = 0

    def set_input_shape(self, index: int, shape: Shape) -> None:
        """Note a shape for :meth:`prepare`."""
        tensor = self._tensor(index)
        if shape == () and tensor.shape == (1,):
            shape = (1,)
        if len(shape) != len(tensor.shape):
            raise EngineFailure(
                Code.INVALID_ARGUMENT,
                f"input '{tensor.name}' has rank {len(shape)}, expected {len(tensor.shape)}",
            )
        self._shapes[index] = shape

    def prepare(self, stream: int) -> None:
        """Choose the profile for the shapes, then set them."""
        self.engine.bindings.forget()
        profile = self.engine.profile_for(self._shapes, self._profile)
        if profile != self._profile:
            changed = self.context.set_optimization_profile_async(profile, stream)
            self._check(changed, f"TensorRT does not change to optimization profile {profile}")
            self._profile = profile
        for index, shape in self._shapes.items():
            tensor = self._tensor(index)
            if tensor.is_dynamic:
                fits = self.context.set_input_shape(tensor.name, shape)
                what = f"TensorRT refuses shape {list(shape)} of '{tensor.name}'"
                self._check(fits, what, Code.INVALID_ARGUMENT)

    def output_shape(self, index: int) -> Shape:
        """The shape that an output has for the inputs' shapes."""
        tensor = self._tensor(index)
        shape = tuple(self.context.get_tensor_shape(tensor.name))
        if any(size < 0 for size in shape):
            raise EngineFailure(
                Code.NOT_SUPPORTED,
                f"the shape of '{tensor.name}' depends on data: that needs the native loader",
            )
        return shape

    def set_address(self, index: int, address: int) -> None:
        """Set the memory of an input or output."""
        self.engine.bindings.forget()
        name = self._tensor(index).name
        taken = self.context.set_tensor_address(name, address)
        self._check(taken, f"TensorRT refuses the memory of '{name}'", Code.INVALID_ARGUMENT)

    def enqueue(self, stream: int) -> None:
        """Queue one run."""
        self.engine.bindings.forget()
        self._check(self.context.execute_async_v3(stream), "TensorRT cannot queue the engine")

    def _tensor(self, index: int) -> Tensor:
        if index >= len(self.engine.tensors):
            raise EngineFailure(Code.INVALID_ARGUMENT, f"engine has no binding {index}")
        return self.engine.tensors[index]

    def _check(self, fine: bool, what: str, code: int = Code.INTERNAL) -> None:
        if not fine:
            raise EngineFailure(code, self.engine.bindings.explain(what))
