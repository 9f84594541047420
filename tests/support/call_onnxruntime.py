"""Runs in a process of its own: calls onnxruntime by the lines of functions.def, through ctypes.

Prints what each call told, as JSON. A wrong position crashes, or tells something else.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.native_environment import ROOT

DESCRIPTION = ROOT / "trt_et/runtime/simulation/onnx/functions.def"
LINE = re.compile(r"^TRT_ET_ORT\((\w+), (\d+), ([^,]+), ([^)]*)\)", re.MULTILINE)
REPEATS = 500
TYPES = {"size_t": c_size_t, "int": c_int, "const char*": c_char_p}


class HeapFacts(ctypes.Structure):
    """mallinfo2 of glibc; the eighth field counts the bytes in use."""

    _fields_ = [(f"field{index}", c_size_t) for index in range(10)]


def bytes_in_use() -> int:
    tell = ctypes.CDLL(None).mallinfo2
    tell.restype = HeapFacts
    return int(tell().field7)


def leaked(call: Callable[[], object]) -> float:
    """Return the bytes that a call leaves on the heap, on average."""
    for _ in range(20):
        call()
    before = bytes_in_use()
    for _ in range(REPEATS):
        call()
    return (bytes_in_use() - before) / REPEATS


def thread_count() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


class Functions:
    """The described functions; remembers which were called."""

    def __init__(self, library: str) -> None:
        get_base = ctypes.CDLL(library).OrtGetApiBase
        get_base.restype = ctypes.POINTER(c_void_p)
        get_table = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), ctypes.c_uint32)(get_base()[0])
        header = DESCRIPTION.with_name("onnxruntime.h").read_text()
        (version,) = re.findall(r"kApiVersion = (\d+)", header)
        self.table = get_table(int(version))
        self.lines = {name: rest for name, *rest in LINE.findall(DESCRIPTION.read_text())}
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        position, result, arguments = self.lines[name]
        kinds = [TYPES.get(" ".join(kind.split()), c_void_p) for kind in arguments.split(",")]
        returned = None if result == "void" else c_char_p if "char" in result else c_void_p
        return ctypes.CFUNCTYPE(returned, *kinds)(self.table[int(position)])

    def do(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status, which must be none."""
        status = getattr(self, name)(*arguments)
        assert not status, (name, self.GetErrorMessage(status))

    def make(self, name: str, *arguments: Any) -> c_void_p:
        """Call a function whose last argument gets the object that it makes."""
        made = c_void_p()
        self.do(name, *arguments, byref(made))
        assert made.value, name
        return made


def tensor_facts(ort: Functions, info: c_void_p) -> list[Any]:
    element, rank = c_int(), c_size_t()
    ort.do("GetTensorElementType", info, byref(element))
    ort.do("GetDimensionsCount", info, byref(rank))
    dims = (c_int64 * rank.value)()
    ort.do("GetDimensions", info, dims, rank)
    return [element.value, list(dims)]


def describe(ort: Functions, session: c_void_p, allocator: c_void_p, kind: str) -> list[Any]:
    count = c_size_t()
    ort.do(f"SessionGet{kind}Count", session, byref(count))
    found = []
    for index in range(count.value):
        name = ort.make(f"SessionGet{kind}Name", session, index, allocator)
        type_info = ort.make(f"SessionGet{kind}TypeInfo", session, index)
        info = ort.make("CastTypeInfoToTensorInfo", type_info)
        found.append([ctypes.string_at(name.value).decode(), *tensor_facts(ort, info)])
        ort.do("AllocatorFree", allocator, name)
        ort.ReleaseTypeInfo(type_info)
    return found


def make_session(
    ort: Functions, environment: c_void_p, model: bytes, weight: bytes, threads: int = 1
) -> c_void_p:
    options = ort.make("CreateSessionOptions")
    ort.do("SetSessionGraphOptimizationLevel", options, 1)
    ort.do("SetIntraOpNumThreads", options, threads)
    if weight:
        names = (c_char_p * 1)(b"weight_file")
        data = ctypes.create_string_buffer(weight, len(weight))
        files = (c_void_p * 1)(ctypes.addressof(data))
        sizes = (c_size_t * 1)(len(weight))
        ort.do("AddExternalInitializersFromFilesInMemory", options, names, files, sizes, 1)
    session = ort.make("CreateSessionFromArray", environment, model, len(model), options)
    ort.ReleaseSessionOptions(options)
    if weight:
        ctypes.memset(data, 0, len(weight))  # The session has copied it.
    return session


def run(ort: Functions, session: c_void_p, memory: c_void_p, x: np.ndarray) -> list[Any]:
    shape = (c_int64 * x.ndim)(*x.shape)
    value = ort.make(
        "CreateTensorWithDataAsOrtValue", memory, x.ctypes.data, x.nbytes, shape, x.ndim, 1
    )
    inputs, outputs = (c_void_p * 2)(value.value, value.value), (c_void_p * 1)()
    names = (c_char_p * 2)(b"x", b"z"), (c_char_p * 1)(b"y")
    ort.do("Run", session, None, names[0], inputs, 2, names[1], 1, outputs)
    info = ort.make("GetTensorTypeAndShape", outputs[0])
    element, dims = tensor_facts(ort, info)
    data = ort.make("GetTensorMutableData", outputs[0])
    found = ctypes.cast(data.value, ctypes.POINTER(ctypes.c_float))[: int(np.prod(dims))]
    ort.ReleaseTensorTypeAndShapeInfo(info)
    ort.ReleaseValue(outputs[0])
    ort.ReleaseValue(value)
    return [element, dims, found]


def refused(ort: Functions, status: Any) -> str:
    text = ort.GetErrorMessage(status).decode()
    ort.ReleaseStatus(status)
    return str(text)


def refused_model(ort: Functions, environment: c_void_p) -> str:
    options, made = ort.make("CreateSessionOptions"), c_void_p()
    status = ort.CreateSessionFromArray(environment, b"no model", 8, options, byref(made))
    ort.ReleaseSessionOptions(options)
    return refused(ort, status)


def refused_level(ort: Functions) -> str:
    options = ort.make("CreateSessionOptions")
    status = ort.SetSessionGraphOptimizationLevel(options, 77)
    ort.ReleaseSessionOptions(options)
    return refused(ort, status)


def main() -> None:
    library, model, weight = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    ort = Functions(library)
    environment = ort.make("CreateEnv", 4, b"test")
    allocator = ort.make("GetAllocatorWithDefaultOptions")
    memory = ort.make("CreateCpuMemoryInfo", 1, 0)
    files = model.read_bytes(), weight.read_bytes()
    session = make_session(ort, environment, *files)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    before = thread_count()
    threaded = make_session(ort, environment, *files, threads=3)
    facts = {
        "threads": thread_count() - before,
        "inputs": describe(ort, session, allocator, "Input"),
        "outputs": describe(ort, session, allocator, "Output"),
        "run": run(ort, session, memory, x),
        "refused model": refused_model(ort, environment),
        "refused level": refused_level(ort),
    }
    ort.ReleaseSession(threaded)
    calls: dict[str, Callable[[], object]] = {
        "session": lambda: ort.ReleaseSession(make_session(ort, environment, *files)),
        "description": lambda: describe(ort, session, allocator, "Input"),
        "run": lambda: run(ort, session, memory, x),
        "refusal": lambda: refused_level(ort),
    }
    facts["leaked"] = {name: leaked(call) for name, call in calls.items()}
    ort.ReleaseSession(session)
    facts["not called"] = sorted(set(ort.lines) - ort.called)
    sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    main()
