"""What is installed here, what will work with it, and the command that installs what is missing.

Nothing here imports torch or TensorRT; versions come from the packages' metadata.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final

import trt_et.runtime
from trt_et.errors import TrtEtError
from trt_et.requirements import allowed_versions, install_command, is_allowed

__all__ = ["Ability", "Diagnosis", "Finding", "diagnose"]

_TENSORRT_LIBRARIES: Final = re.compile(r"lib(nvinfer|nvinfer_lean|tensorrt_rtx)\.so\.(\d+)")
_PROVIDERS: Final = re.compile(r"libtrt_et_tensorrt_(\d+|rtx)\.so")
_PIP_FOLDERS: Final = ("tensorrt_libs", "tensorrt_lean_libs", "tensorrt_rtx_libs")
_CUDART: Final = ("libcudart.so.13", "libcudart.so.12")
_CUDART_FOLDERS: Final = ("nvidia/cu13/lib", "nvidia/cuda_runtime/lib")
_RTX: Final = "torch-tensorrt-rtx"
_INSTALL_DRIVER: Final = "install NVIDIA's driver 580 or later: https://www.nvidia.com/drivers"


@dataclass(frozen=True)
class Finding:
    """One fact about this machine.

    Attributes:
        subject: What was looked for.
        found: Whether it is there and usable.
        fact: What was found, or what is wrong.
        remedy: The command that installs it; empty where nothing is missing.
    """

    subject: str
    found: bool
    fact: str
    remedy: str = ""


@dataclass(frozen=True)
class Ability:
    """Something that users do, and why it will not work here; empty where it will."""

    name: str
    obstacle: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """Everything that was found, and what follows from it."""

    findings: tuple[Finding, ...]
    abilities: tuple[Ability, ...]

    @property
    def runs_on_gpu(self) -> bool:
        """Whether engines of TensorRT can run on a GPU here."""
        return not self.abilities[-1].obstacle


def diagnose() -> Diagnosis:
    """Look at this machine."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    supported = platform.system() == "Linux"
    packages = [_package("torch"), _package("executorch")]
    builder = _builder()
    plugin = _plugin()
    driver, gpus = _driver()
    runtime = _cuda_runtime()
    libraries = list(_tensorrt_libraries())
    providers = list(_providers())
    findings = [
        Finding("platform", supported, system, "" if supported else "use Linux"),
        *packages,
        builder,
        plugin,
        _runner(),
        driver,
        *gpus,
        runtime,
        *(libraries or [_missing_library()]),
        *(providers or [_missing_provider()]),
    ]
    gpu = Finding("GPU", bool(gpus), "no GPU", _INSTALL_DRIVER)
    needs = [plugin, driver, *([gpu] if driver.found else []), runtime]
    needs += libraries[:1] or [_missing_library()]
    needs += providers[:1] or [_missing_provider()]
    abilities = (
        Ability("export programs with engines of TensorRT", _obstacle([*packages, builder])),
        Ability("export programs with reference engines", _obstacle(packages)),
        Ability("run reference engines on simulated GPUs", _obstacle([packages[1], plugin])),
        Ability("run engines of TensorRT on a GPU", _obstacle(needs)),
    )
    return Diagnosis(tuple(findings), abilities)


def _obstacle(needs: list[Finding]) -> str:
    missing = [f"{need.subject}: {need.fact}" for need in needs if not need.found]
    return "; ".join(missing)


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


def _builder() -> Finding:
    names = ("torch-tensorrt", "torch-tensorrt-rtx")
    found = [f"{name} {version}" for name in names if (version := _version(name))]
    if len(found) == 2:
        remedy = "pip uninstall torch-tensorrt torch-tensorrt-rtx, then install one of them"
        return Finding("Torch-TensorRT", False, "both are installed: " + ", ".join(found), remedy)
    if not found:
        return Finding("Torch-TensorRT", False, "is not installed", install_command(_RTX))
    return Finding("Torch-TensorRT", True, found[0])


def _plugin() -> Finding:
    try:
        path = trt_et.runtime.plugin_path()
        status = trt_et.runtime.status()
    except TrtEtError as error:
        return Finding("runtime plugin", False, str(error), "pip install . (in trt-et's sources)")
    return Finding("runtime plugin", True, f"{status['version']}, {path}")


def _runner() -> Finding:
    try:
        return Finding("executor_runner", True, str(trt_et.runtime.runner_path()))
    except TrtEtError as error:
        return Finding("executor_runner", False, str(error), "pip install . (in trt-et's sources)")


def _driver() -> tuple[Finding, list[Finding]]:
    """The driver, and its GPUs."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Finding("NVIDIA driver", False, "libcuda.so.1 is not found", _INSTALL_DRIVER), []
    code = driver.cuInit(0)
    if code:
        fact = f"cuInit fails with error {code}" + (" (no GPU)" if code == 100 else "")
        return Finding("NVIDIA driver", False, fact, _INSTALL_DRIVER), []
    version = _number(driver.cuDriverGetVersion)
    count = _number(driver.cuDeviceGetCount)
    name = f"for CUDA {version // 1000}.{version % 1000 // 10}"
    return Finding("NVIDIA driver", True, name), [_gpu(driver, index) for index in range(count)]


def _gpu(driver: ctypes.CDLL, index: int) -> Finding:
    device = _number(driver.cuDeviceGet, index)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), device)
    major = _number(driver.cuDeviceGetAttribute, 75, device)
    minor = _number(driver.cuDeviceGetAttribute, 76, device)
    fact = f"{name.value.decode(errors='replace')}, compute capability {major}.{minor}"
    if (major, minor) < (7, 5):
        return Finding(f"cuda:{index}", False, fact + "; TensorRT needs 7.5", "use a later GPU")
    if (major, minor) == (9, 0):
        fact += "; not a target of TensorRT-RTX: use torch-tensorrt"
    return Finding(f"cuda:{index}", True, fact)


def _number(function: Any, *arguments: int) -> int:  # noqa: ANN401
    value = ctypes.c_int(0)
    return 0 if function(ctypes.byref(value), *arguments) else value.value


def _cuda_runtime() -> Finding:
    named = os.environ.get("TRT_ET_CUDART_LIBRARY")
    folders = [packages / folder for packages in _site_packages() for folder in _CUDART_FOLDERS]
    candidates = [named] if named else [*_CUDART, *(str(f / n) for f in folders for n in _CUDART)]
    for candidate in candidates:
        try:
            library = ctypes.CDLL(candidate)
        except OSError:
            continue
        version = _number(library.cudaRuntimeGetVersion)
        text = f"{version // 1000}.{version % 1000 // 10}, {candidate}"
        return Finding("CUDA runtime", True, text)
    fact = f"TRT_ET_CUDART_LIBRARY names {named}, which does not load" if named else "is not found"
    return Finding("CUDA runtime", False, fact, "pip install nvidia-cuda-runtime")


def _tensorrt_libraries() -> Iterator[Finding]:
    """Every TensorRT library, in the order in which the runtime looks for them."""
    named = os.environ.get("TRT_ET_TENSORRT_LIBRARY")
    if named:
        found = Path(named).is_file()
        fact = f"{named} (TRT_ET_TENSORRT_LIBRARY)" + ("" if found else " is no file")
        yield Finding("TensorRT", found, fact, "" if found else "unset TRT_ET_TENSORRT_LIBRARY")
        return
    seen = set()
    pip = [packages / folder for packages in _site_packages() for folder in _PIP_FOLDERS]
    found_in = [path for folder in pip if folder.is_dir() for path in sorted(folder.iterdir())]
    for path in [*_loader_path(), *found_in]:
        match = _TENSORRT_LIBRARIES.fullmatch(path.name)
        if match and path not in seen:
            seen.add(path)
            yield Finding("TensorRT", True, f"{match[1]} {match[2]}, {path}")


def _loader_path() -> list[Path]:
    """Libraries that the system's loader finds by their name."""
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    found = [p for f in folders if Path(f).is_dir() for p in sorted(Path(f).iterdir())]
    try:
        done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return found
    return found + [
        Path(line.split("=> ")[1]) for line in done.stdout.splitlines() if "=> " in line
    ]


def _providers() -> Iterator[Finding]:
    folders = [*filter(None, os.environ.get("TRT_ET_PROVIDER_PATH", "").split(":"))]
    with contextlib.suppress(TrtEtError):
        folders.append(str(trt_et.runtime.plugin_path().parent))
    for folder in folders:
        for path in sorted(Path(folder).glob("libtrt_et_tensorrt*.so")):
            match = _PROVIDERS.fullmatch(path.name)
            if match:
                yield Finding("provider", True, f"for TensorRT {match[1].upper()}, {path}")


def _missing_library() -> Finding:
    return Finding("TensorRT", False, "no library is found", install_command(_RTX))


def _missing_provider() -> Finding:
    fact = "no provider library lies beside the plugin or in TRT_ET_PROVIDER_PATH"
    return Finding("provider", False, fact, "pip install . (in trt-et's sources)")


def _site_packages() -> list[Path]:
    spec = util.find_spec("executorch")
    return [Path(folder).parent for folder in (spec and spec.submodule_search_locations) or ()]
