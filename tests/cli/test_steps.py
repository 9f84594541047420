"""What `trt-et export` shows on a terminal, and that it shows nothing elsewhere."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tests.support.terminal import Terminal, show_terminal
from trt_et.cli.steps import Steps
from trt_et.engines.progress import ProgressEvent, _Bars

LONG = "Computing profile costs of a rather long phase of TensorRT's builder, to its end"


def words(terminal: Terminal) -> str:
    return " ".join(re.sub(r"\x1b\[[\d;?]*\w", " ", terminal.getvalue()).split())


def test_each_step_leaves_a_line_with_its_time(monkeypatch):
    shown = show_terminal(monkeypatch)
    steps = Steps(shown=True)
    with steps.step("torch.export"):
        pass
    with pytest.raises(ValueError, match="fails"), steps.step("lower"):
        raise ValueError("it fails")
    text = words(shown)
    assert re.search(r"✓ torch.export \(\d+\.\d s\)", text)
    assert "✓ lower" not in text


@pytest.mark.parametrize("steps", [True, False])
def test_a_long_phase_is_not_cut_off(monkeypatch, steps):
    shown = show_terminal(monkeypatch)
    event = ProgressEvent("tensorrt_0", LONG, 1, 2, 0.5, 0, 2)
    if steps:
        show = Steps(shown=True)
        with show.step("build"):
            show.show_build(event)
            show._progress.refresh()
        assert "0 of 2 engines" in words(shown)
    else:
        bars = _Bars(2)
        with bars.progress:
            bars.show(event)
            bars.progress.refresh()
    assert "…" not in words(shown)
    assert "to its end" in words(shown).replace("\n", " ")


@pytest.mark.parametrize("wanted", [True, False])
def test_nothing_is_shown_elsewhere(monkeypatch, wanted):
    shown = show_terminal(monkeypatch)
    if wanted:
        monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    steps = Steps(shown=wanted)
    with steps.step("torch.export"):
        steps.show_build(ProgressEvent("tensorrt_0", "done", 1, 1, 1.0, 1, 1))
    assert shown.getvalue() == ""
