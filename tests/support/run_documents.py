"""Runs the Python blocks of documents, each document's in a folder and a namespace of its own.

python -m tests.support.run_documents OUTPUT DOCUMENT...
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from pathlib import Path


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of that language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(document: Path, folder: Path) -> str:
    """What went wrong; empty if nothing did."""
    # Blank lines in front of each block, so that a traceback has the document's line numbers.
    text = document.read_text()
    source = ""
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = text[: match.start(1)].count("\n")
        source += "\n" * (before - source.count("\n")) + match.group(1)
    folder.mkdir()
    os.chdir(folder)
    try:
        exec(compile(source, str(document), "exec"), {"__name__": "__main__"})
    except Exception:
        return traceback.format_exc()
    return ""


def main(output: str, *documents: str) -> None:
    start = Path.cwd()
    paths = [Path(document).resolve() for document in documents]
    results = {str(p): run(p, start / str(i)) for i, p in enumerate(paths)}
    (start / output).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
