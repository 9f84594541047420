"""What the documents show runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer.main

from tests.support import operators_page
from tests.support.cli.command_line import run
from tests.support.lowering import lower
from tests.support.mended import is_installed
from tests.support.run_documents import STDOUT, blocks
from tests.support.sampled import chosen
from trt_et.cli import app
from trt_et.conversion.installed import installed_variant
from trt_et.conversion.trial import convertible_operators

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
INCLUDE = ROOT / "trt_et" / "runtime" / "include"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RUNNER = ROOT / "docs" / "runner.md"
# Blocks of the internals are in the middle of something; the one of runner.md reads a trace.
LATER = {RUNNER, *ROOT.glob("docs/internals/*.md")}
RUN = [page for page in PAGES if page not in LATER and blocks(page.read_text(), "python")]
IN_CI = (README, ROOT / "docs/tutorial.md")


def environment() -> dict[str, str]:
    """As after `source .venv/bin/activate`, in this source tree."""
    variables = {k: v for k, v in os.environ.items() if k != "TRT_ET_CUDA"}
    folder = str(Path(sys.executable).parent)
    path = os.pathsep.join([folder, variables.get("PATH", "")])
    return {**variables, "PYTHONPATH": str(ROOT), "PATH": path, "VIRTUAL_ENV": sys.prefix}


def finished(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True)


@pytest.fixture(scope="module")
def python_blocks(tmp_path_factory, pytestconfig) -> dict[Path, tuple[Path, str]]:
    """Where the Python blocks of each page ran, and what went wrong."""
    folder = tmp_path_factory.mktemp("documents")
    pages = [page for page in RUN if pytestconfig.getoption("--long") or page in IN_CI]
    command = [sys.executable, "-m", "tests.support.run_documents", "results.json"]
    command += map(str, pages)
    done = finished(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    problems = json.loads((folder / "results.json").read_text())
    return {page: (folder / str(i), problems[str(page)]) for i, page in enumerate(pages)}


@pytest.mark.parametrize("page", chosen(RUN, *IN_CI), ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page, python_blocks):
    assert python_blocks[page][1] == ""


def test_the_shell_commands_of_the_readme_run_the_program_that_it_exported(python_blocks):
    folder = python_blocks[README][0]
    (folder / "examples").symlink_to(ROOT / "examples")
    (commands,) = [block for block in blocks(README.read_text(), "sh") if "$runner" in block]
    done = finished("bash", "-euc", commands, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    # executor_runner and the C++ example, both with inputs of ones.
    assert "Float [1, 1000]" in done.stdout
    assert len(re.findall(r"-?\d+\.\d+", done.stdout)) >= 4
    assert "simulated GPUs are used" in done.stderr


def test_the_blocks_of_the_readme_print_what_it_shows(python_blocks):
    text = README.read_text()
    shown = blocks(text, "text")[: len(blocks(text, "python"))]
    printed = (python_blocks[README][0] / STDOUT).read_text()
    assert printed.split() == "".join(shown).split()


@pytest.mark.long
def test_the_commands_of_the_tutorial_print_what_it_shows(tmp_path, monkeypatch):
    """In this process: to start each command takes longer than what it does."""
    text = (ROOT / "docs" / "tutorial.md").read_text()
    (tmp_path / "classifier.py").write_text(blocks(text, "python")[0])
    monkeypatch.chdir(tmp_path)
    set_up, *commands = blocks(text, "sh")
    monkeypatch.setenv(*set_up.removeprefix("export ").strip().split("="))
    for command, expected in zip(commands, blocks(text, "text"), strict=True):
        program, *arguments = shlex.split(command.replace("\\\n", ""))
        assert program == "trt-et"
        printed = run(*arguments)
        if "bench" not in command:  # Times differ.
            lines = "\n".join(line.rstrip() for line in printed.splitlines())
            assert without_rounding(lines) == without_rounding(expected)
    assert "tensorrt_1" in (tmp_path / "plan.html").read_text()


def without_rounding(text: str) -> str:
    """Leave out errors in the last bits of float32, which differ between processors."""
    return re.sub(r"\d\.\d+e-0[78]|SNR \d+\.\d dB", "...", text).strip("\n")


@pytest.mark.long
def test_a_trace_that_the_runner_wrote_is_read_as_its_page_says(tmp_path):
    program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(1, 4),))
    (tmp_path / "model.pte").write_bytes(lower(program))
    text = RUNNER.read_text()
    done = finished("bash", "-euc", blocks(text, "sh")[0], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (code,) = blocks(text, "python")
    done = finished(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "enqueue" in done.stdout


def test_commands_in_the_documents_exist():
    commands = typer.main.get_command(app).commands
    makefile = (ROOT / "Makefile").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    for page in PAGES:
        for block in blocks(page.read_text(), "sh"):
            for name, arguments in re.findall(r"^trt-et ([a-z]\w*)(.*)$", block, re.MULTILINE):
                assert name in commands, f"{page.name}: trt-et {name}"
                known = options(commands[name])
                for option in re.findall(r"\s(--[a-z-]+)", arguments.partition("#")[0]):
                    assert option in known, f"{page.name}: trt-et {name} {option}"
            for target in re.findall(r"^make ([a-z0-9-]+)", block, re.MULTILINE):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: {target}"
            for extra in re.findall(r'^pip install "\.\[(\w+)\]"', block, re.MULTILINE):
                assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"{page.name}: {extra}"


def options(command) -> set[str]:
    """The options of a command and of the commands in it."""
    inner = getattr(command, "commands", {}).values()
    own = {n for p in command.params for n in (*p.opts, *p.secondary_opts)}
    return own.union({"--help"}, *(options(one) for one in inner))


def test_docs_cli_names_every_command_and_option_and_no_other():
    text = (ROOT / "docs" / "cli.md").read_text()
    app_command = typer.main.get_command(app)
    sections = re.findall(r"^## ((\w+).*?)$(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert sorted(name for _, name, _ in sections) == sorted(app_command.commands)
    for heading, name, section in sections:
        command = app_command.commands[name]
        if name == "cache":
            assert heading == ", ".join(f"cache {inner}" for inner in command.commands)
        rows = re.findall(r"^\| (`-.*?) \|", section, re.MULTILINE)
        documented = {option for row in rows for option in re.findall(r"`(-[\w-]+)`", row)}
        known = {option for option in options(command) if option.startswith("-")}
        assert documented == known - {"--help"}, name
    for option in {o for p in app_command.params for o in p.opts} - {"--help"}:
        assert f"trt-et {option}" in text


def test_links_and_names_of_files_lead_to_files():
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for name in re.findall(
            r"`((?:docs|trt_et|examples|tests|scripts|benchmarks)/[\w./-]+)`", text
        ):
            found = (ROOT / name).exists() or (INCLUDE / name).exists()
            assert found, f"{page.relative_to(ROOT)} names {name}"
        for target in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_site_builds_without_a_warning(tmp_path):
    done = finished("mkdocs", "build", "--strict", "--site-dir", str(tmp_path), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "reference/api/index.html").read_text()
    assert "../../guides/precision/" in reference
    assert "(docs/guides/" not in reference
    assert "NoReturn" not in reference


def test_every_page_is_in_the_navigation_of_the_site():
    site = (ROOT / "mkdocs.yml").read_text()
    for page in ROOT.glob("docs/**/*.md"):
        assert str(page.relative_to(ROOT / "docs")) in site


@pytest.mark.long
@pytest.mark.skipif(
    installed_variant() != "tensorrt_rtx" or not is_installed("torch-tensorrt-rtx", "2.14"),
    reason="the table is of torch-tensorrt-rtx 2.14",
)
def test_a_sample_of_the_table_of_operators_is_what_happens():
    found = (ROOT / "docs/reference/operators.md").read_text()
    assert found.startswith(operators_page.HEAD)
    rows = found.removeprefix(operators_page.HEAD).splitlines()
    convertible = convertible_operators()
    names_and_makers = [
        [f"`{str(operator).removesuffix('.default')}`", operators_page.route(operator, convertible)]
        for operator in operators_page.listed()
    ]
    assert [[cell.strip() for cell in row.split("|")[1:4:2]] for row in rows] == names_and_makers
    assert rows[::100] == list(operators_page.rows(100)), "see tests/support/operators_page.py"


def sources(*endings: str) -> list[Path]:
    return [path for ending in endings for path in ROOT.glob(f"trt_et/**/*{ending}")]


def test_every_environment_variable_is_documented_and_no_other():
    page = (ROOT / "docs/reference/environment.md").read_text()
    texts = [path.read_text() for path in sources(".py", ".cpp", ".h")]
    read = {name for text in texts for name in re.findall(r'"(TRT_ET_[A-Z_]+)"', text)}
    options = (ROOT / "trt_et/runtime/src/engine/options.cpp").read_text()
    read |= {
        f"TRT_ET_{name.upper()}" for name in re.findall(r'(?:^ +| = ){"([a-z_]+)", ', options, re.M)
    }
    assert set(re.findall(r"`(TRT_ET_[A-Z_]+)`", page)) == read


def test_each_cell_about_others_has_a_source_with_a_date():
    page = (ROOT / "docs" / "comparison.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    cells = [cell for row in rows if len(row) == 7 for cell in row[2:]][10:]
    sources = {row[0]: row[2] for row in rows if len(row) == 3 and row[0].isdigit()}
    assert all(re.search(r"\d+ \w+ 202\d", date) for date in sources.values())
    used = set()
    for cell in filter(None, cells):
        marks = re.search(r"<sup>([\d, ]+)</sup>$", cell)
        assert marks, cell
        used |= set(marks[1].split(", "))
    assert used == set(sources)
