"""A fixed part of ExecuTorch's backend test suite; ``make coverage`` runs all of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from executorch.backends.test import suite

from tests.support.native_environment import environment, run
from trt_et.conversion.installed import installed_variant

OPERATORS = ("add", "avgpool3d", "embedding_bag")
FLOWS = ["trt_reference"] + (["trt_rtx"] if installed_variant() == "tensorrt_rtx" else [])


@pytest.fixture(scope="module")
def entries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    operators = Path(str(suite.__file__)).parent / "operators"
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.coverage.plugin", "-q"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(folder), "--flows", ",".join(FLOWS)]
    command += ["--results", str(folder / "results.json"), "-k", "dtype and float32"]
    command += [str(operators / f"test_{name}.py") for name in OPERATORS]
    done = run(*command, folder=folder, env=environment(), timeout=None)
    assert done.returncode == 0, done.stdout[-3000:]
    return json.loads((folder / "results.json").read_text())


@pytest.mark.long
def test_every_case_is_delegated_and_right(entries):
    found = {(e["flow"], e["case"].partition("[")[0]): e for e in entries}
    wanted = {(flow, f"test_{name}_dtype") for flow in FLOWS for name in OPERATORS}
    assert found.keys() == wanted
    for entry in entries:
        assert entry["result"] == "SUCCESS", entry
        assert entry["delegated"], entry
