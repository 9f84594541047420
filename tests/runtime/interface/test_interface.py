"""Our description of TensorRT's binary interface against what is installed here."""

from __future__ import annotations

import subprocess
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from tests.runtime.interface import ask_bindings

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "trt_et" / "runtime" / "src"

# Files only: Torch-TensorRT-RTX gives its process a module "tensorrt" that other processes lack.
MODULES = [name for name in ("tensorrt_rtx", "tensorrt") if PathFinder.find_spec(name)]


@pytest.mark.skipif(not MODULES, reason="no TensorRT is installed: pip install .[rtx]")
@pytest.mark.parametrize("module", MODULES)
def test_the_installed_bindings_call_the_slots_that_we_call(module):
    _, differences, count = ask_bindings.compare(module)
    assert not differences
    assert count >= 38


def test_every_slot_has_a_question():
    asked = {
        (kind, method) for kind in ask_bindings.QUESTIONS for method in ask_bindings.QUESTIONS[kind]
    }
    for layout in (10, 11):
        assert set(ask_bindings.slots(layout, rtx=True)) - ask_bindings.UNASKED == asked
        assert set(ask_bindings.callback_slots(layout, rtx=True)) == set(ask_bindings.CALLBACKS)


@pytest.mark.parametrize(
    "layout", ["TRT_ET_TENSORRT_MAJOR=10", "TRT_ET_TENSORRT_MAJOR=11", "TRT_ET_TENSORRT_RTX"]
)
def test_callbacks_lie_where_tensorrt_calls_them(layout, tmp_path):
    program = tmp_path / "callback_slots"
    command = ["c++", "-std=c++17", f"-D{layout}", "-I", SOURCES]
    command += ["-I", SOURCES / "tensorrt/cuda_types"]
    source = Path(__file__).with_name("callback_slots.cpp")
    subprocess.run([*command, source, "-o", program], check=True, timeout=120)
    assert subprocess.run([program], timeout=60).returncode == 0
