"""What trt_et.llm makes of a model, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf

from tests.support.programs.language_models import VOCABULARY, CountingModel, make_model
from tests.support.simulated_gpus import load_method, load_program
from trt_et import OptionError, UnsupportedModelError
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm
from trt_et.llm.decoder import rotary_frequencies
from trt_et.llm.steps import default_profiles
from trt_et.runtime.counters import read_counters

_TINY = {"vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}


def export(model: torch.nn.Module, cache_length: int = 8, **options: Any) -> bytes:
    options = {"builder": "reference", **options}
    return bytes(export_llm(model, cache_length=cache_length, **options).buffer)


def counting(length: int = 8, **options: Any) -> bytes:
    return export(CountingModel(length), length, **options)


def tokens(*ids: int) -> torch.Tensor:
    return torch.tensor([ids])


def call(method: Any, ids: torch.Tensor, position: int) -> tuple[torch.Tensor, dict[str, int]]:
    """The logits, and what the simulated GPUs counted in the call."""
    before = read_counters()
    (logits,) = method.execute([ids, torch.tensor([position])])
    return logits, {name: count - before.get(name, 0) for name, count in read_counters().items()}


def test_a_step_moves_the_token_its_position_and_one_row_of_logits():
    model = make_model("llama")
    method = load_method(export(model, 32))
    prompt = tokens(3, 1, 4, 1, 5)
    logits, counted = call(method, prompt, 0)
    assert logits.shape == (1, 1, VOCABULARY)
    torch.testing.assert_close(logits, model(prompt).logits[:, -1:], rtol=1e-4, atol=1e-4)
    assert counted["bytes_d2h"] == 4 * VOCABULARY
    call(method, tokens(9), 5)
    _, counted = call(method, tokens(2), 6)
    assert counted["bytes_h2d"] == 8 + 8
    assert counted["bytes_d2h"] == 4 * VOCABULARY
    assert (counted["copies_h2d"], counted["copies_d2h"]) == (2, 1)
    assert counted["mallocs"] == 0
    del logits


def test_a_program_says_what_the_runners_ask_for():
    program = load_program(counting(24, max_prompt=9, eos_ids=[5, 6]))
    said = {
        name: list(program.load_method(name).execute([]))
        for name in program.method_names - {"forward"}
    }
    assert said == {
        "get_max_seq_len": [9],
        "get_max_context_len": [24],
        "get_eos_ids": [5, 6],
        "get_vocab_size": [VOCABULARY],
        "use_kv_cache": [True],
        "use_sdpa_with_kv_cache": [False],
        "enable_dynamic_shape": [True],
    }


@pytest.mark.parametrize("all_logits", [False, True])
def test_a_model_with_a_cache_of_its_own(all_logits):
    method = load_method(counting(all_logits=all_logits))
    logits, _ = call(method, tokens(3, 5, 3), 0)
    expected = torch.zeros(3, VOCABULARY)
    expected[0, 3] = expected[1, 3] = expected[1, 5] = expected[2, 5] = 1
    expected[2, 3] = 2
    assert torch.equal(logits[0], expected if all_logits else expected[-1:])
    assert call(method, tokens(5), 3)[0][0, 0, 5] == 2


@pytest.mark.parametrize(
    ("ids", "position"), [((3,), 8), ((3, 4), 7), ((3,), -1), ((3, 4), -1), ((3,), 2**40)]
)
def test_positions_outside_of_the_cache_are_an_error_before_the_engine_runs(ids, position):
    method = load_method(counting())
    call(method, tokens(3), 7)
    before = read_counters()
    with pytest.raises(RuntimeError, match="0x12"):
        method.execute([tokens(*ids), torch.tensor([position])])
    assert read_counters() == before
    # The program goes on.
    assert call(method, tokens(3), 0)[0][0, 0, 3] == 1


def test_no_tokens_and_other_dtypes_and_shapes_are_an_error():
    method = load_method(counting())
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


def test_with_full_graph_no_check_of_positions_stays_on_the_cpu():
    lookups = []
    for full_graph in (False, True):
        (method, *_) = inspect_program(counting(full_graph=full_graph))
        lookups.append([name for name in method.cpu_operators if "index_select" in name])
    assert [len(found) for found in lookups] == [1, 0]


def test_a_cache_on_the_host_is_copied_there_and_back():
    method = load_method(counting(cache_on_gpu=False))
    logits, counted = call(method, tokens(3), 0)
    assert logits[0, 0, 3] == 1
    assert counted["bytes_d2h"] == 4 * VOCABULARY * (8 + 1)


def test_tensorrt_rtx_builds_one_engine_that_writes_its_cache_in_place():
    method = inspect_program(counting(16, builder="tensorrt_rtx", dtype=torch.bfloat16))[0]
    (engine,) = (delegate.engine for delegate in method.delegates)
    assert engine is not None
    # Torch 2.13 puts the cache last, 2.14 not.
    assert sorted(binding.dtype for binding in engine.inputs) == ["bfloat16", "int64", "int64"]
    assert len(engine.aliases) == 1


def test_tensorrt_rtx_writes_the_cache_of_a_sliding_window_in_place():
    pte = export(make_model("mistral"), 64, max_prompt=4, builder="tensorrt_rtx")
    (delegate,) = inspect_program(pte)[0].delegates
    assert delegate.engine is not None
    shapes = {binding.name: binding.shape for binding in delegate.engine.inputs}
    rows = 16 + 2 * 4 - 2
    assert [shapes[alias.input] for alias in delegate.engine.aliases] == [(1, 2, rows, 16)] * 2


def test_profiles_fit_the_builder():
    assert default_profiles("tensorrt", 512) == (
        {"input_ids": {1: 1}},
        {"input_ids": {1: (2, 256, 512)}},
    )
    assert default_profiles("tensorrt", 2) == ({"input_ids": {1: 1}}, {"input_ids": {1: (2, 2, 2)}})
    assert default_profiles("tensorrt_rtx", 512) == ({"input_ids": {1: (1, 1, 512)}},)
    assert default_profiles("tensorrt", 1) == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_length": 0}, "cache_length is 0"),
        ({"max_prompt": 9}, "max_prompt is 9, but the cache holds 8"),
        ({"max_prompt": True}, "max_prompt is True"),
        ({"dtype": torch.int8}, "dtype is torch.int8"),
        ({"eos_ids": "</s>"}, "eos_ids is '</s>'"),
        ({"eos_ids": [-1]}, "eos_ids holds -1"),
        ({"max_seq_len": 8}, "'max_seq_len' is no option: did you mean cache_length"),
        ({"io_on_gpu": True, "cache_on_gpu": False}, "needs cache_on_gpu=True"),
        ({"device": "cpu"}, "device 'cpu' is not a GPU"),
        ({"precision": "float8"}, "precision is 'float8'"),
        ({"partitioner": None, "device": lambda layer: layer}, "'partitioner' is no option"),
    ],
)
def test_options_are_checked_before_the_model_is_exported(options, message, monkeypatch):
    monkeypatch.setattr(torch.export, "export", None)
    with pytest.raises(OptionError, match=message):
        export(CountingModel(8), **options)


def test_profiles_of_an_input_that_there_is_not_are_refused():
    with pytest.raises(OptionError, match="names the input 'x'"):
        counting(optimization_profiles=[{"x": {1: 1}}])


def _gpt2() -> torch.nn.Module:
    return tf.GPT2LMHeadModel(
        tf.GPT2Config(vocab_size=16, n_embd=16, n_layer=1, n_head=2, n_positions=4)
    )


def _t5() -> torch.nn.Module:
    config = tf.T5Config(vocab_size=16, d_model=16, d_ff=16, num_layers=1, num_heads=2)
    return tf.T5ForConditionalGeneration(config)


def _flex() -> torch.nn.Module:
    config = tf.LlamaConfig(**_TINY, num_attention_heads=2, attn_implementation="flex_attention")
    return tf.LlamaForCausalLM(config)


def _mixture() -> torch.nn.Module:
    config = tf.MixtralConfig(**_TINY, num_attention_heads=2, num_key_value_heads=2)
    return tf.MixtralForCausalLM(config)


def _mamba() -> torch.nn.Module:
    config = tf.MambaConfig(vocab_size=16, hidden_size=16, num_hidden_layers=1)
    return tf.MambaForCausalLM(config)


def _without_values() -> torch.nn.Module:
    with torch.device("meta"):
        return CountingModel(8)


def _bert() -> torch.nn.Module:
    return tf.BertModel(tf.BertConfig(**_TINY, num_attention_heads=2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_gpt2, "cache_length is 8, but GPT2LMHeadModel has 4 position embeddings"),
        (_t5, "has an encoder"),
        (_flex, "attn_implementation='sdpa'"),
        (_mixture, "set_experts_implementation"),
        (_mamba, "layer 0 of MambaForCausalLM keeps a LinearAttentionLayer"),
        (_bert, r"(?s)torch\.export cannot export BertModel .*has no attribute 'logits'"),
        (_without_values, "weight rows has no values: the model is on the device meta"),
        (lambda: "model", "model is str; expected a module: AutoModelForCausalLM"),
        (lambda: tf.LlamaForCausalLM, "model is the class LlamaForCausalLM; expected a module"),
        (lambda: torch.nn.Linear(4, 4), "Linear.forward takes"),
        (lambda: torch.nn.Bilinear(4, 4, 4), "torch.export cannot export Bilinear"),
    ],
)
def test_models_that_cannot_be_exported_are_refused(make, message):
    with pytest.raises((UnsupportedModelError, OptionError), match=message) as raised:
        export(make())
    assert str(raised.value).count("\n") < 10


class CacheOutside(torch.nn.Module):
    """Attention whose cache the runtime keeps, as ExecuTorch plans it."""

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return torch.ops.kvcache.update_and_attend(tokens.to(torch.float32), position)


def test_a_cache_outside_of_the_program_is_refused():
    with torch.library._scoped_library("kvcache", "FRAGMENT") as library:
        library.define("update_and_attend(Tensor x, Tensor position) -> Tensor")
        library.impl("update_and_attend", lambda x, _: x.clone(), "CompositeExplicitAutograd")
        with pytest.raises(UnsupportedModelError, match=r"CacheOutside calls kvcache\.update_and"):
            export(CacheOutside())


def test_the_model_is_left_in_the_mode_that_it_was_in():
    model = torch.nn.Linear(4, 4)
    with pytest.raises(UnsupportedModelError):
        export(model.train())
    assert model.training


def test_a_conversion_leaves_the_frequencies_of_rotary_angles_in_float32(caplog):
    """In bfloat16 the angle of position 1,000 is wrong by a radian."""
    long = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    long |= {"rope_theta": 10000.0, "original_max_position_embeddings": 8}
    model = make_model("phi3", rope_parameters=long, original_max_position_embeddings=8)
    before = rotary_frequencies(model)
    export(model, 16, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    after = rotary_frequencies(model)
    names = {"model.rotary_emb.inv_freq", "model.rotary_emb.original_inv_freq"}
    assert before.keys() == after.keys() == names
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert "angles of far positions" not in caplog.text


def test_rotary_angles_that_were_rounded_are_reported(caplog):
    model = make_model("llama").to(torch.bfloat16)
    export(model, 16)
    assert "model.rotary_emb.inv_freq of LlamaForCausalLM is torch.bfloat16" in caplog.text


def test_with_io_on_gpu_no_operator_of_the_program_copies():
    program = export_llm(CountingModel(8), cache_length=8, builder="reference", io_on_gpu=True)
    graph = program.exported_program().graph_module.graph
    called = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert not [name for name in called if "copy" in name]


def test_torch_still_needs_strict_exports(monkeypatch):
    """When this fails, a release of torch decomposes others, and strict=True can go."""
    original = torch.export.export

    def export_without(*args: Any, strict: bool, **options: Any) -> Any:
        return original(*args, strict=not strict, **options)

    monkeypatch.setattr(torch.export, "export", export_without)
    with pytest.raises(AssertionError, match="expected compiled_fn to be GraphModule"):
        export(make_model("llama"), 16)
