"""What export_llm makes of a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.programs.language_models import VOCABULARY, CountingModel, make_model
from tests.support.simulated_gpus import load_method, load_program
from trt_et import UnsupportedModelError
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm
from trt_et.llm.decoder import rotary_frequencies
from trt_et.llm.steps import default_profiles
from trt_et.runtime import counters


def export(model: torch.nn.Module, cache_length: int = 8, **options: Any) -> bytes:
    options = {"builder": "reference", **options}
    return bytes(export_llm(model, cache_length=cache_length, **options).buffer)


@pytest.fixture(scope="module")
def counting() -> bytes:
    return export(CountingModel(8))


def tokens(*ids: int) -> torch.Tensor:
    return torch.tensor([ids])


def call(method: Any, ids: torch.Tensor, position: int) -> tuple[torch.Tensor, dict[str, int]]:
    """The logits, and what the simulated GPUs counted in the call."""
    before = counters()
    (logits,) = method.execute([ids, torch.tensor([position])])
    return logits, {name: count - before.get(name, 0) for name, count in counters().items()}


def test_a_step_moves_the_token_its_position_and_one_row_of_logits(counting):
    method = load_method(counting)
    logits, counted = call(method, tokens(3, 1, 4), 0)
    assert logits.shape == (1, 1, VOCABULARY)
    assert counted["bytes_d2h"] == 4 * VOCABULARY
    call(method, tokens(9), 3)
    _, counted = call(method, tokens(2), 4)
    assert counted["bytes_h2d"] == 8 + 8
    assert counted["bytes_d2h"] == 4 * VOCABULARY
    assert (counted["copies_h2d"], counted["copies_d2h"]) == (2, 1)
    assert counted["mallocs"] == 0


def test_a_program_says_what_the_runners_ask_for():
    program = load_program(export(CountingModel(8), max_prompt=7, eos_ids=[5, 6]))
    said = {
        name: list(program.load_method(name).execute([]))
        for name in program.method_names - {"forward"}
    }
    assert said == {
        "get_max_seq_len": [7],
        "get_max_context_len": [8],
        "get_eos_ids": [5, 6],
        "get_vocab_size": [VOCABULARY],
        "use_kv_cache": [True],
        "use_sdpa_with_kv_cache": [False],
        "enable_dynamic_shape": [True],
    }


def test_a_model_with_a_cache_of_its_own(counting):
    expected = torch.zeros(3, VOCABULARY)
    expected[0, 3] = expected[1, 3] = expected[1, 5] = expected[2, 5] = 1
    expected[2, 3] = 2
    all_logits = export(CountingModel(8), all_logits=True)
    for pte, rows in ((counting, expected[-1:]), (all_logits, expected)):
        method = load_method(pte)
        logits, _ = call(method, tokens(3, 5, 3), 0)
        assert torch.equal(logits[0], rows)
        assert call(method, tokens(5), 3)[0][0, 0, 5] == 2


@pytest.mark.parametrize(
    ("ids", "position"), [((3,), 8), ((3, 4), 7), ((3,), -1), ((3, 4), -1), ((3,), 2**40)]
)
def test_positions_outside_of_the_cache_are_an_error_before_the_engine_runs(
    ids, position, counting
):
    method = load_method(counting)
    call(method, tokens(3), 7)
    before = counters()
    with pytest.raises(RuntimeError, match="0x12"):
        method.execute([tokens(*ids), torch.tensor([position])])
    assert counters() == before
    # The program goes on.
    assert call(method, tokens(3), 0)[0][0, 0, 3] == 1


def test_no_tokens_and_other_dtypes_and_shapes_are_an_error(counting):
    method = load_method(counting)
    start = torch.tensor([0])
    wrong = {
        "no tokens": (torch.zeros(1, 0, dtype=torch.int64), start),
        "tokens of 32 bits": (tokens(3).int(), start),
        "a position of 32 bits": (tokens(3), start.int()),
        "two texts": (torch.tensor([[3], [4]]), start),
        "two positions": (tokens(3, 4), torch.tensor([0, 1])),
        "no batch": (torch.tensor([3]), start),
        "more tokens than the cache has rows": (tokens(*range(9)), start),
    }
    for name, arguments in wrong.items():
        with pytest.raises(RuntimeError, match=r"error 0x1[02]"):
            method.execute(list(arguments))
        # The method goes on.
        assert call(method, tokens(3), 0)[0][0, 0, 3] == 1, name


def test_with_full_graph_no_check_of_positions_stays_on_the_cpu(counting):
    lookups = []
    for pte in (counting, export(CountingModel(8), full_graph=True)):
        operators = inspect_program(pte)[0].cpu_operators
        lookups.append(sum("index_select" in name for name in operators))
    assert lookups == [1, 0]


def test_a_cache_on_the_host_is_copied_there_and_back():
    method = load_method(export(CountingModel(8), cache_on_gpu=False))
    logits, counted = call(method, tokens(3), 0)
    assert logits[0, 0, 3] == 1
    assert counted["bytes_d2h"] == 4 * VOCABULARY * (8 + 1)


@pytest.mark.long
def test_tensorrt_rtx_builds_one_engine_that_writes_its_sliding_window_in_place():
    options = {"max_prompt": 4, "builder": "tensorrt_rtx", "dtype": torch.bfloat16}
    (delegate,) = inspect_program(export(make_model("mistral"), 64, **options))[0].delegates
    assert delegate.engine is not None
    inputs = {binding.name: binding for binding in delegate.engine.inputs}
    caches = [inputs[alias.input] for alias in delegate.engine.aliases]
    rows = 16 + 2 * 4 - 2
    assert [(cache.dtype, cache.shape) for cache in caches] == [("bfloat16", (1, 2, rows, 16))] * 2


def test_profiles_fit_the_builder():
    assert default_profiles("tensorrt", 512) == (
        {"input_ids": {1: 1}},
        {"input_ids": {1: (2, 256, 512)}},
    )
    assert default_profiles("tensorrt", 2) == ({"input_ids": {1: 1}}, {"input_ids": {1: (2, 2, 2)}})
    assert default_profiles("tensorrt_rtx", 512) == ({"input_ids": {1: (1, 1, 512)}},)
    assert default_profiles("tensorrt", 1) == ()


def test_the_model_is_left_in_the_mode_that_it_was_in():
    model = torch.nn.Linear(4, 4)
    with pytest.raises(UnsupportedModelError):
        export(model.train())
    assert model.training


@pytest.fixture
def stopped(monkeypatch) -> None:
    """Exports end when torch.export is called."""
    monkeypatch.setattr(torch.export, "export", None)


def test_a_conversion_leaves_the_frequencies_of_rotary_angles_in_float32(caplog, stopped):
    """In bfloat16 the angle of position 1,000 is wrong by a radian."""
    long = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    long |= {"rope_theta": 10000.0, "original_max_position_embeddings": 8}
    model = make_model("phi3", rope_parameters=long, original_max_position_embeddings=8)
    before = rotary_frequencies(model)
    with pytest.raises(UnsupportedModelError, match=r"torch\.export"):
        export(model, 16, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    after = rotary_frequencies(model)
    names = {"model.rotary_emb.inv_freq", "model.rotary_emb.original_inv_freq"}
    assert before.keys() == after.keys() == names
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert "angles of far positions" not in caplog.text


def test_rotary_angles_that_were_rounded_are_reported(caplog, stopped):
    with pytest.raises(UnsupportedModelError, match=r"torch\.export"):
        export(make_model("llama").to(torch.bfloat16), 16)
    assert "model.rotary_emb.inv_freq of LlamaForCausalLM is torch.bfloat16" in caplog.text


def test_torch_still_needs_strict_exports(monkeypatch):
    """When this fails, a release of torch decomposes others, and strict=True can go."""
    original = torch.export.export

    def export_without(*args: Any, strict: bool, **options: Any) -> Any:
        return original(*args, strict=not strict, **options)

    monkeypatch.setattr(torch.export, "export", export_without)
    with pytest.raises(RuntimeError, match="lifted_tensor_0 is mutated"):
        export(make_model("llama"), 16)
