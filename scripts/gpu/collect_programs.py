"""Copy this Python with what a GPU check imports, for a machine that cannot install anything.

    python scripts/gpu/collect_python.py build/gpu_kit/python

ExecuTorch's bindings take tensors of the PyTorch that they were built with, and a machine with a
GPU may have another. The copy finds its own library folder, wherever it lies; it needs the C
library of this machine or a newer one. Build tools are expected there.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

# What importing ExecuTorch, Torch-TensorRT and this package takes; their other requirements are not
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
LEFT_OUT = ("torch/bin/protoc", "torch/bin/test_", "torch/include/", "torch/test/")


def main(folder: Path) -> None:
    """Fill the folder, which must not exist."""
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


def _copy_package(name: str, target: Path) -> None:
    distribution = metadata.distribution(name)
    for file in distribution.files or ():
        text = file.as_posix()
        if text.startswith(("..", "/", *LEFT_OUT)) or "__pycache__" in text:
            continue
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
