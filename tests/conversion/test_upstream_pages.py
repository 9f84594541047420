"""The reports of docs/internals/upstream show what they claim with the installed releases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mended import is_installed
from tests.support.programs.quantized_networks import needs_rtx
from tests.support.run_documents import blocks

ROOT = Path(__file__).parents[2]
PAGES = sorted(set(ROOT.glob("docs/internals/upstream/*.md")) - {*ROOT.glob("docs/**/index.md")})

pytestmark = [needs_rtx, pytest.mark.long]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, str]:
    results = tmp_path_factory.mktemp("upstream") / "results.json"
    command = [sys.executable, "-m", "tests.support.upstream_pages", str(results)]
    done = subprocess.run([*command, *map(str, PAGES)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(results.read_text())


def test_there_are_ten_reports():
    assert len(PAGES) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_report_shows_the_fault(page, outputs):
    (expected,) = blocks(page.read_text(), "text")
    fixed = re.search(r"; fixed in ([\d.]+) \|", page.read_text())
    shows_fault = fixed is None or not is_installed("torch-tensorrt-rtx", fixed[1])
    # TensorRT logs in front of it.
    assert outputs[str(page)].endswith(expected) == shows_fault
