"""Two programs compared, and a program as one page."""

from __future__ import annotations

import json
import re

from tests.support.cli.sample_programs import program
from trt_et.cli.html import graph_of, html_page
from trt_et.cli.inspect import differences, to_document
from trt_et.inspection import inspect_program, read_program


def test_a_program_does_not_differ_from_itself():
    document = to_document(read_program(program("split")))
    assert list(differences(document, json.loads(json.dumps(document)))) != []  # Tuples, lists.
    assert list(differences(document, to_document(read_program(program("split"))))) == []


def test_differences_name_the_value_and_its_path():
    first = {"engines": [{"device": 0, "shape": [1]}], "only": 1}
    second = {"engines": [{"device": 1, "shape": [1]}, {}], "more": 2}
    assert list(differences(first, second)) == [
        "engines: 1 entries -> 2 entries",
        "engines[0].device: 0 -> 1",
        "only: only in the first",
        "more: only in the second",
    ]


def test_the_graph_follows_the_tensors():
    (method,) = inspect_program(program("split"))
    graph = graph_of(method)
    labels = [node["label"] for node in graph["nodes"]]
    names = {(labels[start], labels[end]) for start, end, _ in graph["edges"]}
    assert ("input 0", "h2d_copy") in names
    assert ("TensorRTBackend 0", "d2h_copy") in names
    assert ("d2h_copy", "cumsum") in names
    assert ("d2h_copy", "output 0") in names
    assert {n["device"] for n in graph["nodes"] if n["kind"] == "delegate"} == {"cuda:1"}


def test_a_long_cpu_part_becomes_one_node(monkeypatch):
    monkeypatch.setattr("trt_et.cli.html._MOST_NODES", 3)
    (method,) = inspect_program(program("cpu"))
    kinds = [node["kind"] for node in graph_of(method)["nodes"]]
    assert kinds == ["input", "cpu", "output"]


def test_the_page_needs_nothing_else_and_its_data_cannot_end_the_script():
    split = read_program(program("split"))
    page = html_page(split, to_document(split), "</script><img src=x>")
    assert page.count("</script>") == 1
    assert not re.search(r"""(src|href)\s*=\s*["']|@import|url\(""", page)
    assert "{{data}}" not in page
