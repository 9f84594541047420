"""Adds our flows to ExecuTorch's backend test suite, and writes down what each case came to.

    pytest -p tests.support.coverage.plugin --flows trt_reference --results FILE <suite>/operators

The suite's list of flows is fixed in its code, and its conftest reads it when it is imported, which
is after this plugin.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from executorch.backends.test.suite import flow as suite_flow

from tests.support.coverage.flows import FLOWS, MADE, VERDICTS
from tests.support.quicker_export import make_exports_quicker
from trt_et.conversion.torch_tensorrt_import import torch_tensorrt
from trt_et.partition.report import PartitionReport

_stock_flows = suite_flow.all_flows


def _all_flows() -> dict[str, Any]:
    return _stock_flows() | {flow.name: flow for flow in FLOWS}


suite_flow.all_flows = _all_flows
make_exports_quicker()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--flows", default="trt_reference,trt_rtx", help="comma-separated flows")
    parser.addoption("--results", default=None, help="JSON file, one entry a case")


def pytest_configure(config: pytest.Config) -> None:
    # The suite limits its cases with pytest-timeout where that is installed.
    config.addinivalue_line("markers", "timeout: from ExecuTorch's suite")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config.getoption("--results")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(config.getoption("--flows").split(","))
    kept, dropped = [], []
    for item in items:
        flow = item.callspec.params.get("test_runner") if hasattr(item, "callspec") else None
        (kept if flow is not None and flow.name in wanted else dropped).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    runner = getattr(item, "funcargs", {}).get("test_runner")
    if call.when != "call" or runner is None:
        return
    reports = [partitioner.report for partitioner in MADE]
    MADE.clear()
    networks = [asdict(verdict) for verdict in VERDICTS]
    VERDICTS.clear()
    single = len(reports) == len(runner._results)  # A report a result, in order.
    for index, record in enumerate(runner._results):
        entry = {
            "flow": record.flow,
            "case": f"{record.name}#{record.subtest_index}",
            "result": record.result.name,
            "delegated": bool(record.is_delegated()),
            "undelegated_ops": dict(record.undelegated_op_counts or {}),
            "reasons": _reasons(reports[index : index + 1] if single else reports),
            "error": str(record.error)[:500] if record.error else "",
        }
        if networks and index == 0:  # A case's networks, once.
            entry["networks"] = networks
        item.user_properties.append(("subtest", entry))


def _reasons(reports: list[PartitionReport | None]) -> list[tuple[str, str, bool]]:
    """Operator, why it stays on the CPU, and whether Torch-TensorRT has any converter of it."""
    return [
        (operator, why, re.sub(r"(_with_indices|_copy)?\.", ".", operator) in _converted())
        for report in reports
        if report is not None
        for _, operator, why in report.not_delegated
    ]


@cache
def _converted() -> frozenset[str]:
    torch_tensorrt()
    from torch_tensorrt.dynamo.conversion._ConverterRegistry import DYNAMO_ATEN_CONVERTERS

    return frozenset(str(target).replace(".", "::", 1) for target in DYNAMO_ATEN_CONVERTERS)


class _Collector:
    def __init__(self, path: str | None) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            found = [value for name, value in report.user_properties if name == "subtest"]
            self.entries.extend(found)
            if not found:
                # The case never got as far as a result: its process died, or it is no valid test.
                self._without_result(report, "SKIPPED" if report.skipped else "CRASHED")

    def _without_result(self, report: pytest.TestReport, result: str) -> None:
        flow = report.nodeid.partition("[")[2].partition("]")[0].partition("-")[0]
        case = report.nodeid.rpartition("::")[2]
        entry = {"flow": flow, "case": case, "result": result, "delegated": False}
        entry |= {"undelegated_ops": {}, "reasons": [], "error": str(report.longrepr)[:500]}
        self.entries.append(entry)

    def pytest_sessionfinish(self) -> None:
        if self.path:
            entries = sorted(self.entries, key=lambda e: (e["flow"], e["case"]))
            Path(self.path).write_text(json.dumps(entries, indent=1) + "\n")
