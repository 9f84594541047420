"""What ``trt-et doctor`` finds, here and where something is missing."""

from __future__ import annotations

import ctypes
import json
from importlib import metadata

from tests.support.cli.command_line import invoke
from trt_et.requirements import allowed_versions, install_command
from trt_et.tools import diagnosis
from trt_et.tools.diagnosis import diagnose


def finding(subject: str) -> diagnosis.Finding:
    return next(found for found in diagnose().findings if found.subject == subject)


def has_driver() -> bool:
    try:
        return bool(ctypes.CDLL("libcuda.so.1").cuInit(0) == 0)
    except OSError:
        return False


def test_what_is_missing_has_a_remedy_and_what_is_there_has_none():
    for found in diagnose().findings:
        assert bool(found.remedy) == (not found.found), found


def test_without_a_driver_no_engine_runs_but_programs_are_exported():
    abilities = {ability.name: ability.obstacle for ability in diagnose().abilities}
    assert abilities["export programs with engines of TensorRT"] == ""
    assert abilities["run reference engines on simulated GPUs"] == ""
    if not has_driver():
        assert "NVIDIA driver" in abilities["run engines of TensorRT on a GPU"]


def test_the_command_prints_it_and_its_exit_status_says_whether_a_gpu_can_be_used():
    result = invoke("doctor", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == (0 if document["runs_on_gpu"] else 1)
    assert {"torch", "executorch", "runtime plugin"} <= {f["subject"] for f in document["findings"]}
    printed = invoke("doctor").stdout
    assert "run engines of TensorRT on a GPU? " in printed
    if not has_driver():
        assert "missing NVIDIA driver: libcuda.so.1 is not found" in printed


def test_missing_and_unfit_packages_are_named_with_the_command_that_installs_them(monkeypatch):
    versions = {"torch": "2.9.0", "torch-tensorrt": "2.13.0", "torch-tensorrt-rtx": "2.13.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(diagnosis.metadata, "version", version)
    allowed = allowed_versions("torch")
    assert finding("torch").fact == f"is 2.9.0; {allowed} is needed"
    assert finding("torch").remedy == f'pip install "torch{allowed}"'
    assert finding("executorch").fact == "is not installed"
    assert "both are installed" in finding("Torch-TensorRT").fact
    del versions["torch-tensorrt"], versions["torch-tensorrt-rtx"]
    assert finding("Torch-TensorRT").remedy == install_command("torch-tensorrt-rtx")


def test_libraries_that_the_environment_names_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("TRT_ET_TENSORRT_LIBRARY", str(tmp_path / "none.so"))
    assert "is no file" in finding("TensorRT").fact
    monkeypatch.setenv("TRT_ET_CUDART_LIBRARY", str(tmp_path / "none.so"))
    assert "does not load" in finding("CUDA runtime").fact
    monkeypatch.delenv("TRT_ET_TENSORRT_LIBRARY")
    (tmp_path / "libnvinfer.so.11").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert finding("TensorRT").fact == f"nvinfer 11, {tmp_path}/libnvinfer.so.11"
    monkeypatch.setenv("TRT_ET_PROVIDER_PATH", str(tmp_path))
    (tmp_path / "libtrt_et_tensorrt_11.so").touch()
    (tmp_path / "libtrt_et_tensorrt_rtx.so").touch()
    providers = [found.fact for found in diagnose().findings if found.subject == "provider"]
    assert providers[:2] == [
        f"for TensorRT 11, {tmp_path}/libtrt_et_tensorrt_11.so",
        f"for TensorRT RTX, {tmp_path}/libtrt_et_tensorrt_rtx.so",
    ]
