"""Whole models, as people bring them, run like eager on simulated GPUs.

CI takes the families that every release must know, and those that once found a defect. It runs some
of them and builds the others; ``make zoo`` does both with all.
"""

from __future__ import annotations

import pytest

from tests.support.zoo.lowered import TO_RUN, check_run, make


@pytest.mark.parametrize("name", TO_RUN)
def test_it_runs_like_eager_on_a_simulated_gpu(name):
    check_run(make(name))
