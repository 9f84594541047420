"""Add the TensorRT backend to the stock ``executorch.runtime``.

::

    import trt_et.runtime
    method = trt_et.runtime.load_program("model.pte").load_method("forward")

or, for everything that ``executorch.runtime`` loads::

    trt_et.runtime.load()                      # or load(cuda="auto"), load(cuda="simulated:2")

Neither importing this module nor ``load`` imports torch or executorch's Python packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sysconfig
import threading
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trt_et.errors import OptionError, PluginError
from trt_et.requirements import install_command

if TYPE_CHECKING:
    from executorch.runtime import Program

__all__ = [
    "cmake_folder",
    "counters",
    "device_count",
    "executorch_lock",
    "is_available",
    "last_error",
    "load",
    "load_plugin",
    "load_program",
    "plugin_path",
    "runner_path",
    "set_option",
    "status",
]

_CMAKE: Final = "cmake/trt_et-config.cmake"
_PLUGIN: Final = "lib/libtrt_et_backend.so"
_RUNNER: Final = "bin/executor_runner"
# Only in executorch's wheels for CUDA. The second needs the first.
_STOCK_CUDA: Final = ("libexecutorch_extension_cuda.so", "libexecutorch_backend_cuda.so")
_HOW_TO_BUILD: Final = "build it with: pip install . (in the trt-et source tree)"
_COUNTERS: Final = (
    *("engines", "engine_loads", "mallocs", "frees"),
    *(f"{what}_{way}" for what in ("copies", "bytes") for way in ("h2d", "d2h", "d2d", "peer")),
    *("synchronizations", "launches", "live_bytes"),
)
_CUDA_MODE: Final = re.compile(r"real|(simulated|auto)(:([1-9]|1[0-6]))?")

#: Hold this lock around every call that loads or runs a program or a method if several threads use
#: ``executorch.runtime``. ExecuTorch's bindings replace the process's output streams during each
#: call, so two simultaneous calls can crash or hang, with any backend. Programs of
#: ``load_program``, their methods and metadata hold it themselves.
executorch_lock: Final = threading.RLock()

_lock = threading.Lock()
_library: ctypes.CDLL | None = None


def load(cuda: str | None = None) -> None:
    """Load the plugin into this process, next to the stock ExecuTorch runtime.

    Registers the backend ``TensorRTBackend`` and, if there is none, a CUDA device allocator.
    You can call it several times.

    Args:
        cuda: ``"real"``; ``"simulated:N"`` (N virtual GPUs on host memory, 1 to 16); or
            ``"auto:N"`` (real GPUs if there is a usable one, otherwise N simulated ones).
            Without ``:N``, N is 1. None: the environment variable ``TRT_ET_CUDA``; if it is not
            set, real GPUs, or simulated ones for reference engines on a machine without a GPU.

    Raises:
        OptionError: ``cuda`` is another text.
        PluginError: The plugin is missing, does not match the installed executorch, or cannot be
            used; ``cuda`` is ``"real"``, and no GPU can be used; or this process already uses
            another mode. You can change a mode without a GPU (``is_available`` is False).
    """
    if cuda is not None and not (isinstance(cuda, str) and _CUDA_MODE.fullmatch(cuda)):
        raise OptionError(
            f"cuda={cuda!r}; expected 'real', 'simulated:N', or 'auto:N' with N in 1..16"
        )
    library = load_plugin()
    if cuda is not None and library.trt_et_choose_cuda(cuda.encode()) != 0:
        raise PluginError(last_error())
    if cuda == "real" and library.trt_et_device_count() < 0:
        raise PluginError(last_error())


def load_program(data: Any, cuda: str | None = None, **options: Any) -> Program:  # noqa: ANN401
    """Call ``load``, and load a program into the stock runtime.

    Args:
        data: A file, its bytes, or an open file.
        cuda: As for ``load``.
        options: Further arguments of ``Runtime.load_program``, such as ``data_path``.

    Returns:
        The program of ``executorch.runtime``. Its methods raise ``RunError`` with the cause
        (``explained_errors``) where ExecuTorch's raise an error number, and take tensors of any
        strides: ExecuTorch's copy the memory of an input without a look at its strides. Threads
        may share them: one call at a time is in ExecuTorch (``executorch_lock``), and a call that
        waits for the others longer than ten minutes raises ``RunError``. Rename a new version of a
        file over the old one; writing to a file that is loaded crashes the process or changes its
        results, because ExecuTorch maps it.

    Raises:
        RunError: ExecuTorch does not load the program, or its file changes meanwhile.
        OptionError: As for ``load``.
        PluginError: As for ``load``.
    """
    load(cuda)
    from trt_et.runtime.program import load_explained

    return load_explained(data, **options)


def is_available() -> bool:
    """Return whether an engine can run: the plugin loads, and there is a real or simulated GPU.

    Never raises; ``last_error`` or ``load`` gives the reason for False.
    """
    try:
        return bool(load_plugin().trt_et_available())
    except PluginError:
        return False


def device_count() -> int:
    """Return the number of GPUs of the chosen mode; 0 if there is none.

    Raises:
        PluginError: The plugin cannot be loaded.
    """
    return max(0, int(load_plugin().trt_et_device_count()))


def status() -> dict[str, Any]:
    """Return the plugin's registrations in this process, and its CUDA mode.

    Returns:
        ``version`` of the plugin; ``backend`` and ``allocator``, True if ours are registered;
        ``cuda``, the current mode (empty before the first use); ``problem``, empty if there is
        none: why the backend is not registered, or why the mode has no GPU.

    Raises:
        PluginError: The plugin cannot be loaded.
    """
    library = load_plugin()
    facts: dict[str, Any] = json.loads(_text(library.trt_et_status))
    return {"version": library.trt_et_version().decode(), **facts}


def counters() -> dict[str, int]:
    """Return counts of this process for monitoring; it waits for runs that are going on.

    Returns:
        ``engines``, loaded now; one that methods share counts once. ``engine_loads``, since the
        process began. Sums over the partitions that are loaded now (``partitions``):
        ``engine_bytes``, serialized engines, about the GPU memory of their weights, where a shared
        engine counts for each partition; ``contexts``, execution contexts; ``scratch_bytes``, GPU
        memory for activations, as far as it is known; ``staging_bytes``, GPU memory for tensors
        that an engine cannot use in place; ``graph_launches``, runs of CUDA graphs. Only with
        simulated GPUs, since the process began: ``copies_h2d``, ``copies_d2h``, ``copies_d2d`` and
        ``copies_peer``; their bytes, ``bytes_h2d`` and so on; ``mallocs`` and ``frees`` of GPU
        memory; ``synchronizations``, waits for the GPU; ``launches`` of engines; and
        ``live_bytes``, the GPU memory allocated now.

    Raises:
        PluginError: The plugin cannot be loaded.
    """
    library = load_plugin()
    found: dict[str, int] = {}
    for name in _COUNTERS:
        value = ctypes.c_uint64()
        if library.trt_et_counter(name.encode(), ctypes.byref(value)) == 0:
            found[name] = value.value
    partitions = json.loads(_text(library.trt_et_describe_engines) or "[]")
    for each in partitions:
        each["scratch_bytes"] = (each["scratch_bytes_per_context"] or 0) * each["contexts"]
    sums = ("engine_bytes", "contexts", "scratch_bytes", "staging_bytes", "graph_launches")
    found["partitions"] = len(partitions)
    return found | {name: sum(each[name] for each in partitions) for name in sums}


def set_option(name: str, value: str) -> None:
    """Set an option of the runtime for all methods that are loaded from now on.

    The environment variables ``TRT_ET_<NAME>`` do the same, and are read once: when the plugin is
    loaded. The runtime's page (docs/native.md) lists the options.

    Args:
        name: Such as ``"profile_layers"``.
        value: As in the variable, such as ``"1"``; ``""`` takes the setting back.

    Raises:
        OptionError: The option is unknown, or does not take this value.
        PluginError: The plugin cannot be loaded.
    """
    if load_plugin().trt_et_set_option(name.encode(), value.encode()) != 0:
        raise OptionError(last_error())


def last_error() -> str:
    """Return the message of this thread's last call into the backend; empty after a success.

    ExecuTorch's exceptions contain a number only. It is also empty if ExecuTorch itself refuses a
    file or an input: ``trt_et.runtime.explain.explained_errors`` has the reason.
    """
    if _library is None:
        return ""
    text: bytes = _library.trt_et_last_error()
    return text.decode(errors="replace")


def plugin_path() -> Path:
    """Return the path of the plugin library.

    Raises:
        PluginError: It is not there.
    """
    return _find(_PLUGIN, "TRT_ET_PLUGIN")


def runner_path() -> Path:
    """Return the path of ``executor_runner``.

    Raises:
        PluginError: It is not there.
    """
    return _find(_RUNNER, "TRT_ET_RUNNER")


def cmake_folder() -> Path:
    """Return the folder for ``CMAKE_PREFIX_PATH``, for ``find_package(trt_et)``.

    Raises:
        PluginError: It is not there.
    """
    return _find(_CMAKE, "TRT_ET_CMAKE_CONFIG").parent


def load_plugin() -> ctypes.CDLL:
    """Return the plugin library for calls of its C interface (``trt_et/runtime.h``).

    Raises:
        PluginError: As for ``load``.
    """
    global _library
    with _lock:
        if _library is None:
            path = plugin_path()
            _library = _open(path, _check_executorch(path))
        return _library


def _find(name: str, variable: str) -> Path:
    if named := os.environ.get(variable):
        if Path(named).is_file():
            return Path(named)
        raise PluginError(f"{variable} names {named}, which is not a file")
    # The built files are in the source tree or in the installed package.
    folders = [Path(__file__).parent, Path(sysconfig.get_path("platlib"), "trt_et", "runtime")]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise PluginError(
        f"there is no {folders[0] / name}; {_HOW_TO_BUILD}, or name one with {variable}"
    )


def _check_executorch(path: Path) -> Path:
    """Return the installed executorch's library, and check its version against the plugin's.

    executorch has no stable C++ interface between releases.
    """
    try:
        installed = metadata.version("executorch")
        spec = util.find_spec("executorch")
    except (metadata.PackageNotFoundError, ValueError):
        spec = None
    folders = (spec.submodule_search_locations if spec else None) or []
    if not folders:
        raise PluginError(f"executorch is not installed: {install_command('executorch')}")
    built = _built_against(path) or installed
    if built.partition("+")[0] != installed.partition("+")[0]:
        raise PluginError(
            f"the trt-et plugin was built against executorch {built}, but {installed} is "
            f"installed; {_HOW_TO_BUILD}"
        )
    runtime = Path(folders[0], "lib", "libexecutorch.so")
    if not runtime.is_file():
        raise PluginError(
            f"the installed executorch {installed} has no {runtime}; expected an official wheel: "
            f"{install_command('executorch')}"
        )
    return runtime


def _built_against(path: Path) -> str:
    """Return the executorch version that a plugin was compiled with; empty if unknown."""
    try:
        return str(json.loads(path.with_name("build_info.json").read_text())["executorch"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _open(path: Path, runtime: Path) -> ctypes.CDLL:
    try:
        # Load the library that executorch's Python extension links first: the plugin then binds to
        # the same copy, and registers in the runtime of Python.
        ctypes.CDLL(str(runtime))
        _open_stock_cuda(runtime.parent)
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise PluginError(f"{path.name} cannot be loaded: {error}; {_HOW_TO_BUILD}") from error
    library.trt_et_version.restype = ctypes.c_char_p
    library.trt_et_last_error.restype = ctypes.c_char_p
    library.trt_et_status.restype = ctypes.c_size_t
    library.trt_et_status.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.trt_et_describe_engines.restype = ctypes.c_size_t
    library.trt_et_describe_engines.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    # Other libraries in the process have registered their allocator by now.
    library.trt_et_register_allocator()
    library.trt_et_choose_cuda.argtypes = [ctypes.c_char_p]
    facts = json.loads(_text(library.trt_et_status))
    if not facts["backend"]:
        raise PluginError(f"the trt-et plugin did not register itself: {facts['problem']}")
    return library


def _open_stock_cuda(folder: Path) -> None:
    """Load ExecuTorch's CUDA libraries, so that they register their allocator before the plugin.

    ExecuTorch aborts at a second CUDA allocator. If the plugin came first, loading one of these
    libraries later would abort the process.
    """
    for name in _STOCK_CUDA:
        with contextlib.suppress(OSError):  # Not in this wheel, or no driver: then it never loads.
            ctypes.CDLL(str(folder / name))


def _text(function: Any) -> str:  # noqa: ANN401
    size = 0
    while True:
        buffer = ctypes.create_string_buffer(size + 1)
        length: int = function(buffer, len(buffer))
        if length <= size:
            return buffer.value.decode(errors="replace")
        size = length  # It may grow between two calls.
