"""ExecuTorch's own language models (``examples/models/llama``) are one engine."""

from __future__ import annotations

import os

import pytest
import torch

from tests.support.programs.executorch_llama import KINDS, NEW_TOKENS, eager_answer, lower, make
from tests.support.programs.language_models import VOCABULARY, Runner, make_prompt
from tests.support.simulated_gpus import load_runtime
from trt_et.inspection import inspect_program
from trt_et.runtime.counters import read_counters

pytest.importorskip("executorch.examples.models.llama.llama_transformer")

IN_CI = ("llama 2, one token a call", "gemma 3", "experts")
NAMES = tuple(KINDS) if os.environ.get("TRT_ET_ZOO") == "all" else IN_CI


@pytest.mark.parametrize("kind", NAMES)
def test_a_model_is_one_engine_that_says_what_eager_says(kind, tmp_path):
    pte = lower(make(**KINDS[kind]), "reference")
    methods = {method.name: method for method in inspect_program(pte)}
    assert len(methods["forward"].delegates) == 1
    runner, eager = Runner(tmp_path, pte), make(**KINDS[kind])
    for length in (1, 7, 33, 100):
        text, ids = make_prompt(length)
        assert runner.answer(text, NEW_TOKENS) == eager_answer(eager, ids), length


def test_a_step_moves_the_token_its_position_and_one_row_of_logits():
    from executorch.runtime import Runtime

    load_runtime()
    pte = lower(make(), "reference")
    method = Runtime.get().load_program(pte).load_method("forward")
    before = read_counters()
    method.execute([torch.tensor([[3]]), torch.tensor([5])])
    copied = {name: count - before.get(name, 0) for name, count in read_counters().items()}
    assert (copied["bytes_h2d"], copied["bytes_d2h"]) == (8 + 8, 4 * VOCABULARY)


@pytest.mark.parametrize(
    ("options", "in_place"),
    [
        ({"n_layers": 2}, 4),
        # The rows of a call may begin at the end of a ring and go on at its start.
        (KINDS["ring buffers"], 2),
        (KINDS["ring buffers, one token a call"], 2),
    ],
)
def test_tensorrt_rtx_writes_runs_of_rows_in_place(options, in_place):
    pte = lower(make(**options), "tensorrt_rtx")
    (delegate,) = next(m for m in inspect_program(pte) if m.name == "forward").delegates
    assert delegate.engine is not None
    assert len(delegate.engine.aliases) == in_place
