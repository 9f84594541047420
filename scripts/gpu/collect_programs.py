"""Copy the programs of a GPU check, for a machine that cannot install anything.

    python scripts/gpu/collect_programs.py KIT BUILD

``native`` holds executor_runner and its libraries, laid out as in site-packages so that they find
each other; the programs of tests/gpu/native from BUILD, a build of this tree for TensorRT-RTX; and
pytest, for the machine's own Python.

``python`` is this Python with ExecuTorch: its bindings need the PyTorch that they were built with,
and a machine with a GPU may have another. It finds its library folder in any place. Files that
``native`` has are links.

Both need the C library of this machine or a newer one.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import trt_et.runtime

# The imports of ExecuTorch, Torch-TensorRT and this package. Their other requirements are not
# imported, and are as large again.
PACKAGES = (
    *("torch", "numpy", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec"),
    *("typing_extensions", "setuptools", "packaging", "psutil"),
    *("executorch", "flatbuffers", "pyyaml", "ruamel.yaml", "tabulate", "torchao"),
    *("torch-tensorrt-rtx", "dllist", "tensorrt_rtx", "tensorrt_rtx_cu13"),
    *("tensorrt_rtx_cu13_bindings", "tensorrt_rtx_cu13_libs"),
    *("crc32c", "filelock", "nlohmann-json", "platformdirs"),
    *("pytest", "pluggy", "iniconfig", "pygments"),
)
# Pure Python: for the machine's own interpreter.
PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
LEFT_OUT = (
    *("torch/bin/protoc", "torch/bin/test_", "torch/include/", "torch/test/"),
    *("torch_tensorrt/bin/", "torchao/_C_cutlass", "torch/lib/libtorchbind_test"),
)
LIBRARY = Path("tensorrt_rtx_libs", "libtensorrt_rtx.so.1")
# The rehearsal uses the last one.
TOOLS = (
    "tests/gpu/native/gpu_probe",
    "tests/runtime/tensorrt_fake/libfake_tensorrt_rtx.so",
)


def main(kit: Path, build: Path) -> None:
    """Fill the kit's two folders, made anew."""
    for folder in (kit / "native", kit / "python"):
        shutil.rmtree(folder, ignore_errors=True)
    _copy_native(kit / "native", build)
    _copy_python(kit / "python", kit / "native")


def _copy_native(folder: Path, build: Path) -> None:
    site = Path(sysconfig.get_path("purelib"))
    runtime = trt_et.runtime.plugin_path().parents[1]
    for part in ("bin", "lib"):
        shutil.copytree(runtime / part, folder / "trt_et" / "runtime" / part)
    for source in (site / "executorch" / "lib").glob("*.so"):
        _copy_file(source, folder / source.relative_to(site))
    _copy_file(site / LIBRARY, folder / LIBRARY)
    for tool in TOOLS:
        _copy_file(build / tool, folder / Path(tool).name)
    for name in PYTEST:
        _copy_package(name, folder / "python")


def _copy_python(folder: Path, native: Path) -> None:
    version = f"python{sysconfig.get_python_version()}"
    base = Path(sys.base_prefix)
    library = folder / "lib" / version
    unneeded = shutil.ignore_patterns("site-packages", "test", "idlelib", "__pycache__", "*.a")
    shutil.copytree(base / "lib" / version, library, ignore=unneeded)
    for path in base.glob("lib/libpython*.so*"):
        shutil.copy2(path, folder / "lib")
    (folder / "bin").mkdir()
    shutil.copy2(base / "bin" / version, folder / "bin" / "python3")
    for name in PACKAGES:
        _copy_package(name, library / "site-packages")
    for file in (native / LIBRARY, *(native / "executorch").rglob("*.so")):
        copy = library / "site-packages" / file.relative_to(native)
        copy.unlink()
        copy.symlink_to(os.path.relpath(file, copy.parent))


def _copy_package(name: str, target: Path) -> None:
    distribution = metadata.distribution(name)
    for file in distribution.files or ():
        text = file.as_posix()
        if text.startswith(("..", "/", *LEFT_OUT)) or {"__pycache__", "tests"} & {*file.parts}:
            continue
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            _copy_file(source, target / file)


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
