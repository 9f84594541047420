"""``python -m benchmarks.serving``: examples/serving under load; writes results and the page."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import psutil

from benchmarks import pages
from benchmarks.figures import machine
from examples.serving.client import load, percentile
from examples.serving.export import export
from tests.support.served_example import served

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/serving.json"
RUNS = ((1, 0.0), (4, 0.0), (16, 0.0), (4, 0.5))
"""Clients, and the share of wrong requests."""


def measure(seconds: float) -> dict[str, Any]:
    """Start the server, and send requests in each way for that long."""
    model = ROOT / "build/serving/model.pte"
    model.parent.mkdir(parents=True, exist_ok=True)
    export(model, seed=0)
    with served(model, model.with_name("log")) as (process, port):
        load("127.0.0.1", port, clients=4, seconds=1)  # Waits for the start, and warms up.
        runs = [measure_run(port, process, seconds, *run) for run in RUNS]
    return {"seconds": seconds, "runs": runs}


def measure_run(port: int, pid: int, seconds: float, clients: int, bad: float) -> dict[str, Any]:
    """Send requests, and return their rate, times, statuses and the server's memory."""
    process = psutil.Process(pid)
    before = process.memory_info().rss
    found = load("127.0.0.1", port, clients, seconds, bad)
    if found.unexpected:
        raise RuntimeError(f"unexpected answers: {found.unexpected[:5]}")
    return {
        "clients": clients,
        "bad": bad,
        "requests_per_second": round(sum(found.statuses.values()) / seconds, 1),
        "p50_ms": round(percentile(found.seconds, 50) * 1e3, 2),
        "p99_ms": round(percentile(found.seconds, 99) * 1e3, 2),
        "statuses": dict(sorted(found.statuses.items())),
        "rss_bytes": process.memory_info().rss,
        "grown_bytes": process.memory_info().rss - before,
    }


def main() -> None:
    """Measure, and write the results and the pages."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    load_average = round(os.getloadavg()[0], 1)
    results = measure(parser.parse_args().seconds)
    facts = {"machine": machine(), "command": "make bench-serving", "load_average": load_average}
    results = facts | results
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    pages.main()


if __name__ == "__main__":
    main()
