"""The page of the suite's results."""

from __future__ import annotations

import json

from tests.support.coverage.report import DOCS, markdown


def test_the_page_shows_the_stored_results_with_tensorrt_first():
    page = (DOCS / "coverage.md").read_text()
    assert page == markdown(**json.loads((DOCS / "coverage.json").read_text()))
    headings = [line.strip("# ") for line in page.splitlines() if line.startswith("## ")]
    assert headings[0] == "Cases that `trt_reference` and `trt_rtx` leave to the CPU"


def test_cases_that_fail_alike_share_a_line():
    figures = {"cases": 3, "lowered": 3, "delegated": 0, "passed": 1}
    failed = [{"case": name, "result": "PTE_RUN_FAIL", "error": "error: 0x14"} for name in "ab"]
    page = markdown({"executorch": "1", "torch": "2"}, {"portable": {**figures, "failed": failed}})
    (line,) = (line for line in page.splitlines() if line.startswith("- "))
    assert line.endswith("(`OperatorMissing`): `a`, `b`")
