"""docs/cli.md names every command and option that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from trt_et.cli import app

TEXT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SHARED = "as of `run`"


def options(command) -> set[str]:
    found = {
        name
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    return found - {"--help"}


def documented(heading: str) -> set[str]:
    (section,) = re.findall(rf"^## {heading}.*?$(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (`-.*?) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(-[\w-]+)`", row)}


def test_every_option_of_every_command_is_documented_and_no_other():
    commands = typer.main.get_command(app).commands
    for name, command in commands.items():
        if name == "cache":
            wanted = set().union(*(options(inner) for inner in command.commands.values()))
        else:
            wanted = options(command)
        assert documented(name) == wanted, name


def test_every_command_has_its_section_and_no_other():
    commands = typer.main.get_command(app).commands
    sections = re.findall(r"^## (\w+)", TEXT, re.MULTILINE)
    assert sorted(sections) == sorted(commands)
    (heading,) = re.findall(r"^## (cache .*)", TEXT, re.MULTILINE)
    assert heading == ", ".join(f"cache {name}" for name in commands["cache"].commands)


def test_options_of_the_command_itself_are_named():
    for name in options(typer.main.get_command(app)):
        assert f"trt-et {name}" in TEXT
