"""The native runtime: puts the TensorRT backend into the stock ``executorch.runtime``.

::

    import trt_et.runtime
    trt_et.runtime.load()                      # or load(cuda="auto"), load(cuda="simulated:2")

    from executorch.runtime import Runtime
    method = Runtime.get().load_program("model.pte").load_method("forward")

Neither importing this module nor :func:`load` imports torch or executorch's Python packages.
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
from typing import Any, Final

from trt_et.errors import OptionError, PluginError
from trt_et.requirements import install_command

__all__ = [
    "cmake_folder",
    "device_count",
    "executorch_lock",
    "is_available",
    "last_error",
    "load",
    "plugin_path",
    "runner_path",
    "status",
]

_CMAKE: Final = "cmake/trt_et-config.cmake"
_PLUGIN: Final = "lib/libtrt_et_backend.so"
_RUNNER: Final = "bin/executor_runner"
# Only in executorch's wheels for CUDA. The second needs the first.
_STOCK_CUDA: Final = ("libexecutorch_extension_cuda.so", "libexecutorch_backend_cuda.so")
_HOW_TO_BUILD: Final = "build it with: pip install . (in the trt-et source tree)"
_CUDA_MODE: Final = re.compile(r"real|(simulated|auto)(:([1-9]|1[0-6]))?")

#: Makes threads safe that use ``executorch.runtime``: hold it around every call that loads or runs
#: a program or a method. ExecuTorch's bindings exchange the process's output streams around each
#: call, and two calls at a time can crash or hang, whatever the backend.
executorch_lock: Final = threading.RLock()

_lock = threading.Lock()
_library: ctypes.CDLL | None = None


def load(cuda: str | None = None) -> None:
    """Load the plugin into this process, next to the stock ExecuTorch runtime.

    Registers the backend ``TensorRTBackend`` and, where there is none, a CUDA device allocator.
    Loading twice is fine.

    Args:
        cuda: ``"real"``; ``"simulated:N"`` (N virtual GPUs on host memory, 1 to 16); or
            ``"auto:N"`` (real GPUs where there is one that can be used, else N simulated ones).
            Without ``:N``, N is 1. None leaves the choice to the environment variable
            ``TRT_ET_CUDA``, and to real GPUs where it is not set.

    Raises:
        OptionError: ``cuda`` is no such mode.
        PluginError: The plugin is missing, does not fit the installed executorch, or cannot be
            used; or CUDA is already another one in this process. A choice that found no GPU, as
            :func:`is_available` tells, can be changed.
    """
    if cuda is not None and not _CUDA_MODE.fullmatch(cuda):
        raise OptionError(
            f"cuda={cuda!r}; expected 'real', 'simulated:N', or 'auto:N' with N in 1..16"
        )
    library = _load_library()
    if cuda is not None and library.trt_et_choose_cuda(cuda.encode()) != 0:
        raise PluginError(last_error())


def is_available() -> bool:
    """Whether an engine could run here: the plugin loads and there is a GPU, or a simulated one.

    Never raises; :func:`last_error` or :func:`load` tells why it is False.
    """
    try:
        return bool(_load_library().trt_et_available())
    except PluginError:
        return False


def device_count() -> int:
    """Number of GPUs, real or simulated as chosen; 0 where there is none.

    Raises:
        PluginError: The plugin cannot be loaded.
    """
    return max(0, int(_load_library().trt_et_device_count()))


def status() -> dict[str, Any]:
    """What the plugin registered in this process, and how it reaches CUDA.

    Returns:
        ``version`` of the plugin; ``backend`` and ``allocator``, whether ours are the registered
        ones; ``cuda``, the mode in use (empty before the first use); ``problem``, empty when all is
        well.

    Raises:
        PluginError: The plugin cannot be loaded.
    """
    library = _load_library()
    facts: dict[str, Any] = json.loads(_text(library.trt_et_status))
    return {"version": library.trt_et_version().decode(), **facts}


def last_error() -> str:
    """Why this thread's last call into the backend failed; empty if it succeeded.

    ExecuTorch's own exceptions carry a number only; this is the sentence behind it.
    """
    if _library is None:
        return ""
    text: bytes = _library.trt_et_last_error()
    return text.decode(errors="replace")


def plugin_path() -> Path:
    """Where the plugin library is.

    Raises:
        PluginError: It is not there.
    """
    return _find(_PLUGIN, "TRT_ET_PLUGIN")


def runner_path() -> Path:
    """Where the native ``executor_runner`` is.

    Raises:
        PluginError: It is not there.
    """
    return _find(_RUNNER, "TRT_ET_RUNNER")


def cmake_folder() -> Path:
    """The folder for ``CMAKE_PREFIX_PATH`` that makes ``find_package(trt_et)`` work.

    Raises:
        PluginError: It is not there.
    """
    return _find(_CMAKE, "TRT_ET_CMAKE_CONFIG").parent


def _find(name: str, variable: str) -> Path:
    if named := os.environ.get(variable):
        if Path(named).is_file():
            return Path(named)
        raise PluginError(f"{variable} names {named}, which is not a file")
    # Run from a source tree, the built files are there, or in the installed package.
    folders = [Path(__file__).parent, Path(sysconfig.get_path("platlib"), "trt_et", "runtime")]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise PluginError(f"there is no {folders[0] / name}; {_HOW_TO_BUILD}")


def _load_library() -> ctypes.CDLL:
    global _library
    with _lock:
        if _library is None:
            path = plugin_path()
            _library = _open(path, _check_executorch(path))
        return _library


def _check_executorch(path: Path) -> Path:
    """Find the installed executorch's library, which must be of the plugin's version.

    C++ has no stable interface between releases of executorch.
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
    """The executorch version that a plugin was compiled with; empty where nothing says."""
    try:
        return str(json.loads(path.with_name("build_info.json").read_text())["executorch"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _open(path: Path, runtime: Path) -> ctypes.CDLL:
    try:
        # The library that executorch's Python extension links, loaded first: the plugin then binds
        # to that very copy, and registers in the runtime that Python uses or will use.
        ctypes.CDLL(str(runtime))
        _open_stock_cuda(runtime.parent)
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise PluginError(f"{path.name} cannot be loaded: {error}; {_HOW_TO_BUILD}") from error
    library.trt_et_version.restype = ctypes.c_char_p
    library.trt_et_last_error.restype = ctypes.c_char_p
    library.trt_et_status.restype = ctypes.c_size_t
    library.trt_et_status.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    # What else is in the process has registered its allocator by now, if it has one.
    library.trt_et_register_allocator()
    library.trt_et_choose_cuda.argtypes = [ctypes.c_char_p]
    facts = json.loads(_text(library.trt_et_status))
    if not facts["backend"]:
        raise PluginError(f"the trt-et plugin did not register itself: {facts['problem']}")
    return library


def _open_stock_cuda(folder: Path) -> None:
    """Let ExecuTorch's own CUDA libraries register their allocator before the plugin looks.

    ExecuTorch ends the process at a second CUDA allocator: were the plugin first, these libraries
    would do that as soon as something loads them.
    """
    for name in _STOCK_CUDA:
        with contextlib.suppress(OSError):  # Not in this wheel, or no driver: then it never loads.
            ctypes.CDLL(str(folder / name))


def _text(function: Any) -> str:  # noqa: ANN401
    length: int = function(None, 0)
    buffer = ctypes.create_string_buffer(length + 1)
    function(buffer, len(buffer))
    return buffer.value.decode(errors="replace")
