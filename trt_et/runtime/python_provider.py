"""Runs real engines with the TensorRT packages of pip alone: a provider written in Python.

Fills the C table of ``include/trt_et/engine_provider.h`` with functions over the ``tensorrt`` and
``tensorrt_rtx`` bindings, so that ``executorch.runtime`` runs engines on a GPU where no native
loader of trt-et was built. TensorRT is imported when the first engine is loaded, and never before
the NVIDIA driver has answered: without one it hands out pointers to nothing.

One thread at a time may use ``executorch.runtime`` with it. That runtime's bindings keep the GIL
through a call and redirect ``std::cout`` for it, and TensorRT's let go of the GIL in the middle: a
call of another thread that comes in then is refused. Native loaders have no such limit.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import itertools
import threading
from collections.abc import Callable
from importlib import util
from typing import Any, Final

from trt_et.runtime.python_engine import Binding, Bindings, Code, Context, Engine, EngineFailure

__all__ = ["register"]

_ABI: Final = 3
_MAX_RANK: Final = 16
_ALIGNMENT: Final = 256  # IExecutionContext.set_tensor_address asks for it.
_NO_WAIT: Final = 2
_USER_MEMORY: Final = 1
_NO_BUDGET: Final = -(1 << 63)
_MODULES: Final = {"tensorrt": "tensorrt", "tensorrt_rtx": "tensorrt_rtx"}

_IN_USE: Final = (
    "another thread is using executorch.runtime: with TensorRT's Python bindings, one at a time"
)

_Dims = ctypes.c_int64 * _MAX_RANK


class _BindingStruct(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("is_input", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("alias_of", ctypes.c_int32),
        ("dims", _Dims),
        ("min_dims", _Dims),
        ("max_dims", _Dims),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_char * 4),
        ("builder", ctypes.c_char_p),
        ("library_version", ctypes.c_char_p),
        ("gpu_name", ctypes.c_char_p),
        ("device", ctypes.c_int32),
        ("hardware_compatible", ctypes.c_int32),
        ("bytes", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("bindings", ctypes.POINTER(_BindingStruct)),
        ("binding_count", ctypes.c_size_t),
        ("weight_streaming_budget", ctypes.c_int64),
    ]


_HANDLE = ctypes.POINTER(ctypes.c_void_p)
_DIMS = ctypes.POINTER(ctypes.c_int64)
_RANK = ctypes.POINTER(ctypes.c_int32)
_POINTER = ctypes.c_void_p

# The table's functions, in order: result, arguments. CFUNCTYPE takes the GIL on the way in.
_FUNCTIONS: Final[dict[str, Any]] = {
    "probe": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Request)),
    "load": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Request), _HANDLE),
    "keeps_bytes": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER),
    "describe": ctypes.CFUNCTYPE(
        ctypes.c_int, _POINTER, ctypes.c_size_t, ctypes.POINTER(_BindingStruct)
    ),
    "free_engine": ctypes.CFUNCTYPE(None, _POINTER),
    "create_context": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_uint32, _HANDLE),
    "free_context": ctypes.CFUNCTYPE(None, _POINTER),
    "set_input_shape": ctypes.CFUNCTYPE(
        ctypes.c_int, _POINTER, ctypes.c_size_t, _DIMS, ctypes.c_int32
    ),
    "prepare": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER),
    "output_shape": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_size_t, _DIMS, _RANK),
    "set_address": ctypes.CFUNCTYPE(
        ctypes.c_int, _POINTER, ctypes.c_size_t, _POINTER, ctypes.c_size_t
    ),
    "enqueue": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER),
    "last_error": ctypes.CFUNCTYPE(_POINTER),
}


class _Table(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        *_FUNCTIONS.items(),
        # Optional ones that this provider has not.
        ("memory_size", ctypes.c_void_p),
        ("set_memory", ctypes.c_void_p),
        ("time_layers", ctypes.c_void_p),
        ("check_capture", ctypes.c_void_p),
    ]


class _Provider:
    """The functions behind the table. Handles are numbers: C never holds a Python object."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._flavours: dict[str, Bindings] = {}
        self._numbers = itertools.count(1)
        self._engines: dict[int, Engine] = {}
        self._contexts: dict[int, Context] = {}
        # By native thread: a thread that C started has no Python thread state between two calls.
        self._errors: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._inside = 0  # The thread that is in one of the functions.

    def guard(self, name: str) -> Callable[..., int | None]:
        """The function of that name; whatever it raises becomes an error code and a text."""
        function = getattr(self, name)
        always = name in ("free_engine", "free_context", "keeps_bytes", "last_error")

        def call(*arguments: Any) -> int | None:  # noqa: ANN401
            thread = threading.get_native_id()
            if always:
                result: int | None = function(*arguments)
                return result
            if self._inside not in (0, thread):
                return self._failed(Code.INVALID_STATE, _IN_USE)
            self._inside = thread
            try:
                result = function(*arguments)
            except EngineFailure as error:
                return self._failed(error.code, str(error))
            except MemoryError as error:
                return self._failed(Code.MEMORY_ALLOCATION_FAILED, f"no memory: {error}")
            except BaseException as error:  # C cannot take any exception.
                return self._failed(Code.INTERNAL, f"{type(error).__name__}: {error}")
            finally:
                self._inside = 0
            return result

        return call

    def _failed(self, code: int, text: str) -> int:
        content = " ".join(text.split()).encode(errors="replace")
        self._errors[threading.get_native_id()] = ctypes.create_string_buffer(content)
        return code

    def last_error(self) -> int | None:
        found = self._errors.get(threading.get_native_id())
        return ctypes.addressof(found) if found is not None else None

    def probe(self, request: Any) -> int:  # noqa: ANN401
        facts = request.contents
        if bytes(facts.magic) == b"TRRF":
            raise EngineFailure(Code.NOT_FOUND, "reference engines have a provider of their own")
        self._module_for(facts.builder)
        if self._simulated():
            raise EngineFailure(Code.NOT_FOUND, "real engines do not run on simulated GPUs")
        return 0

    def _simulated(self) -> bool:
        text = ctypes.create_string_buffer(1024)
        self._library.trt_et_status(text, len(text))
        return b'"cuda": "simulated' in text.value

    def _module_for(self, builder: bytes) -> str:
        """Name of the installed bindings for an engine; native loaders were asked before."""
        flavour = builder.decode(errors="replace") or "tensorrt"
        module = _MODULES.get(flavour)
        if module is None:
            raise EngineFailure(Code.NOT_FOUND, f"engine is of the builder '{flavour}'")
        if util.find_spec(module) is None:
            raise EngineFailure(
                Code.NOT_FOUND,
                f"engine for {flavour} needs the package {module}: pip install "
                f"'trt-et[{'rtx' if flavour == 'tensorrt_rtx' else 'tensorrt'}]'",
            )
        return module

    def _bindings(self, request: _Request) -> Bindings:
        name = self._module_for(request.builder)
        if self._library.trt_et_device_count() < 1:
            raise EngineFailure(Code.NOT_FOUND, f"{name} needs an NVIDIA driver and a GPU")
        with self._lock:
            if name not in self._flavours:
                try:
                    self._flavours[name] = Bindings(importlib.import_module(name))
                except ImportError as error:
                    text = f"{name} is installed but does not import: {error}"
                    raise EngineFailure(Code.NOT_FOUND, text) from error
            return self._flavours[name]

    def load(self, request: Any, handle: Any) -> int:  # noqa: ANN401
        facts = request.contents
        bindings = self._bindings(facts)
        if facts.weight_streaming_budget != _NO_BUDGET:
            text = "weight_streaming_budget needs the native loader"
            raise EngineFailure(Code.NOT_SUPPORTED, text)
        named = [_read_binding(facts.bindings[i]) for i in range(facts.binding_count)]
        data = memoryview((ctypes.c_char * facts.size).from_address(facts.bytes or 0)).cast("B")
        built = (facts.library_version or b"").decode(errors="replace")
        return self._keep(self._engines, Engine(bindings, data, facts.device, named, built), handle)

    def _keep(self, where: dict[int, Any], thing: object, handle: Any) -> int:  # noqa: ANN401
        number = next(self._numbers)
        where[number] = thing
        handle[0] = number
        return 0

    def keeps_bytes(self, engine: int) -> int:
        return 0  # TensorRT has copied what it needs.

    def describe(self, engine: int, index: int, out: Any) -> int:  # noqa: ANN401
        tensors = self._engines[engine].tensors
        if index >= len(tensors):
            raise EngineFailure(Code.INVALID_ARGUMENT, f"engine has no binding {index}")
        tensor, facts = tensors[index], out.contents
        facts.name = None
        facts.is_input, facts.dtype = int(tensor.is_input), tensor.dtype
        facts.rank, facts.alias_of = len(tensor.shape), tensor.alias_of
        for i, size in enumerate(tensor.shape):
            ranges = [(low[i], high[i]) for low, high in tensor.profiles]
            facts.dims[i] = size
            facts.min_dims[i] = min((low for low, _ in ranges), default=size)
            facts.max_dims[i] = max((high for _, high in ranges), default=size)
        return 0

    def free_engine(self, engine: int) -> None:
        self._engines.pop(engine, None)

    def create_context(self, engine: int, flags: int, handle: Any) -> int:  # noqa: ANN401
        if flags & _USER_MEMORY:
            raise EngineFailure(Code.NOT_SUPPORTED, "shared scratch memory needs the native loader")
        return self._keep(self._contexts, Context(self._engines[engine]), handle)

    def free_context(self, context: int) -> None:
        self._contexts.pop(context, None)

    def set_input_shape(self, context: int, index: int, dims: Any, rank: int) -> int:  # noqa: ANN401
        self._contexts[context].set_input_shape(index, tuple(dims[i] for i in range(rank)))
        return 0

    def prepare(self, context: int, stream: int | None) -> int:
        self._contexts[context].prepare(stream or 0)
        return 0

    def output_shape(self, context: int, index: int, dims: Any, rank: Any) -> int:  # noqa: ANN401
        shape = self._contexts[context].output_shape(index)
        rank[0] = len(shape)
        for i, size in enumerate(shape):
            dims[i] = size
        return 0

    def set_address(self, context: int, index: int, address: int | None, capacity: int) -> int:
        self._contexts[context].set_address(index, address or 0)
        return 0

    def enqueue(self, context: int, stream: int | None) -> int:
        self._contexts[context].enqueue(stream or 0)
        return 0


def _read_binding(facts: _BindingStruct) -> Binding:
    shape = tuple(facts.dims[: facts.rank]) if facts.rank >= 0 else None
    return Binding(facts.name.decode(), bool(facts.is_input), facts.dtype, shape)


_registered: _Table | None = None
_kept: list[object] = []


def register(library: ctypes.CDLL) -> bool:
    """Offer the installed TensorRT bindings to the plugin, once in a process.

    Imports nothing of TensorRT.

    Args:
        library: The plugin.

    Returns:
        Whether there are such bindings, and a plugin that takes this provider.
    """
    global _registered
    if _registered is not None:
        return True
    if not any(util.find_spec(module) for module in _MODULES.values()):
        return False
    if not hasattr(library, "trt_et_add_provider"):
        return False
    provider = _Provider(library)
    functions = {name: kind(provider.guard(name)) for name, kind in _FUNCTIONS.items()}
    table = _Table(
        abi=_ABI, flags=_NO_WAIT, alignment=_ALIGNMENT, name=b"Python TensorRT", **functions
    )
    library.trt_et_add_provider.argtypes = [ctypes.POINTER(_Table)]
    if library.trt_et_add_provider(ctypes.byref(table)) != 0:
        return False
    _kept.extend([provider, functions])
    _registered = table
    atexit.register(_let_go)
    return True


def _let_go() -> None:
    """What is freed from now on stays: Python cannot be called any more when C++ ends."""
    if _registered is None:
        return
    libc = ctypes.CDLL(None)
    nothing = ctypes.cast(libc.abs, ctypes.c_void_p).value  # Takes a word, and changes nothing.
    for name in ("free_engine", "free_context"):
        setattr(_registered, name, _FUNCTIONS[name](nothing))
