"""Runs peers' tests in pytest, but takes the programs that they hand to their own backends.

Each case runs in a process of its own. One that has its outcome in the results does not run again.
"""

from __future__ import annotations

import json
import os
import signal
import unittest
from collections.abc import Iterator
from inspect import Parameter, signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from _pytest.runner import runtestprotocol
from torch.export import Dim
from torch.overrides import TorchFunctionMode

from tests.support.forked import in_child
from tests.support.peers.judge import Handed, judge
from tests.support.run_documents import warm_up
from trt_et.conversion.torch_tensorrt_import import torch_tensorrt

HANDED: list[Handed] = []
LIMIT = int(os.environ.get("LIMIT", "300"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peers", type=Path, help="the results")
    parser.addoption("--every", type=int, default=1, help="each n-th case only")


def pytest_configure(config: pytest.Config) -> None:
    # Peers skip by GPU and library; this backend has to be right without either.
    unittest.skipIf = unittest.skipUnless = lambda *_: lambda test: test
    pytest.skip = unittest.TestCase.skipTest = lambda *_, **__: None
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(major=9, minor=0)
    torch.cuda.current_device = lambda: 0
    torch_tensorrt()
    warm_up()
    try:
        import torchvision  # noqa: F401
    except (ImportError, OSError, RuntimeError):
        # Its compiled part does not fit this torch; no model of the suite needs it.
        for name in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", schema)
    config.pluginmanager.register(Cases(config))


class OnTheCPU(TorchFunctionMode):
    """Tensors and modules that a test wants on the GPU stay where they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def host(value: Any) -> Any:
            device = isinstance(value, str | torch.device) and str(value).startswith("cuda")
            return "cpu" if device else value

        if func is torch.Tensor.cuda:
            return args[0]
        return func(*map(host, args), **{k: host(v) for k, v in (kwargs or {}).items()})


@pytest.fixture
def test_runner() -> Any:
    """In place of the model suite's own, which is in its conftest."""

    def take_model(model: Any, inputs: Any, dynamic_shapes: Any = None) -> None:
        HANDED.append(Handed(model, [tuple(inputs)], dynamic_shapes))

    return SimpleNamespace(lower_and_run_model=take_model)


def take(_: Any, module: Any, inputs: Any, *__: Any, **___: Any) -> None:
    HANDED.append(Handed(module, [tuple(inputs)]))


def take_random(_: Any, module: Any, inputs: Any, *__: Any, **___: Any) -> None:
    HANDED.append(Handed(module, [tuple(inputs)], random=True))


def take_dynamic(_: Any, module: Any, specs: Any, *__: Any, **options: Any) -> None:
    def tensor(spec: Any, size: str) -> torch.Tensor:
        if size == "given":
            return spec.torch_tensor.cpu()
        return spec.example_tensor(size) if isinstance(spec.shape, dict) else spec.example_tensor()

    def ranges(spec: Any) -> dict[int, Any]:
        if not isinstance(spec.shape, dict):
            return {}
        ends = enumerate(zip(spec.shape["min_shape"], spec.shape["max_shape"], strict=True))
        # Torch finds out which dimensions of several inputs are equal.
        return {dim: Dim.AUTO(min=low, max=high) for dim, (low, high) in ends if low != high}

    drawn = options.get("use_example_tensors", True)
    sizes = ("opt_shape", "min_shape", "max_shape") if drawn else ("given",)
    calls = [tuple(tensor(spec, size) for spec in specs) for size in sizes]
    shapes: Any = tuple(map(ranges, specs))
    kinds = {parameter.kind for parameter in signature(module.forward).parameters.values()}
    HANDED.append(Handed(module, calls, (shapes,) if Parameter.VAR_POSITIONAL in kinds else shapes))


TAKEN = {
    "run_test": take,
    "run_test_with_dynamic_shape": take_dynamic,
    "run_test_compare_tensor_attributes_only": take_random,
}


class Cases:
    """Chooses the cases, and writes down what becomes of each."""

    def __init__(self, config: pytest.Config) -> None:
        self.file: Path = config.option.peers
        self.every: int = config.option.every
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.done = {json.loads(line)["case"] for line in lines}

    def write(self, case: str, outcome: str, why: str = "") -> None:
        with self.file.open("a") as file:
            file.write(json.dumps({"case": case, "outcome": outcome, "why": why[:1500]}) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and report.nodeid not in self.done:
            self.write(report.nodeid, "not imported", str(report.longrepr).splitlines()[-1])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for harness in {cls for item in items if item.cls for cls in item.cls.__mro__}:
            if harness.__name__ == "DispatchTestCase":
                for name, method in TAKEN.items():
                    setattr(harness, name, method)
        self.file.with_suffix(".collected").write_text(str(len(items)))
        items[:] = [item for item in items[:: self.every] if item.nodeid not in self.done]

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        status = in_child(lambda: runtestprotocol(item), LIMIT)
        if status:
            ended = "timed out" if status == -signal.SIGALRM else "crashed"
            self.write(item.nodeid, ended, f"exit status {status}")
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        try:
            with OnTheCPU():
                return (yield)
        finally:
            if HANDED:
                with torch.no_grad():
                    found = [judge(handed) for handed in HANDED]
                # A case is right if all of its programs are.
                self.write(item.nodeid, *next((v for v in found if v[0] != "right"), found[0]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not HANDED and (report.when == "call" or not report.passed):
            outcome = "skips itself" if report.skipped else "hands over no program"
            reason = str(report.longrepr or "").splitlines()
            self.write(report.nodeid, outcome, reason[-1] if reason else "")
