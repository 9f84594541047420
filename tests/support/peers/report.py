"""Turns results into docs/peer-tests.md."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from tests.support.markdown import table

DOCS = Path(__file__).parents[3] / "docs"
RIGHT = {
    "right": "each network and result equals eager",
    "right by its networks": "the networks equal eager; no CPU kernel runs the program, with or "
    "without this backend",
    "right, network not evaluated": "the result equals eager; a network was not evaluated",
    "right, nothing delegated": "the result equals eager; no node is delegated",
}
NO_VERDICT = {
    "not imported": "the file cannot be imported",
    "skips itself": "the test skips itself",
    "hands over no program": "the test builds engines by itself, or tests something else",
    "eager fails": "eager fails on the CPU",
    "not exported": "`torch.export` refuses the program",
    "refused by ExecuTorch alone": "ExecuTorch refuses the program without a backend",
    "wrong in ExecuTorch alone": "ExecuTorch without a backend fails or is wrong",
}
# Patterns of cases that are not right, and causes outside of this package.
CAUSES: dict[str, str] = {
    r"sdpa_fp_mask.*network: different": "rounding: Torch-TensorRT's network rounds the scores "
    "to float16, eager keeps float32; the same formula in torch differs by up to 0.21",
    r"aten.topk.*output 1": "equal numbers: the drawn input has 15 values, and "
    "`topk` may return either position",
}

Entry = dict[str, str]


def main(paths: list[Path], write: bool = True) -> int:
    """Print the page, also write it if asked to, and return the number of cases without a cause."""
    entries = [
        json.loads(line) | {"peer": path.stem}
        for path in paths
        for line in path.read_text().splitlines()
    ]
    # A case has its last line's outcome.
    cases = list({(entry["peer"], entry["case"]): entry for entry in entries}.values())
    versions = {name: version(name) for name in ("torch-tensorrt-rtx", "executorch", "torch")}
    collected = {path.stem: path.with_suffix(".collected").read_text() for path in paths}
    page = markdown(cases, versions, collected)
    sys.stdout.write(page)
    if write:
        (DOCS / "peer-tests.md").write_text(page)
    return sum(is_wrong(entry) and not cause(entry) for entry in cases)


def is_wrong(entry: Entry) -> bool:
    return entry["outcome"] not in RIGHT | NO_VERDICT


def cause(entry: Entry) -> str:
    """Return the known cause of a case that is not right; empty if there is none."""
    text = "{case}: {outcome}: {why}".format_map(entry)
    return next((why for pattern, why in CAUSES.items() if re.search(pattern, text, re.S)), "")


def markdown(cases: list[Entry], versions: dict[str, str], collected: dict[str, str]) -> str:
    lines = [
        "# Peer tests",
        "",
        "`make peer-tests` exports and lowers the programs of Torch-TensorRT's converter tests",
        "and of the models in ExecuTorch's backend suite. It evaluates networks on the CPU, builds",
        "TensorRT-RTX engines, runs reference engines on a simulated GPU, and compares both with",
        "eager. Versions: " + ", ".join(" ".join(v) for v in versions.items()) + ".",
        "",
        "A case runs once; a later `make peer-tests` runs the cases that are left, so the cases of",
        "a table may have run on different commits.",
        "",
    ]
    rows: list[list[object]] = []
    for peer in sorted(collected):
        own = [entry for entry in cases if entry["peer"] == peer]
        right = sum(entry["outcome"] in RIGHT for entry in own)
        wrong = sum(map(is_wrong, own))
        none = len(own) - right - wrong
        rows.append([f"`{peer}`", collected[peer], len(own), right, wrong, none])
    lines += table(("tests", "cases", "run", "right", "not right", "no verdict"), rows)
    for title, kinds in {"Right": RIGHT, "No verdict": NO_VERDICT}.items():
        rows = []
        for outcome, meaning in kinds.items():
            whys = Counter(_short(e["why"]) for e in cases if e["outcome"] == outcome)
            reasons = "; ".join(f"{n} `{why}`" for why, n in whys.most_common(4) if why)
            rows += [[whys.total(), meaning, reasons]] if whys else []
        lines += ["", f"## {title}", ""]
        lines += table(("cases", "outcome", "most frequent reasons"), rows)
    rows = [
        [f"`{e['case']}`", f"{e['outcome']}: {_short(e['why'])}", cause(e) or "open"]
        for e in filter(is_wrong, cases)
    ]
    lines += ["", "## Not right", "", *table(("case", "outcome", "cause"), rows)]
    return "\n".join(lines) + "\n"


def _short(why: str) -> str:
    """The beginning of a reason, without a machine's paths, for a cell of a table."""
    first = (why.strip().splitlines() or [""])[0]
    return re.sub(r"(/[\w.+-]+){2,}/", "", first)[:140].replace("`", "'")
