"""Two programs compared."""

from __future__ import annotations

import json

from tests.support.cli.sample_programs import program
from trt_et.cli.inspect import differences, to_document
from trt_et.inspection import read_program


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
