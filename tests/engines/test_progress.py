"""What programs and people see of builds."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from torch import nn

from tests.support.executors import Inline, export
from tests.support.lowering import lower, lower_case
from trt_et import OptionError, PartitionError, TensorRTPartitioner
from trt_et.engines.progress import ProgressEvent


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show_terminal(monkeypatch) -> Terminal:
    """Called in the test itself: between its set-up and it, pytest puts its own stderr back."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


class Events(list[ProgressEvent]):
    """A function that is false until it is called."""

    def __call__(self, event: ProgressEvent) -> None:
        self.append(event)


def test_a_function_gets_the_steps_of_a_real_build():
    events = Events()
    lower_case(
        "split",
        builder="tensorrt_rtx",
        excluded_ops=["aten.cumsum.default"],
        progress=events,
    )
    assert {event.partition for event in events} == {"tensorrt_0", "tensorrt_1"}
    assert {event.engines_total for event in events} == {2}
    assert all(0 <= event.step <= event.steps for event in events)
    done = [(e.partition, e.engines_done) for e in events if e.phase == "done"]
    assert done == [("tensorrt_0", 1), ("tensorrt_1", 2)]
    first = [event for event in events if event.partition == "tensorrt_0"]
    assert [event.fraction for event in first] == sorted(event.fraction for event in first)
    assert first[-2].fraction > 0.8
    assert first[-1].fraction == 1
    assert {"Building engine", "Optimizing graph"} <= {event.phase for event in first}


def test_of_processes_the_engines_are_reported():
    events: list[ProgressEvent] = []
    export(executor=Inline(), progress=events.append)
    assert [(e.phase, e.engines_done, e.engines_total) for e in events] == [
        ("done", 1, 3),
        ("done", 2, 3),
        ("done", 3, 3),
    ]


def test_equal_and_cached_engines_count(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(torch.cumsum(self.layer(x), 1))

    program = torch.export.export(Twice().eval(), (torch.randn(2, 4),))
    for _ in range(2):
        events: list[ProgressEvent] = []
        excluded = ["aten.cumsum.default"]
        lower(program, excluded_ops=excluded, progress=events.append, cache=tmp_path)
        assert [e.engines_done for e in events if e.phase == "done"] == [1, 2]


def test_a_function_may_stop_the_export():
    def stop(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lower_case("order", builder="tensorrt_rtx", progress=stop)

    def fail(event):
        raise ZeroDivisionError("my mistake")

    with pytest.raises(PartitionError, match="ZeroDivisionError: my mistake"):
        lower_case("order", builder="tensorrt_rtx", progress=fail)


def test_bars_on_a_terminal(monkeypatch):
    terminal = show_terminal(monkeypatch)
    lower_case("order", builder="tensorrt_rtx")
    shown = terminal.getvalue()
    assert "engines 0/1" in shown
    assert "engines 1/1" in shown
    assert "tensorrt_0" in shown


def test_no_bars_if_so_asked_or_elsewhere(monkeypatch):
    terminal = show_terminal(monkeypatch)
    lower_case("order", progress=False)
    assert terminal.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    lower_case("order")
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("option", [None, 1, "bars"])
def test_other_options_are_refused(option):
    with pytest.raises(OptionError, match=r"progress is .*; expected True"):
        TensorRTPartitioner(builder="reference", progress=option)
