"""``trt-et doctor``: show the installed parts, what works with them, and the missing parts.

This module imports neither torch nor TensorRT; it reads versions from the packages' metadata.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final

import typer

import trt_et.runtime
from trt_et.cli.common import FAILED, Json, make_console, print_json
from trt_et.errors import TrtEtError
from trt_et.requirements import allowed_versions, install_command, is_allowed

_TENSORRT_LIBRARIES: Final = re.compile(r"lib(nvinfer|nvinfer_lean|tensorrt_rtx)\.so\.(\d+)")
_PROVIDERS: Final = re.compile(r"libtrt_et_tensorrt_(\d+|rtx)\.so")
_PIP_FOLDERS: Final = ("tensorrt_libs", "tensorrt_lean_libs", "tensorrt_rtx_libs")
_CUDART: Final = ("libcudart.so.13", "libcudart.so.12")
_CUDART_FOLDERS: Final = ("nvidia/cu13/lib", "nvidia/cuda_runtime/lib")
_CUDA_FOLDER: Final = Path("/usr/local/cuda/lib64")
_RTX: Final = "torch-tensorrt-rtx"
# Without Torch-TensorRT, these make engines of TensorRT-RTX.
_PARSER: Final = ("tensorrt-rtx", "onnx", "onnxscript")
# The Jetson Linux on this machine; JetPack 6 is release 36.
_TEGRA_RELEASE: Final = Path("/etc/nv_tegra_release")
_FIRST_TEGRA: Final = 36
_INSTALL_JETPACK: Final = "sudo apt-get install nvidia-jetpack"
_INSTALL_DRIVER: Final = "install NVIDIA's driver 580 or later: https://www.nvidia.com/drivers"
_FROM_SOURCES: Final = "pip install . (in trt-et's sources)"
_ON_GPU: Final = "run engines of TensorRT on a GPU"


@dataclass(frozen=True)
class Finding:
    """One fact about this machine.

    Attributes:
        subject: The part of the installation.
        found: True if it is there and usable.
        fact: Its version and place, or the problem.
        remedy: The command that installs it; empty if nothing is missing.
    """

    subject: str
    found: bool
    fact: str
    remedy: str = ""


def doctor_command(as_json: Json = False) -> None:
    """Show what works here, which parts are installed, and how to install the missing parts.

    Exits with 1 if engines of TensorRT cannot run on a GPU here.
    """
    findings, obstacles = diagnose()
    runs_on_gpu = not obstacles[_ON_GPU]
    if as_json:
        facts = [asdict(finding) for finding in findings]
        abilities = [{"name": name, "obstacle": why} for name, why in obstacles.items()]
        print_json({"findings": facts, "abilities": abilities, "runs_on_gpu": runs_on_gpu})
    else:
        console = make_console()
        for finding in findings:
            mark, style = ("ok", None) if finding.found else ("missing", "red")
            console.print(f"{mark:8}{finding.subject}: {finding.fact}", style=style)
            if finding.remedy:
                console.print(f"{'':8}-> {finding.remedy}")
        console.print()
        for name, why in obstacles.items():
            answer, style = (f"no: {why}", "red") if why else ("yes", "green")
            console.print(f"{name}? {answer}", style=style)
    if not runs_on_gpu:
        raise typer.Exit(FAILED)


def diagnose() -> tuple[list[Finding], dict[str, str]]:
    """Look at this machine.

    Returns:
        The findings; and for each ability the obstacle, empty if there is none.
    """
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    is_linux = platform.system() == "Linux"
    packages = [_package("torch"), _package("executorch")]
    builder = _builder()
    plugin = _native("runtime plugin", trt_et.runtime.plugin_path)
    driver, gpus = _driver()
    runtime = _cuda_runtime()
    libraries = list(_tensorrt_libraries()) or [
        Finding("TensorRT", False, "no library found", _install_tensorrt())
    ]
    no_provider = "no provider library next to the plugin"
    providers = list(_providers()) or [Finding("provider", False, no_provider, _FROM_SOURCES)]
    findings = [
        Finding("platform", is_linux, system, "" if is_linux else "use Linux"),
        *_jetson(),
        *packages,
        builder,
        plugin,
        _native("executor_runner", trt_et.runtime.runner_path),
        driver,
        *gpus,
        runtime,
        *libraries,
        *providers,
    ]
    needed = {
        "export programs with engines of TensorRT": [*packages, builder],
        "export programs with reference engines": packages,
        "run reference engines on simulated GPUs": [packages[1], plugin],
        _ON_GPU: [
            plugin,
            driver,
            *([Finding("GPU", False, "no GPU")] if driver.found and not gpus else []),
            runtime,
            libraries[0],
            providers[0],
        ],
    }
    return findings, {
        name: "; ".join(f"{need.subject}: {need.fact}" for need in needs if not need.found)
        for name, needs in needed.items()
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str) -> Finding:
    version = _version(name)
    if version is None:
        return Finding(name, False, "is not installed", install_command(name))
    if not is_allowed(name, version):
        fact = f"is {version}; {allowed_versions(name)} is needed"
        return Finding(name, False, fact, install_command(name))
    return Finding(name, True, version)


def _jetson() -> list[Finding]:
    """Return the release of Jetson Linux; nothing on another machine."""
    try:
        text = _TEGRA_RELEASE.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    match = re.match(r"# R(\d+) \(release\), REVISION: ([\d.]+)", text)
    if match is None:
        return [Finding("Jetson Linux", True, (text.splitlines() or ["unknown release"])[0])]
    release = int(match[1])
    jetpack = {35: "5", 36: "6"}.get(release, "7" if release > 37 else "4 or older")
    fact = f"{release}.{match[2]}, JetPack {jetpack}"
    if release < _FIRST_TEGRA:
        return [Finding("Jetson Linux", False, fact, "flash JetPack 6 or 7")]
    return [Finding("Jetson Linux", True, fact)]


def _torch_tensorrt() -> str:
    """Return the package for this processor: torch-tensorrt-rtx has no wheels for aarch64."""
    return _RTX if platform.machine() == "x86_64" else "torch-tensorrt"


def _install_tensorrt() -> str:
    """Return the command that installs TensorRT."""
    return _INSTALL_JETPACK if _TEGRA_RELEASE.exists() else install_command(_torch_tensorrt())


def _builder() -> Finding:
    names = ("torch-tensorrt", _RTX)
    installed = [f"{name} {version}" for name in names if (version := _version(name))]
    if len(installed) == 2:
        fact = f"both are installed: {', '.join(installed)}"
        remedy = "pip uninstall torch-tensorrt torch-tensorrt-rtx, then install one of them"
        return Finding("Torch-TensorRT", False, fact, remedy)
    if installed:
        return Finding("Torch-TensorRT", True, installed[0])
    parser = [f"{name} {version}" for name in _PARSER if (version := _version(name))]
    if len(parser) == len(_PARSER):
        fact = f"{', '.join(parser)} (without Torch-TensorRT)"
        return Finding("ONNX parser of TensorRT-RTX", True, fact)
    return Finding("Torch-TensorRT", False, "is not installed", install_command(_torch_tensorrt()))


def _native(subject: str, find: Callable[[], Path]) -> Finding:
    try:
        fact = str(find())
        if find is trt_et.runtime.plugin_path:
            fact = f"{trt_et.runtime.status()['version']}, {fact}"
    except TrtEtError as error:
        return Finding(subject, False, str(error), _FROM_SOURCES)
    return Finding(subject, True, fact)


def _driver() -> tuple[Finding, list[Finding]]:
    """Look for the driver and its GPUs."""
    # A Jetson's driver is a part of Jetson Linux.
    remedy = _INSTALL_JETPACK if _TEGRA_RELEASE.exists() else _INSTALL_DRIVER
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Finding("NVIDIA driver", False, "libcuda.so.1 is not found", remedy), []
    code = driver.cuInit(0)
    if code:
        fact = f"cuInit fails with error {code}" + (" (no GPU)" if code == 100 else "")
        return Finding("NVIDIA driver", False, fact, remedy), []
    fact = f"for CUDA {_cuda_version(driver.cuDriverGetVersion)}"
    count = _number(driver.cuDeviceGetCount)
    return Finding("NVIDIA driver", True, fact), [_gpu(driver, index) for index in range(count)]


def _gpu(driver: ctypes.CDLL, index: int) -> Finding:
    device = _number(driver.cuDeviceGet, index)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), device)
    major, minor = (_number(driver.cuDeviceGetAttribute, code, device) for code in (75, 76))
    fact = f"{name.value.decode(errors='replace')}, compute capability {major}.{minor}"
    if (major, minor) < (7, 5):
        return Finding(f"cuda:{index}", False, fact + "; TensorRT needs 7.5", "use a later GPU")
    if (major, minor) == (9, 0):
        fact += "; not a target of TensorRT-RTX: use torch-tensorrt"
    return Finding(f"cuda:{index}", True, fact)


def _number(function: Any, *arguments: int) -> int:  # noqa: ANN401
    value = ctypes.c_int(0)
    return 0 if function(ctypes.byref(value), *arguments) else value.value


def _cuda_version(function: Any) -> str:  # noqa: ANN401
    version = _number(function)
    return f"{version // 1000}.{version % 1000 // 10}"


def _cuda_runtime() -> Finding:
    named = os.environ.get("TRT_ET_CUDART_LIBRARY")
    folders = [packages / folder for packages in _site_packages() for folder in _CUDART_FOLDERS]
    candidates = [named] if named else [*_CUDART, *(str(f / n) for f in folders for n in _CUDART)]
    for candidate in candidates:
        try:
            library = ctypes.CDLL(candidate)
        except OSError:
            continue
        version = _cuda_version(library.cudaRuntimeGetVersion)
        return Finding("CUDA runtime", True, f"{version}, {candidate}")
    fact = f"TRT_ET_CUDART_LIBRARY names {named}, which does not load" if named else "is not found"
    remedy = _INSTALL_JETPACK if _TEGRA_RELEASE.exists() else "pip install nvidia-cuda-runtime"
    beside = [_CUDA_FOLDER / name for name in _CUDART if (_CUDA_FOLDER / name).exists()]
    if beside and not named:
        fact = f"is in {_CUDA_FOLDER}, which the loader does not search"
        remedy = f"export TRT_ET_CUDART_LIBRARY={beside[0]}"
    return Finding("CUDA runtime", False, fact, remedy)


def _tensorrt_libraries() -> Iterator[Finding]:
    """Find every TensorRT library, in the order in which the runtime looks for them."""
    named = os.environ.get("TRT_ET_TENSORRT_LIBRARY")
    if named:
        exists = Path(named).is_file()
        fact = f"{named} (TRT_ET_TENSORRT_LIBRARY)" + ("" if exists else " is no file")
        yield Finding("TensorRT", exists, fact, "" if exists else "unset TRT_ET_TENSORRT_LIBRARY")
        return
    pip = [packages / folder for packages in _site_packages() for folder in _PIP_FOLDERS]
    for path in dict.fromkeys([*_loader_path(), *_files(pip)]):
        if match := _TENSORRT_LIBRARIES.fullmatch(path.name):
            yield Finding("TensorRT", True, f"{match[1]} {match[2]}, {path}")


def _loader_path() -> list[Path]:
    """Find the libraries that the system's loader knows by name."""
    files = _files(_folders("LD_LIBRARY_PATH"))
    try:
        done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return files
    lines = done.stdout.splitlines()
    return files + [Path(line.split("=> ")[1]) for line in lines if "=> " in line]


def _providers() -> Iterator[Finding]:
    folders = []
    with contextlib.suppress(TrtEtError):
        folders = [trt_et.runtime.plugin_path().parent]
    for path in _files(folders):
        if match := _PROVIDERS.fullmatch(path.name):
            yield Finding("provider", True, f"for TensorRT {match[1].upper()}, {path}")


def _folders(variable: str) -> list[Path]:
    return [Path(folder) for folder in os.environ.get(variable, "").split(":") if folder]


def _files(folders: list[Path]) -> list[Path]:
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]


def _site_packages() -> list[Path]:
    spec = util.find_spec("executorch")
    return [Path(folder).parent for folder in (spec and spec.submodule_search_locations) or ()]
