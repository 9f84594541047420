"""What programs and people see of builds."""

from __future__ import annotations

import io
import sys

import pytest
import torch

from tests.support.executors import Inline, export
from tests.support.lowering import lower, lower_case
from tests.support.models import Function
from tests.support.terminal import show_terminal
from trt_et import OptionError, PartitionError, TensorRTPartitioner
from trt_et.engines.progress import ProgressEvent


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
    layer = torch.nn.Linear(4, 4)
    twice = Function(lambda x: layer(torch.cumsum(layer(x), 1)))
    program = torch.export.export(twice, (torch.randn(2, 4),))
    for _ in range(2):
        events: list[ProgressEvent] = []
        excluded = ["aten.cumsum.default"]
        lower(program, excluded_ops=excluded, progress=events.append, cache=tmp_path)
        assert [e.engines_done for e in events if e.phase == "done"] == [1, 2]


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
        (ZeroDivisionError("my mistake"), PartitionError, "ZeroDivisionError: my mistake"),
    ],
)
def test_a_function_may_stop_the_export(error, raised, message):
    events = []

    def stop(event):
        events.append(event)
        raise error

    with pytest.raises(raised, match=message):
        lower_case("order", builder="tensorrt_rtx", progress=stop)
    assert len(events) == 1


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
