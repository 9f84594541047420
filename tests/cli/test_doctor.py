"""What ``trt-et doctor`` finds, here and where something is missing."""

from __future__ import annotations

import ctypes
import json
from importlib import metadata

import pytest

from tests.support.cli.command_line import invoke
from trt_et.cli import doctor
from trt_et.cli.doctor import Finding, diagnose
from trt_et.requirements import allowed_versions, install_command


def finding(subject: str) -> Finding:
    return next(one for one in diagnose()[0] if one.subject == subject)


def has_driver() -> bool:
    try:
        return bool(ctypes.CDLL("libcuda.so.1").cuInit(0) == 0)
    except OSError:
        return False


def test_what_is_missing_has_a_remedy_and_what_is_there_has_none():
    for one in diagnose()[0]:
        assert bool(one.remedy) == (not one.found), one


def test_without_a_driver_no_engine_runs_but_programs_are_exported():
    obstacles = diagnose()[1]
    assert obstacles["export programs with engines of TensorRT"] == ""
    assert obstacles["run reference engines on simulated GPUs"] == ""
    if not has_driver():
        assert "NVIDIA driver" in obstacles["run engines of TensorRT on a GPU"]


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

    monkeypatch.setattr(doctor.metadata, "version", version)
    allowed = allowed_versions("torch")
    assert finding("torch").fact == f"is 2.9.0; {allowed} is needed"
    assert finding("torch").remedy == f'pip install "torch{allowed}"'
    assert finding("executorch").fact == "is not installed"
    assert "both are installed" in finding("Torch-TensorRT").fact
    del versions["torch-tensorrt"], versions["torch-tensorrt-rtx"]
    assert finding("Torch-TensorRT").remedy == install_command("torch-tensorrt-rtx")
    versions |= {"tensorrt-rtx": "1.7.1.116", "onnx": "1.23.2"}
    assert not finding("Torch-TensorRT").found
    versions["onnxscript"] = "0.7.2"
    parser = finding("ONNX parser of TensorRT-RTX")
    assert parser.fact.startswith("tensorrt-rtx 1.7.1.116, onnx 1.23.2, onnxscript 0.7.2")


def test_libraries_that_the_environment_names_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("TRT_ET_TENSORRT_LIBRARY", str(tmp_path / "none.so"))
    assert "is no file" in finding("TensorRT").fact
    monkeypatch.setenv("TRT_ET_CUDART_LIBRARY", str(tmp_path / "none.so"))
    assert "does not load" in finding("CUDA runtime").fact
    monkeypatch.delenv("TRT_ET_TENSORRT_LIBRARY")
    (tmp_path / "libnvinfer.so.11").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert finding("TensorRT").fact == f"nvinfer 11, {tmp_path}/libnvinfer.so.11"
    monkeypatch.setenv("TRT_ET_PLUGIN", str(tmp_path / "libtrt_et_backend.so"))
    (tmp_path / "libtrt_et_backend.so").touch()
    (tmp_path / "libtrt_et_tensorrt_11.so").touch()
    (tmp_path / "libtrt_et_tensorrt_rtx.so").touch()
    providers = [one.fact for one in diagnose()[0] if one.subject == "provider"]
    assert providers == [
        f"for TensorRT 11, {tmp_path}/libtrt_et_tensorrt_11.so",
        f"for TensorRT RTX, {tmp_path}/libtrt_et_tensorrt_rtx.so",
    ]


@pytest.mark.parametrize(
    ("text", "found", "fact"),
    [
        ("# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n", True, "JetPack 6"),
        ("# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic\n", True, "JetPack 7"),
        ("# R35 (release), REVISION: 5.0, GCID: 35550185, BOARD: t186ref\n", False, "JetPack 5"),
        ("something else\n", True, "something else"),
    ],
)
def test_on_a_jetson_its_release_and_the_packages_of_jetpack_are_named(
    monkeypatch, tmp_path, text, found, fact
):
    release = tmp_path / "nv_tegra_release"
    release.write_text(text)
    monkeypatch.setattr(doctor, "_TEGRA_RELEASE", release)
    monkeypatch.setattr(doctor.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(doctor, "_tensorrt_libraries", list)
    assert (finding("Jetson Linux").found, fact in finding("Jetson Linux").fact) == (found, True)
    assert finding("TensorRT").remedy == "sudo apt-get install nvidia-jetpack"
    assert finding("NVIDIA driver").remedy in ("", "sudo apt-get install nvidia-jetpack")


def test_on_another_aarch64_machine_the_remedy_is_what_pip_has_for_it(monkeypatch):
    monkeypatch.setattr(doctor.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(doctor, "_tensorrt_libraries", list)
    assert "torch-tensorrt>" in finding("TensorRT").remedy
    assert not [one for one in diagnose()[0] if one.subject == "Jetson Linux"]


def test_a_cuda_runtime_where_the_loader_does_not_look_is_named(monkeypatch, tmp_path):
    (tmp_path / "libcudart.so.12").touch()
    monkeypatch.setattr(doctor, "_CUDA_FOLDER", tmp_path)
    monkeypatch.setattr(doctor, "_CUDART", ("libcudart.so.12",))
    monkeypatch.setattr(doctor, "_CUDART_FOLDERS", ())
    runtime = finding("CUDA runtime")
    assert runtime.fact == f"is in {tmp_path}, which the loader does not search"
    assert runtime.remedy == f"export TRT_ET_CUDART_LIBRARY={tmp_path}/libcudart.so.12"
