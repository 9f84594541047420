"""What a build tells, and how it is stopped."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.support.lowering import request
from tests.support.models import make
from trt_et.engines import serialize as engines
from trt_et.engines.progress import BuildMonitor
from trt_et.engines.serialize import interruptible
from trt_et.errors import BuildCancelled


@pytest.fixture(autouse=True)
def python_takes_interrupts():
    """Whoever runs the tests in the background has them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def filled():
    model, inputs = make("order")
    return engines.build_network(request(model, *inputs))


def pieces_of(monitor) -> list[int]:
    pieces: list[int] = []
    engines.serialize(
        filled(), "test", lambda piece: pieces.append(len(piece)) or len(piece), monitor
    )
    return pieces


def test_a_real_build_stops_at_its_next_step():
    steps = []
    monitor = BuildMonitor(lambda *event: steps.append(event), stop=lambda: len(steps) > 20)
    with pytest.raises(BuildCancelled, match="was stopped"):
        pieces_of(monitor)
    assert 20 < len(steps) < 30


def test_control_c_stops_a_real_build():
    """The signal comes while TensorRT works; nothing of the build runs when it comes out."""
    steps = []

    def listener(*event):
        if len(steps) == 10:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupted.wait(60)
        steps.append(event)

    class Monitor(BuildMonitor):
        def cancel(self):
            super().cancel()
            interrupted.set()

    interrupted = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        pieces_of(Monitor(listener))
    assert len(steps) == 11
    assert not [thread for thread in threading.enumerate() if thread.name == "trt-et build"]


def test_a_second_interrupt_does_not_wait():
    release = threading.Event()
    cancelled = []

    def cancel():
        cancelled.append(True)
        os.kill(os.getpid(), signal.SIGINT)

    def work():
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(60)

    with pytest.raises(KeyboardInterrupt):
        interruptible(work, cancel)
    release.set()
    assert cancelled == [True]
