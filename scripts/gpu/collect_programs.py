"""Copy the programs of a GPU check, for a machine that cannot install anything.

    python scripts/gpu/collect_programs.py KIT BUILD PYTHON_VERSION

``site`` in the kit is laid out as site-packages, so that libraries find each other: ExecuTorch and
the packages that it imports, for that Python; executor_runner, the plugin and the providers;
TensorRT-RTX's library; pytest; and the programs of tests/gpu/native from BUILD, a build of this
tree for TensorRT-RTX. The machine's own Python brings PyTorch and NumPy. It needs the C library of
this machine or a newer one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import trt_et.runtime

# The imports of ExecuTorch, this package and pytest.
PACKAGES = (
    *("executorch", "flatbuffers", "pyyaml", "ruamel.yaml", "tabulate", "psutil"),
    *("crc32c", "filelock", "nlohmann-json", "platformdirs"),
    *("pytest", "pluggy", "iniconfig", "packaging", "pygments"),
)
# Two thirds of ExecuTorch's package.
UNNEEDED = ("backends", "examples")
LIBRARIES = ("libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1")
# The rehearsal uses the last one; the one before runs described engines as CUDA kernels.
TOOLS = (
    "tests/gpu/native/gpu_probe",
    "tests/runtime/tensorrt_fake/libkernels_tensorrt_rtx.so",
    "tests/runtime/tensorrt_fake/libfake_tensorrt_rtx.so",
)


def main(kit: Path, build: Path, python_version: str) -> None:
    """Fill the kit's folder, made anew."""
    site = kit / "site"
    shutil.rmtree(site, ignore_errors=True)
    install = [sys.executable, "-m", "pip", "install", "--target", str(site), "--no-deps"]
    install += ["--python-version", python_version, "--only-binary", ":all:"]
    install += ["--no-compile", "--quiet", "--disable-pip-version-check"]
    install += [f"{name}=={metadata.version(name)}" for name in PACKAGES]
    subprocess.run(install, check=True)
    for name in UNNEEDED:
        shutil.rmtree(site / "executorch" / name)
    runtime = trt_et.runtime.plugin_path().parents[1]
    for part in ("bin", "lib"):
        shutil.copytree(runtime / part, site / "trt_et" / "runtime" / part)
    (site / "tensorrt_rtx_libs").mkdir()
    for library in LIBRARIES:
        source = Path(sysconfig.get_path("purelib"), "tensorrt_rtx_libs", library)
        shutil.copy2(source, site / "tensorrt_rtx_libs")
    for tool in TOOLS:
        shutil.copy2(build / tool, site / Path(tool).name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
