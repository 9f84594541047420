"""Plots the committed results for the documentation: ``python -m benchmarks.plots``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from benchmarks import pages
from benchmarks.engines.goals import best_peer, figure_of
from benchmarks.engines.page import COLUMNS, TITLES

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "trt-et"  # The same results give the same file.
_TEXT: Final = "#7a828c"  # Legible on white and on the site's dark page.
for _key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"):
    mpl.rcParams[_key] = _TEXT
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.ticker import NullFormatter  # noqa: E402

_ROOT: Final = Path(__file__).parents[1]
_FLOWS: Final = {
    "trt_rtx": "trt-et, TensorRT-RTX engines",
    "trt_reference": "trt-et, reference engines",
    "xnnpack": "XNNPACK",
    "portable": "CPU kernels alone",
}
_GREEN, _BLUE, _GREY = "#76b900", "#4878a8", "#9aa5b1"


def plot_export_costs(curves: dict[str, Any]) -> Any:
    """Plot time and peak memory of an export by the number of parameters."""
    millions = curves["parameters"]["millions_of_parameters"]
    figure, (time, memory) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for key, label, color in (
        ("rtx", "trt-et, TensorRT-RTX", _GREEN),
        ("bare", "the TensorRT-RTX build alone", _GREY),
        ("xnnpack", "XNNPACK", _BLUE),
    ):
        curve = curves["parameters"][key]
        seconds = curve["seconds"]["values"]
        gigabytes = [value / 1e9 for value in curve["peak_bytes"]["values"]]
        style = {"label": label, "color": color, "marker": "o", "markersize": 4}
        if key == "bare":  # It is as high as ours, so it shines through from below.
            style |= {"linewidth": 6, "markersize": 0, "zorder": 1}
        time.loglog(millions, seconds, **style)
        memory.loglog(millions, gigabytes, **style)
    time.set_ylabel("seconds")
    memory.set_ylabel("peak memory, GB")
    for axes in (time, memory):
        axes.set_xlabel("million parameters")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.grid(which="both", color=_TEXT, alpha=0.2)
    time.legend(frameon=False)
    return figure


def plot_coverage(flows: dict[str, Any]) -> Any:
    """Plot the cases of ExecuTorch's operator suite that each backend delegates and passes."""
    figure, axes = plt.subplots(figsize=(9, 2.4), layout="constrained")
    names = [key for key in _FLOWS if key in flows]
    for key, color in (("cases", "#9aa5b155"), ("passed", _BLUE), ("delegated", _GREEN)):
        counts = [flows[name][key] for name in names]
        height = {"cases": 0.8, "passed": 0.8, "delegated": 0.4}[key]
        axes.barh([_FLOWS[name] for name in names], counts, height=height, color=color, label=key)
    axes.invert_yaxis()
    axes.set_xlabel("cases")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(1, 0))
    return figure


def plot_engines(models: dict[str, Any]) -> Any:
    """Plot kernels and memory traffic of a call for each model, ours and the best other way's."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 5), layout="constrained")
    for axes, key in zip(panels, ("kernels", "moved_bytes"), strict=True):
        title, unit, _ = COLUMNS[key]
        pairs = {
            TITLES[name]: (figure_of(ways["ours"], key), best_peer(ways, key))
            for name, ways in models.items()
        }
        known = {name: pair for name, pair in pairs.items() if None not in pair}
        rows = range(len(known))
        for side, (label, color) in enumerate((("trt-et", _GREEN), ("best other", _GREY))):
            places = [row + (side - 0.5) * 0.4 for row in rows]
            values = [pair[side] / unit for pair in known.values()]
            axes.barh(places, values, height=0.4, color=color, label=label)
        axes.set_yticks(rows, known)
        axes.invert_yaxis()
        axes.set_xlabel(title)
    panels[1].legend(frameon=False, loc="lower right")
    return figure


def main() -> None:
    """Write the pictures into ``docs/images``, and the numbers into the pages."""
    pages.main()
    engines = json.loads((_ROOT / "benchmarks/results/engines.json").read_text())["models"]
    results = json.loads((_ROOT / "benchmarks/results/aot.json").read_text())
    coverage = json.loads((_ROOT / "docs/coverage.json").read_text())
    images = _ROOT / "docs/images"
    for name, figure in (
        ("export-costs", plot_export_costs(results["curves"])),
        ("engines", plot_engines(engines)),
        ("coverage", plot_coverage(coverage["flows"])),
    ):
        figure.savefig(images / f"{name}.svg", metadata={"Date": None}, transparent=True)


if __name__ == "__main__":
    main()
