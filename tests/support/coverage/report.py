"""docs/coverage.json and docs/coverage.md from the results of the suite's runs.

python -m tests.support.coverage.report [RESULTS.json ...]

A case that is in several files counts as in the last of them. Flows that are in none keep their
figures. Without a file, only the page is written anew.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.markdown import table

DOCS = Path(__file__).parents[3] / "docs"

# What an error says, and what it means; of other flows than ours, so far.
_MEANINGS = {
    "error: 0x14": "ExecuTorch has no CPU kernel for one of its operators (`OperatorMissing`)",
    "ChannelsLastTaggedReshapePass": "a pass of ExecuTorch's XNNPACK backend fails on `prelu`",
}


def summarize(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one flow; skipped cases (no valid test for any backend) do not count."""
    counted = [entry for entry in entries if entry["result"] != "SKIPPED"]
    failed = [e for e in counted if not e["result"].startswith("SUCCESS")]
    names = Counter(op for entry in counted for op in entry["undelegated_ops"])
    reasons = Counter((op, why) for e in counted for op, why, _ in e.get("reasons", ()))
    return {
        "cases": len(counted),
        "skipped": len(entries) - len(counted),
        "lowered": sum(entry["result"] != "LOWER_FAIL" for entry in counted),
        "delegated": sum(entry["delegated"] for entry in counted),
        "passed": len(counted) - len(failed),
        "failed": [{"case": e["case"], "result": e["result"], "error": e["error"]} for e in failed],
        "left_to_the_cpu": dict(names.most_common()),
        "reasons": [[op, why, count] for (op, why), count in reasons.most_common()],
    } | _undelegated(counted)


def _undelegated(counted: list[dict[str, Any]]) -> dict[str, Any]:
    """Cases of which nothing is delegated, by what their operators are; ours only."""
    if not any(entry.get("reasons") for entry in counted):
        return {}
    kinds: Counter[str] = Counter()
    for entry in counted:
        reasons = [reason for reason in entry["reasons"] if reason[0] != "getitem"]
        if entry["delegated"] or not reasons:
            continue
        if any(not converted for *_, converted in reasons):
            kinds["operators without a converter"] += 1
        elif all("only reshape" in why for _, why, _ in reasons):
            kinds["views alone"] += 1
        elif all("do not take" in why or "only reshape" in why for _, why, _ in reasons):
            kinds["converters that refuse the arguments"] += 1
        else:
            kinds["converters that were not used"] += 1
    return {"undelegated": dict(kinds)}


def main(paths: list[str]) -> None:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in paths:
        for entry in json.loads(Path(path).read_text()):
            # Of a case that ran again, the last result counts.
            found.setdefault(entry["flow"], {})[entry["case"]] = entry
    flows = {name: summarize(list(cases.values())) for name, cases in sorted(found.items())}
    before = json.loads((DOCS / "coverage.json").read_text())
    versions = {name: version(name) for name in ("executorch", "torch")}
    versions = versions if paths else before["versions"]
    if before["versions"] == versions:
        flows = dict(sorted((before["flows"] | flows).items()))
    document = {"versions": versions, "flows": flows}
    (DOCS / "coverage.json").write_text(json.dumps(document, indent=2) + "\n")
    (DOCS / "coverage.md").write_text(markdown(versions, flows))


def markdown(versions: dict[str, str], flows: dict[str, Any]) -> str:
    """Return the page: TensorRT's flows first, equal parts and failures once."""
    flows = dict(sorted(flows.items(), key=lambda item: not item[0].startswith("trt")))
    lines = [
        "# Coverage",
        "",
        "ExecuTorch's own backend test suite (`executorch.backends.test.suite`, operators), run by",
        f"`make coverage`; executorch {versions['executorch']}, torch {versions['torch']}.",
        "",
    ]
    counts = ("cases", "lowered", "delegated", "passed")
    rows = [[f"`{n}`", *(f[c] for c in counts), len(f["failed"])] for n, f in flows.items()]
    lines += table(("flow", *counts, "failed"), rows)
    same: dict[str, list[str]] = {}
    for name, figures in flows.items():
        if figures.get("reasons"):
            same.setdefault("\n".join(_left(figures)), []).append(f"`{name}`")
    for text, names in same.items():
        leave = "leaves" if len(names) == 1 else "leave"
        lines += ["", f"## Cases that {' and '.join(names)} {leave} to the CPU", "", text]
    for name, figures in flows.items():
        cases: dict[str, list[str]] = {}
        for entry in figures["failed"]:
            why = f"{entry['result']}: {_reason(entry['error'])}"
            cases.setdefault(why, []).append(f"`{entry['case']}`")
        if cases:
            lines += ["", f"## Failures of `{name}`", ""]
        lines += [f"- {why}: {', '.join(found)}" for why, found in cases.items()]
    return "\n".join(lines) + "\n"


def _left(figures: dict[str, Any]) -> list[str]:
    rows = [(f"`{operator}`", why, count) for operator, why, count in figures["reasons"]]
    kinds = [f"- {count} of {kind}" for kind, count in figures["undelegated"].items()]
    return [*kinds, "", *table(("operator", "why", "times"), rows)]


def _reason(error: str) -> str:
    first = (error.splitlines() or [""])[0]
    known = [meaning for sign, meaning in _MEANINGS.items() if sign in error]
    return known[0] if known else first[:160]


if __name__ == "__main__":
    main(sys.argv[1:])
