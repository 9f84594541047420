"""The deliberate faults of `make faults` still apply to the code."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.native_environment import ROOT
from tests.support.reliability.faults import faulty, read_faults
from tests.support.reliability.figures import FIGURES, Part, lines


@pytest.mark.parametrize("fault", read_faults(), ids=lambda fault: fault.name)
def test_a_fault_applies_and_names_tests(fault):
    text = (ROOT / fault.file).read_text()
    assert faulty(fault, text) != text
    assert fault.native or fault.thread or fault.python
    with pytest.raises(ValueError, match="has 0 times"):
        faulty(dataclasses.replace(fault, find="what is not there"), text)


def test_there_are_twenty():
    assert len({fault.name for fault in read_faults()}) >= 20


def test_a_figure_is_missed_without_a_number_and_with_one_bad_part():
    found = lines([Part("R1", True, "5 mutants"), Part("R2", True, "a"), Part("R2", False, "b")])
    assert [line.split()[0] for line in found] == list(FIGURES)
    assert found[:3] == ["R1 ok 5 mutants", "R2 MISSED a; b", "R3 MISSED not measured"]
