"""TensorRT's progress monitor, which notifies ours.

Imported only where Torch-TensorRT is loaded already (see ``conversion/network.py``).
"""

from __future__ import annotations

import tensorrt as trt

from trt_et.builders.monitor import BuildMonitor

__all__ = ["TensorRTMonitor"]


class TensorRTMonitor(trt.IProgressMonitor):
    """Passes TensorRT's phases on; the names are those that TensorRT calls."""

    def __init__(self, monitor: BuildMonitor) -> None:
        trt.IProgressMonitor.__init__(self)  # pybind11 wants its own, not super().
        self._monitor = monitor

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """See ``IProgressMonitor``."""
        self._monitor.phase_start(phase_name, parent_phase, num_steps)

    def step_complete(self, phase_name: str, step: int) -> bool:
        """See ``IProgressMonitor``; False makes TensorRT stop the build."""
        return self._monitor.step_complete(phase_name, step)

    def phase_finish(self, phase_name: str) -> None:
        """See ``IProgressMonitor``."""
        self._monitor.phase_finish(phase_name)
