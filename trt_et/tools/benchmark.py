"""Timings of several programs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trt_et.errors import OptionError
from trt_et.inspection.text import size_text

__all__ = ["HEADINGS", "Timing", "markdown", "plot", "summarize"]

HEADINGS = (
    "file",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "calls/s",
    "load ms",
    "copies/call",
    "waits/call",
    "planned",
    "peak memory",
)


@dataclass(frozen=True)
class Timing:
    """One program's timings.

    Attributes:
        name: The file's name.
        seconds: Of each call.
        load_seconds: From the file to a method that can run.
        copies: Copies between host and GPU, and bytes of them, per call; None where nothing counts.
        waits: Waits of the host per call; None where nothing counts them.
        planned_bytes: Planned memory of all devices.
        peak_bytes: Largest resident memory of the process, with Python and torch.
    """

    name: str
    seconds: tuple[float, ...]
    load_seconds: float
    copies: float | None
    waits: float | None
    planned_bytes: int
    peak_bytes: int

    def percentile(self, percent: float) -> float:
        """The smallest time that so many percent of the calls do not exceed, in seconds."""
        ordered = sorted(self.seconds)
        return ordered[max(0, -(-len(ordered) * int(percent) // 100) - 1)]

    @property
    def throughput(self) -> float:
        """Calls per second, one after the other."""
        return len(self.seconds) / sum(self.seconds)

    def row(self) -> tuple[str, ...]:
        """Its cells, under :data:`HEADINGS`."""
        return (
            self.name,
            *(f"{self.percentile(percent) * 1e3:.3f}" for percent in (50, 90, 99)),
            f"{self.throughput:.1f}",
            f"{self.load_seconds * 1e3:.1f}",
            "not counted" if self.copies is None else f"{self.copies:g}",
            "not counted" if self.waits is None else f"{self.waits:g}",
            size_text(self.planned_bytes),
            size_text(self.peak_bytes),
        )


def summarize(name: str, answer: dict[str, Any]) -> Timing:
    """From a worker's answer."""
    counted = answer["per_call"]
    copies = sum(counted[key] for key in counted if key.startswith("copies_")) if counted else None
    return Timing(
        name,
        tuple(answer["seconds"]),
        answer["load_seconds"],
        copies,
        counted.get("synchronizations"),
        sum(answer["planned_bytes"].values()),
        answer["peak_bytes"],
    )


def markdown(timings: Sequence[Timing]) -> str:
    """A Markdown table."""
    rows = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1)), *(t.row() for t in timings)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plot(timings: Sequence[Timing], path: Path) -> tuple[Path, Path]:
    """Draw the distribution of each program's latencies, as PNG and as SVG.

    Args:
        timings: What to draw.
        path: Where; its suffix is replaced.

    Raises:
        OptionError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("plots need matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(7, 1.2 + 0.6 * len(timings)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.boxplot(
        [[second * 1e3 for second in timing.seconds] for timing in timings],
        orientation="horizontal",
        whis=(1, 99),
        showfliers=False,
    )
    axes.set_yticks(range(1, len(timings) + 1), [timing.name for timing in timings])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("ms per call (box: p25 to p75, line: p50, whiskers: p1 to p99)")
    written = (path.with_suffix(".png"), path.with_suffix(".svg"))
    for target in written:
        figure.savefig(target, dpi=150)
    return written
