"""The figures of ``trt-et bench`` and what is made of them."""

from __future__ import annotations

import builtins

import matplotlib
import pytest

from trt_et.cli.bench import draw_plot, markdown, percentile
from trt_et.errors import OptionError

ANSWER = {
    "load_seconds": 0.5,
    "seconds": [number / 1000 for number in range(100, 0, -1)],
    "per_call": {"copies_h2d": 2.0, "copies_d2h": 1.0, "bytes_h2d": 64.0, "synchronizations": 1.0},
    "peak_bytes": 1 << 20,
    "planned_bytes": {"cpu": 1024, "cuda:0": 1024},
}


def test_percentiles_are_times_that_so_many_calls_do_not_exceed():
    seconds = ANSWER["seconds"]
    assert [percentile(seconds, percent) for percent in (50, 90, 99, 100)] == [
        *(0.05, 0.09, 0.099, 0.1)
    ]
    assert percentile([0.25], 50) == percentile([0.25], 99) == 0.25


def test_the_table_says_what_is_not_counted():
    rows = markdown({"a.pte": ANSWER, "b.pte": {**ANSWER, "per_call": {}}})
    first, second = rows.splitlines()[2:]
    assert (
        first == "| a.pte | 50.000 | 90.000 | 99.000 | 19.8 | 500.0 | 3 | 1 | 2.0 KiB | 1.0 MiB |"
    )
    assert second.count("not counted") == 2


def test_a_plot_names_values_on_a_logarithmic_axis(tmp_path, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # Text stays text.
    slow = {**ANSWER, "seconds": [100 * seconds for seconds in ANSWER["seconds"]]}
    written = draw_plot({"a.pte": ANSWER, "slow.pte": slow}, tmp_path / "plot.png")
    assert written[0].read_bytes().startswith(b"\x89PNG")
    drawn = written[1].read_text()
    assert "p50 50 ms, p99 99 ms" in drawn
    assert "p50 5,000 ms, p99 9,900 ms" in drawn
    assert all(f">{power}</text>" in drawn for power in (10, 100, 1000))  # A logarithmic axis.


def test_a_long_name_leaves_room_for_the_plot(tmp_path, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    _, drawn = draw_plot({f"{'long-' * 20}name.pte": ANSWER}, tmp_path / "plot.png")
    assert ">…long-long-long-name.pte</text>" in drawn.read_text()


def test_without_matplotlib_the_command_that_installs_it_is_named(monkeypatch, tmp_path):
    original = builtins.__import__

    def without_matplotlib(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(OptionError, match="pip install matplotlib"):
        draw_plot({"a.pte": ANSWER}, tmp_path / "plot.png")
