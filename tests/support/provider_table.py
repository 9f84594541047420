"""A provider library without the plugin: its table (common/engine_provider.h) through ctypes.

It needs no driver, so that TensorRT-RTX, which builds engines without a GPU, can be asked to.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import executorch

import trt_et.runtime

ABI = 11
MAX_RANK = 16
SCALAR_TYPES = {
    "uint8": 0,
    "int8": 1,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "bool": 11,
    "bfloat16": 15,
}

Dims = ctypes.c_int64 * MAX_RANK
Log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)
Report = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32)
ReadWeights = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Binding(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("is_input", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("alias_of", ctypes.c_int32),
        ("dims", Dims),
        ("min_dims", Dims),
        ("max_dims", Dims),
    ]


class Weight(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("bytes", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class Request(ctypes.Structure):
    _fields_ = [
        ("builder", ctypes.c_char_p),
        ("library_version", ctypes.c_char_p),
        ("device", ctypes.c_int32),
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("bindings", ctypes.POINTER(Binding)),
        ("binding_count", ctypes.c_size_t),
        ("weight_streaming_budget", ctypes.c_int64),
        ("sha256", ctypes.c_char_p),
        ("gpu", ctypes.c_char_p),
        ("runtime_cache", ctypes.c_char_p),
        ("plugin_libraries", ctypes.c_char_p),
        ("dla_core", ctypes.c_int32),
        ("engine_host_code", ctypes.c_int32),
        ("network", ctypes.c_char_p),
        ("weights", ctypes.POINTER(Weight)),
        ("weight_count", ctypes.c_size_t),
        ("read_weights", ReadWeights),
        ("reader", ctypes.c_void_p),
        ("opt_dims", ctypes.POINTER(Dims)),
        ("gpu_major", ctypes.c_int32),
        ("gpu_minor", ctypes.c_int32),
        ("engine_folder", ctypes.c_char_p),
        ("build", ctypes.c_int32),
        ("report_build", Report),
        ("refused", ctypes.c_void_p),
    ]


class Table(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("before", ctypes.c_void_p * 12),
        ("last_error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("behind", ctypes.c_void_p * 7),
        (
            "build",
            ctypes.CFUNCTYPE(
                ctypes.c_int,
                ctypes.POINTER(Request),
                ctypes.POINTER(ctypes.c_void_p),
                ctypes.POINTER(ctypes.c_size_t),
                ctypes.POINTER(ctypes.c_void_p),
            ),
        ),
        ("free_built", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


class Host(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("version", ctypes.c_char_p),
        ("log", Log),
        ("site_packages", ctypes.c_char_p),
        ("variable", ctypes.c_void_p),
    ]


def trt_et_version() -> bytes:
    built = json.loads(trt_et.runtime.plugin_path().with_name("build_info.json").read_text())
    return str(built["version"]).encode()


@dataclass(frozen=True)
class Tensor:
    """An input or output of a network; a dimension is a size, or [min, opt, max]."""

    name: str
    shape: Sequence[int | Sequence[int]]
    is_input: bool
    dtype: str = "float32"

    def binding(self) -> Binding:
        sizes = [(size,) * 3 if isinstance(size, int) else size for size in self.shape]
        dims = [size if isinstance(size, int) else -1 for size in self.shape]
        low, _, high = zip(*sizes, strict=True) if sizes else ((), (), ())
        return Binding(
            self.name.encode(),
            int(self.is_input),
            SCALAR_TYPES[self.dtype],
            len(dims),
            -1,
            Dims(*dims),
            Dims(*low),
            Dims(*high),
        )

    def best(self) -> ctypes.Array[ctypes.c_int64]:
        return Dims(*(size if isinstance(size, int) else size[1] for size in self.shape))


@dataclass
class Provider:
    """A provider library that is open."""

    library: Path
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._log = Log(lambda level, text: self.lines.append(f"{level} {text.decode()}"))
        packages = Path(next(iter(executorch.__path__))).parent
        getenv = ctypes.cast(ctypes.CDLL(None).getenv, ctypes.c_void_p)
        self._host = Host(ABI, trt_et_version(), self._log, str(packages).encode(), getenv)
        opened = ctypes.CDLL(str(self.library)).trt_et_open_provider
        opened.restype = ctypes.POINTER(Table)
        self.table = opened(ctypes.byref(self._host)).contents

    def build(
        self,
        model: bytes,
        tensors: list[Tensor],
        weights: Mapping[str, bytes],
        network: Mapping[str, object] | None = None,
        folder: str = "off",
        report: Callable[[bytes, int, int], int] | None = None,
        *,
        build: bool = True,
        plugins: str = "",
    ) -> bytes:
        """Build an engine.

        Args:
            model: A serialized ONNX model.
            tensors: Its inputs and outputs.
            weights: Its external data by location.
            network: The blob's metadata of that name.
            folder: The load option ``engine_folder``.
            report: Called with the phase, the step and the number of steps; returns 0 to end.
            build: The load option ``build``.
            plugins: The load option ``plugin_libraries``.

        Returns:
            The serialized engine.

        Raises:
            RuntimeError: The provider refuses; its code and text.
        """
        bindings = (Binding * len(tensors))(*(tensor.binding() for tensor in tensors))
        best = (Dims * len(tensors))(*(tensor.best() for tensor in tensors))
        listed = [Weight(name.encode(), data, len(data)) for name, data in sorted(weights.items())]
        request = Request(
            builder=b"onnx",
            library_version=b"onnx",
            bytes=model,
            size=len(model),
            bindings=bindings,
            binding_count=len(tensors),
            sha256=hashlib.sha256(model).hexdigest().encode(),
            gpu=b"no GPU",
            runtime_cache=b"off",
            plugin_libraries=plugins.encode(),
            dla_core=-1,
            network=json.dumps(network or {}).encode(),
            weights=(Weight * len(listed))(*listed),
            weight_count=len(listed),
            read_weights=ReadWeights(lambda _: None),
            opt_dims=best,
            engine_folder=folder.encode(),
            build=int(build),
            report_build=Report(report) if report else Report(),
        )
        at, size, owner = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
        code = self.table.build(*map(ctypes.byref, (request, at, size, owner)))
        if code:
            raise RuntimeError(f"{code:#x}: {self.table.last_error().decode()}")
        engine = ctypes.string_at(at, size.value)
        self.table.free_built(owner)
        return engine


def main() -> None:
    """Build what a JSON file on the command line describes; print what happened as JSON."""
    case = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[1]).parent
    if limit := case.get("largest_file"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    provider = Provider(Path(case["library"]))
    steps: list[tuple[str, int, int]] = []

    def report(phase: bytes | None, step: int, count: int) -> int:
        if phase is None:  # Another thread's build is waited for.
            return 1
        steps.append((phase.decode(), step, count))
        if named := case.get("trace"):  # Lines of several processes.
            with Path(named).open("a") as trace:
                trace.write(f"{phase.decode()} {os.getpid()}\n")
        return int(len(steps) != case.get("end_at"))

    result: dict[str, object] = {"lines": provider.lines, "steps": steps}
    try:
        engine = provider.build(
            (folder / case["model"]).read_bytes(),
            [Tensor(*tensor) for tensor in case["tensors"]],
            {name: (folder / name).read_bytes() for name in case["weights"]},
            case.get("network"),
            case.get("engine_folder", "off"),
            report if case.get("report") else None,
            build=case.get("build", True),
            plugins=case.get("plugins", ""),
        )
        result["engine"] = engine.decode("latin-1")
    except RuntimeError as error:
        result["error"] = str(error)
    print(json.dumps(result))  # noqa: T201


if __name__ == "__main__":
    main()
