"""A program as a graph of boxes."""

from __future__ import annotations

from tests.support.cli.sample_programs import program
from trt_et.inspection import inspect_program
from trt_et.inspection.draw_methods import picture_of


def test_arrows_follow_the_tensors_and_carry_their_shapes_and_bytes():
    (method,) = inspect_program(program("split"))
    picture = picture_of(method)
    titles = [box.title for box in picture.boxes]
    ends = {(titles[start], titles[end]): text for (start, end), text in picture.arrows.items()}
    assert ends["x", "copy to the GPU"] == {"x: float32 [2, 4], 32 B": 32}
    assert ("tensorrt_0", "copy to the host") in ends
    assert ("copy to the host", "cumsum") in ends
    assert ("copy to the host", "output 0") in ends
    groups = {box.group for box in picture.boxes if box.title.startswith("tensorrt")}
    assert groups == {"TensorRTBackend on cuda:1"}


def test_boxes_name_the_operators_of_an_engine():
    (method,) = inspect_program(program("rtx"))
    (engine,) = (box for box in picture_of(method).boxes if box.title == "tensorrt_0")
    assert engine.lines[0].startswith("tensorrt_rtx ")
    assert "2 x sub.Tensor" in engine.lines
    operators = engine.facts[-1]
    assert operators.title == "Operators"
    assert ("aten::sub.Tensor", "2") in operators.rows


def test_an_engine_of_tensorrt_rtx_opens_into_its_kernels():
    (method,) = inspect_program(program("rtx"))
    (engine,) = (box for box in picture_of(method).boxes if box.title == "tensorrt_0")
    kernels = method.delegates[0].kernels
    assert engine.lines[-1] == f"{len(kernels.kernels)} kernel"
    assert engine.summary == str(kernels)
    (bar,) = engine.bars
    (kernel,) = kernels.kernels
    assert bar.parts == (kernel.bytes_read, kernel.bytes_written, kernel.constant_bytes)
    assert bar.text == ", ".join(kernel.operators)
    assert kernel.name in bar.tip
    (other,) = inspect_program(program("dynamic"))
    assert not any(box.bars for box in picture_of(other).boxes)


def test_delegates_of_other_backends_are_boxes_without_operators():
    (method,) = inspect_program(program("xnnpack"))
    boxes = [box for box in picture_of(method).boxes if box.title.startswith("XnnpackBackend")]
    assert boxes
    assert all(box.group == "XnnpackBackend on the CPU" for box in boxes)


def test_a_long_cpu_part_becomes_one_box(monkeypatch):
    monkeypatch.setattr("trt_et.inspection.draw_methods._MOST_BOXES", 3)
    (method,) = inspect_program(program("cpu"))
    first, operators, last = picture_of(method).boxes
    assert (first.title, last.title) == ("input 0", "output 0")
    assert operators.title == f"{len(method.calls)} operators"
    assert "3 x addmm" in operators.lines
