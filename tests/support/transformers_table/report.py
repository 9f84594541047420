"""Writes the table of docs/guides/transformers-exporter.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.markdown import table

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "transformers-exporter.md"
_BEGIN, _END = "<!-- architectures -->\n", "<!-- end of architectures -->\n"


def write(folder: Path) -> None:
    """Put the results in a folder into the page; those without a model are named above it."""
    results = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    made = {name: result for name, result in results.items() if "not_made" not in result}
    equal = sum(result.get("equal", False) for result in made.values())
    rows = [_row(name, result) for name, result in made.items()]
    lines = table(("architecture", "engines", "on the CPU", "equal to eager"), rows)
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    after = rest.partition(_END)[2]
    summary = f"{len(made)} architectures; {equal} of them are equal to eager.\n\n"
    if missing := ", ".join(sorted(results.keys() - made.keys())):
        summary += f"Not tried, because the small sizes of this table fit no model: {missing}.\n\n"
    PAGE.write_text(f"{before}{_BEGIN}{summary}{chr(10).join(lines)}\n{_END}{after}")


def _row(name: str, result: dict[str, Any]) -> tuple[str, ...]:
    if "reason" in result:
        return (name, "", "", result["reason"])
    calls = result["cpu"].items()
    names = ", ".join(f"{count} {op.removeprefix('aten::')}" for op, count in calls)
    verdict = (
        result.get("difference") or f"{'yes' if result['equal'] else 'no'}, {result['largest']:.0e}"
    )
    return (name, str(result["engines"]), names or "0", verdict)
