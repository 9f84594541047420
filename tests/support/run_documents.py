"""Runs the Python blocks of documents, and scripts, each file in a folder of its own.

All in one process, for they would spend their time on imports.

python -m tests.support.run_documents OUTPUT FILE...
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
import traceback
from pathlib import Path


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of that language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(file: Path, folder: Path) -> str:
    """What went wrong; empty if nothing did."""
    folder.mkdir()
    os.chdir(folder)
    try:
        if file.suffix == ".py":
            sys.argv = [str(file)]
            runpy.run_path(str(file), run_name="__main__")
        elif file.suffix == ".ipynb":
            run_notebook(file)
        else:
            run_blocks(file)
    except SystemExit as end:
        return f"exit status {end.code}" if end.code else ""
    except Exception:
        return traceback.format_exc()
    return ""


def run_notebook(notebook: Path) -> None:
    """Run its cells of code; `make notebook` does so in a kernel, which takes longer."""
    cells = json.loads(notebook.read_text())["cells"]
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook}, cell {number}", "exec"), names)


def run_blocks(document: Path) -> None:
    """Run them as one module."""
    # Blank lines in front of each block, so that a traceback has the document's line numbers.
    text = document.read_text()
    source = ""
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = text[: match.start(1)].count("\n")
        source += "\n" * (before - source.count("\n")) + match.group(1)
    exec(compile(source, str(document), "exec"), {"__name__": "__main__"})


def main(output: str, *files: str) -> None:
    start = Path.cwd()
    paths = [Path(file).resolve() for file in files]
    results = {str(p): run(p, start / str(i)) for i, p in enumerate(paths)}
    (start / output).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
