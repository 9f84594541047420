"""``trt-et build --compute-capability``: engines of ONNX networks, on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import Result

from tests.support.cli.command_line import invoke
from tests.support.lowering import lower
from tests.support.onnx.comparison import HAS_PARSER
from trt_et.errors import PluginError
from trt_et.inspection import inspect_program

pytestmark = pytest.mark.skipif(not HAS_PARSER, reason="tensorrt-rtx is not installed")


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    exported = torch.export.export(torch.nn.Linear(8, 4), (torch.randn(2, 8),))
    path = tmp_path_factory.mktemp("build") / "model.pte"
    path.write_bytes(lower(exported, builder="onnx"))
    return path


def build(*arguments: object) -> Result:
    return invoke("build", *arguments)


def test_the_written_program_has_engines_for_the_targets(program, tmp_path):
    output = tmp_path / "model.rtx.pte"
    targets = ("--compute-capability", "8.9", "--compute-capability", "12.0")
    done = build(program, "-o", output, *targets, "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    (delegate,) = inspect_program(output.read_bytes())[0].delegates
    assert delegate.engine.compute_capabilities == ("8.9", "12.0")
    assert printed["bytes"] == output.stat().st_size
    assert printed["engines"] == [
        {
            "method": "forward",
            "bytes": len(delegate.blob),
            "builder": "tensorrt_rtx",
            "library_version": delegate.engine.library_version,
            "gpu_name": delegate.engine.gpu_name,
        }
    ]


def test_all_is_the_librarys_default(program, tmp_path):
    output = tmp_path / "model.rtx.pte"
    done = build(program, "-o", output, "--compute-capability", "all")
    assert done.exit_code == 0, done.output
    assert f"wrote {output}" in done.output.replace("\n", "")
    (delegate,) = inspect_program(output.read_bytes())[0].delegates
    assert delegate.engine.builder == "tensorrt_rtx"
    assert delegate.engine.compute_capabilities == ()
    assert delegate.engine.hardware_compatible


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compute-capability", "5.0"], "has no target 5.0; it has"),
        (["--compute-capability", "new"], "new"),
        (["--compute-capability", "8.9", "--cuda", "simulated:1"], "leave --engine-folder"),
        (["--compute-capability", "8.9", "--engine-folder", "off"], "leave --engine-folder"),
    ],
)
def test_what_it_cannot_build_is_one_sentence_and_no_file(
    program, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.setenv("TRT_ET_ENGINE_FOLDER", "")  # The command sets it.
    output = tmp_path / "x.pte"
    done = build(program, "-o", output, *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not output.exists()


def test_what_is_no_program_is_one_sentence(tmp_path):
    file = tmp_path / "text.pte"
    file.write_bytes(b"some text " * 30)
    done = build(file, "-o", tmp_path / "x.pte", "--compute-capability", "8.9")
    assert done.exit_code == 1
    assert f"trt-et: {file} is no ExecuTorch program (.pte)" in " ".join(done.output.split())


def test_a_missing_folder_is_named_before_anything_is_built(program, tmp_path, monkeypatch):
    monkeypatch.setattr("trt_et.runtime.networks.build_program", None)
    done = build(program, "-o", tmp_path / "none" / "x.pte", "--compute-capability", "8.9")
    assert done.exit_code == 1
    assert f"there is no folder {tmp_path / 'none'}" in done.output


def test_without_a_gpu_it_names_the_option_that_needs_none(program, tmp_path, monkeypatch):
    def without_driver(*_: object) -> None:
        raise PluginError("engine for onnx on cuda:0 needs an NVIDIA driver: not found")

    monkeypatch.setattr("trt_et.runtime.load", lambda cuda: None)
    monkeypatch.setattr("trt_et.runtime.networks.build_program", without_driver)
    done = build(program, "-o", tmp_path / "x.pte")
    assert done.exit_code == 1
    assert "not found; run it on a machine with a GPU, or build for TensorRT-RTX" in done.output
