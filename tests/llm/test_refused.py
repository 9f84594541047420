"""What trt_et.llm refuses: options before the export of a large model, and models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers as tf

from tests.support.programs.language_models import SIZES, VOCABULARY, CountingModel, make_model
from tests.support.programs.multimodal_models import IMAGE, OPTIONS, SOUND, llava
from tests.support.programs.speech_models import transducer, whisper
from trt_et import OptionError, UnsupportedModelError
from trt_et.llm import export_llm, export_multimodal, export_speech, export_transducer


def tiny(name: str, head: str = "ForCausalLM", **changes: Any) -> torch.nn.Module:
    """One of the small models of ``transformers``."""
    sizes = {"vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
    config = getattr(tf, f"{name}Config")(**{**sizes, "num_attention_heads": 2, **changes})
    return getattr(tf, name + head)(config)


def indexed() -> torch.nn.Module:
    model: Any = tiny("DeepseekV32")
    model.set_experts_implementation("batched_mm")
    return model


def gemma3() -> tf.PreTrainedModel:
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 16, "patch_size": 4}
    config = tf.Gemma3Config(
        text_config={**SIZES, "head_dim": 16}, vision_config=vision, mm_tokens_per_image=4
    )
    return tf.Gemma3ForConditionalGeneration(config)


def without_values() -> torch.nn.Module:
    with torch.device("meta"):
        return CountingModel(8)


def counting() -> torch.nn.Module:
    return CountingModel(8)


def llm(model: Any, **options: Any) -> None:
    export_llm(model, **{"cache_length": 8, "builder": "reference", **options})


def multimodal(model: Any, **options: Any) -> None:
    export_multimodal(model, **{**OPTIONS, **options})


def speech(model: Any, **options: Any) -> None:
    export_speech(model, builder="reference", **options)


def transducers(model: Any, **options: Any) -> None:
    export_transducer(model, **{"frames": 64, "builder": "reference", **options})


def tdt() -> torch.nn.Module:
    return transducer("TDT")


@pytest.fixture
def kvcache() -> Iterator[None]:
    """The operator of ``CacheOutside``."""
    with torch.library._scoped_library("kvcache", "FRAGMENT") as library:
        library.define("update_and_attend(Tensor x, Tensor position) -> Tensor")
        library.impl("update_and_attend", lambda x, _: x.clone(), "CompositeExplicitAutograd")
        yield


class CacheOutside(torch.nn.Module):
    """Attention whose cache the runtime keeps, as ExecuTorch plans it."""

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return torch.ops.kvcache.update_and_attend(tokens.to(torch.float32), position)


class Complex(torch.nn.Module):
    """A spectrum of the tokens."""

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(tokens.float()).abs()[..., None]


class Chosen(torch.nn.Module):
    """Tokens that are chosen by their values, as those of an expert are."""

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        chosen = tokens[tokens > 3][: tokens.shape[1]]
        return (chosen.sum() + position).float().expand(1, 1, 4)


class SharedCache(torch.nn.Module):
    """Two layers, of which the second one reads the first one's cache."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([CountingModel(8), torch.nn.Linear(VOCABULARY, 4)])

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers[0](tokens, position)
        return logits + self.layers[1](self.layers[0].cache).sum()


MAMBA2 = {"num_heads": 4, "head_dim": 8, "n_groups": 1, "state_size": 4}
NO_GPU = "device 'cpu' is not a GPU"
NOT_SHARED = "prefill_and_decode=True cannot be combined with"


@pytest.mark.parametrize(
    ("export", "make", "options", "message"),
    [
        (llm, counting, {"cache_length": 0}, "cache_length is 0"),
        (llm, counting, {"max_prompt": 9}, "max_prompt is 9, but the cache holds 8"),
        (llm, counting, {"max_prompt": True}, "max_prompt is True"),
        (llm, counting, {"dtype": torch.int8}, "dtype is torch.int8"),
        (llm, counting, {"eos_ids": "</s>"}, "eos_ids is '</s>'"),
        (llm, counting, {"eos_ids": [-1]}, "eos_ids holds -1"),
        (llm, counting, {"max_seq_len": 8}, "did you mean cache_length"),
        (llm, counting, {"io_on_gpu": True, "cache_on_gpu": False}, "needs cache_on_gpu=True"),
        (llm, counting, {"device": "cpu"}, NO_GPU),
        (llm, counting, {"precision": "float8"}, "precision is 'float8'"),
        (llm, counting, {"partitioner": None, "device": int}, "'partitioner' is no option"),
        (llm, counting, {"prefill_and_decode": True, "io_on_gpu": True}, NOT_SHARED),
        (llm, counting, {"prefill_and_decode": True, "cache_on_gpu": False}, NOT_SHARED),
        (llm, counting, {"prefill_and_decode": True, "device": int}, NOT_SHARED),
        (multimodal, llava, {}, "image and audio are None"),
        (multimodal, llava, {"audio": SOUND}, "LlavaFor.* has no get_audio_features"),
        (multimodal, llava, {"image": IMAGE.half()}, r"vision_encoder is torch\.float16"),
        (multimodal, gemma3, {"image": IMAGE}, r"forward takes token_type_ids"),
        (multimodal, counting, {"image": IMAGE}, "has no get_image_features"),
        (multimodal, llava, {"image": IMAGE, "max_prompt": 97}, "the cache holds 96 tokens"),
        (multimodal, llava, {"image": IMAGE, "device": "cpu"}, NO_GPU),
        (speech, lambda: make_model("llama"), {}, "LlamaForCausalLM is no WhisperFor"),
        (speech, lambda: whisper().model, {}, "WhisperModel is no WhisperFor"),
        (speech, whisper, {"cache_length": 99}, "is 99, but the model has 44 positions"),
        (speech, whisper, {"dtype": torch.int8}, r"dtype is torch\.int8"),
        (speech, whisper, {"sampler": True}, "sampler=True needs share_state=False"),
        (speech, whisper, {"max_length": 8}, "did you mean cache_length"),
        (speech, whisper, {"device": "cpu"}, NO_GPU),
        (transducers, whisper, {}, "WhisperForConditionalGeneration is no transducer"),
        (transducers, tdt, {"frames": 16}, "expected a multiple of 8 from 24 to 1600"),
        (transducers, tdt, {"frames": 9999}, "from 24 to 1600"),
        (transducers, tdt, {"device": "cpu"}, NO_GPU),
    ],
)
def test_an_impossible_choice_is_refused_before_an_export(
    export, make, options, message, monkeypatch
):
    monkeypatch.setattr(torch.export, "export", None)
    with pytest.raises((OptionError, UnsupportedModelError), match=message):
        export(make(), **options)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: tiny("GPT2", "LMHeadModel", n_positions=4), {}, "has 4 position embeddings"),
        (lambda: tiny("T5", "ForConditionalGeneration"), {}, "has an encoder"),
        (lambda: tiny("Llama", attn_implementation="flex_attention"), {}, "n='sdpa'"),
        (lambda: tiny("Mixtral", num_key_value_heads=2), {}, "set_experts_implementation"),
        (lambda: tiny("DeepseekV3", n_routed_experts=8), {}, "set_experts_implementation"),
        (lambda: tiny("Mamba"), {}, "MambaForCausalLM keeps recurrent states that are neither"),
        (
            lambda: tiny(
                "RecurrentGemma", num_hidden_layers=3, num_key_value_heads=1, lru_width=16
            ),
            {},
            "keeps nothing in the cache: .* keeps its states elsewhere",
        ),
        (lambda: tiny("Mamba2", **MAMBA2), {"device": int}, "Mamba2ForCausalLM keeps recurrent st"),
        (Complex, {}, r"Complex computes with complex numbers \(aten\.fft_fft\.default\)"),
        (lambda: tiny("xLSTM"), {}, "xLSTMForCausalLM does not run with a DynamicCache"),
        (indexed, {}, "layer 0 of DeepseekV32For.* a DynamicIndexedLayer"),
        (
            lambda: tiny("ModernBert", "ForMaskedLM", pad_token_id=0),
            {},
            "ModernBertForMaskedLM.forward takes no cac",
        ),
        (lambda: tiny("Bert", "LMHeadModel"), {}, "BertLMHeadModel is an encoder"),
        (lambda: tiny("Llama", "Model"), {}, "LlamaModel returns no logits; expected a causal"),
        (without_values, {}, "weight rows has no values: the model is on the device meta"),
        (lambda: "model", {}, "model is str; expected a module: AutoModelForCausalLM"),
        (lambda: tf.LlamaForCausalLM, {}, "model is the class LlamaForCausalLM; expected a m"),
        (lambda: torch.nn.Linear(4, 4), {}, "Linear.forward takes"),
        (lambda: torch.nn.Bilinear(4, 4, 4), {}, "torch.export cannot export Bilinear"),
        (Chosen, {}, "Chosen has tensors whose sizes depend on values"),
        (CacheOutside, {}, r"CacheOutside calls kvcache\.update_and"),
        (counting, {"optimization_profiles": [{"x": {1: 1}}]}, "names the input 'x'"),
        (counting, {"device": lambda _: 0}, "CountingModel has no numbered layers"),
        (SharedCache, {"device": lambda n: n}, "on another GPU than layer 0, whose KV cache"),
        (SharedCache, {"device": lambda _: "tpu"}, "device 'tpu' is not a GPU"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_few_lines(make, options, message, kvcache):
    with pytest.raises((UnsupportedModelError, OptionError), match=message) as raised:
        llm(make(), **options)
    assert str(raised.value).count("\n") < 10
