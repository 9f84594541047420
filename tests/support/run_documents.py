"""Runs the Python blocks of documents, and scripts, each in a folder and a process of its own.

The processes are forked from one that has lowered a program; they would spend their time on what
that imports. A file is followed by the arguments of its script, if any.

python -m tests.support.run_documents OUTPUT "FILE ARGUMENT..."...
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import sys
import traceback
from pathlib import Path

STDOUT = "stdout"


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of that language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(file: Path, arguments: list[str]) -> str:
    """What went wrong; empty if nothing did."""
    try:
        if file.suffix == ".py":
            sys.argv = [str(file), *arguments]
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
    """Run them as one module; those of a README are programs of their own."""
    text = document.read_text()
    names = {"__name__": "__main__"}
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        # Blank lines before the block, so that a traceback has the document's line numbers.
        source = "\n" * text[: match.start(1)].count("\n") + match.group(1)
        exec(compile(source, str(document), "exec"), names)
        if document.name == "README.md":
            names = {"__name__": "__main__"}


def run_in_child(file: Path, arguments: list[str], folder: Path) -> str:
    """The same in another process, whose output is a file of its folder."""
    folder.mkdir()
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return (folder / "problem").read_text() if status == 0 else f"ended with {status}"
    os.chdir(folder)
    os.dup2(os.open(STDOUT, os.O_WRONLY | os.O_CREAT), 1)
    problem = run(file, arguments)
    (folder / "problem").write_text(problem)
    sys.exit()


def main(output: str, *files: str) -> None:
    import tests.support.warmed_up  # noqa: F401

    start = Path.cwd()
    results = {}
    for index, text in enumerate(files):
        file, *arguments = shlex.split(text)
        results[text] = run_in_child(Path(file).resolve(), arguments, start / str(index))
    (start / output).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
