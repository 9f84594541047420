"""Models of the ``transformers`` package: small configurations, random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from torch import nn
from torch.export import Dim

from tests.support.zoo.case import Case

Maker = Callable[[], Case]
Shapes = dict[str, tuple[int, ...]]

VOCABULARY = 64
WIDE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
PLAIN = {**WIDE, "vocab_size": VOCABULARY, "max_position_embeddings": 64}
TEXT = {**PLAIN, "attn_implementation": "sdpa"}
RESNET = {"hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8}
VISION = {**WIDE, "image_size": 32, "patch_size": 8}
T5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4}
# Encoder and decoder of Bart and Whisper.
TWO_SIDES = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
    "use_cache": False,
}
WHISPER = {**TWO_SIDES, "num_mel_bins": 16, "max_source_positions": 50, "pad_token_id": 0}
SOUND = {
    **WIDE,
    "vocab_size": VOCABULARY,
    "conv_dim": [16, 16],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
ENCODED = ("last_hidden_state",)


class Fields(nn.Module):
    """Calls a model by keyword and returns the named fields of its result."""

    def __init__(self, model: nn.Module, keys: tuple[str, ...], fields: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.keys = keys
        self.fields = fields

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.model(**dict(zip(self.keys, inputs, strict=True)))
        return tuple(getattr(result, field) for field in self.fields)


class Wrapper(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class Decoder(Wrapper):
    """A causal language model without its cache: logits of every token."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


class PastTensors(Wrapper):
    """A causal language model that takes its keys and values, and returns them longer."""

    def forward(self, tokens: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache = tf.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
        kept = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return (result.logits, *kept)


class StaticCache(nn.Module):
    """A causal language model whose keys and values are buffers."""

    def __init__(self, model: nn.Module) -> None:
        from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

        super().__init__()
        self.module = TorchExportableModuleWithStaticCache(model)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.module(input_ids=tokens, cache_position=position)


def random_tokens(*size: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, size)


def inputs_of(shapes: Shapes) -> tuple[torch.Tensor, ...]:
    """Random values for arguments of those names; a mask hides the end of the last text."""
    values = []
    for key, shape in shapes.items():
        if key == "attention_mask":
            values.append(torch.ones(shape, dtype=torch.long))
            values[-1][-1, 8:] = 0
        else:
            values.append(random_tokens(*shape) if key.endswith("ids") else torch.randn(shape))
    return tuple(values)


def of(
    model: str,
    config: dict[str, Any],
    shapes: Shapes,
    fields: tuple[str, ...],
    *,
    part: str | None = None,
    dtype: torch.dtype = torch.float32,
    sizes: dict[int, Any] | None = None,
    again: tuple[int, ...] = (),
    **options: Any,
) -> Maker:
    """Return a maker of a case.

    Args:
        model: Name of the class.
        config: Fields of its configuration.
        shapes: Shapes of its arguments, by name.
        fields: What of its result is returned.
        part: Attribute of the model that is taken instead of the whole.
        dtype: Of weights and inputs.
        sizes: Dynamic sizes of each argument.
        again: Shape of all arguments of a second call.
        options: Further fields of ``Case``.
    """

    def make() -> Case:
        cls = getattr(tf, model)
        made = cls(cls.config_class(**config))
        module = Fields(getattr(made, part) if part else made, tuple(shapes), fields).to(dtype)
        given = tuple(t.to(dtype) if t.is_floating_point() else t for t in inputs_of(shapes))
        calls = (inputs_of(dict.fromkeys(shapes, again)),) if again else ()
        dynamic = (tuple(sizes for _ in shapes),) if sizes else None
        return Case(module, given, dynamic, calls, **options)

    return make


def image(model: str, config: dict[str, Any], *fields: str, **options: Any) -> Maker:
    shapes = {"pixel_values": (1, 3, 32, 32)}
    return of(model, config, shapes, fields or ("logits",), **options)


def causal(name: str, config: dict[str, Any] = TEXT, **more: Any) -> Maker:
    def make() -> Case:
        model = tf.AutoModelForCausalLM.from_config(getattr(tf, f"{name}Config")(**config, **more))
        length = Dim("length", min=2, max=60)
        calls = ((random_tokens(1, 37),),)
        return Case(Decoder(model), (random_tokens(1, 12),), ({1: length},), calls)

    return make


def grouped(model: str, **more: Any) -> Maker:
    return causal(model, {**TEXT, "num_key_value_heads": 2} | more)


def llama_past() -> Case:
    """One token a call; keys and values come in and go out, longer each time."""
    # torch.export cannot prove its own stride guards for grouped heads with a dynamic past.
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**TEXT))
    past, more = (tuple(torch.randn(1, 4, n, 8) for _ in range(2)) for n in (6, 31))
    length = Dim("past", min=2, max=60)
    return Case(
        PastTensors(model),
        (random_tokens(1, 1), *past),
        (None, tuple({2: length} for _ in past)),
        ((random_tokens(1, 1), *more),),
    )


def llama_static_cache() -> Case:
    """A prompt of any length, then a token a call."""
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**TEXT, num_key_value_heads=2)).eval()
    model.generation_config = tf.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=64,
        cache_config={"batch_size": 1, "max_cache_len": 64, "device": "cpu"},
    )
    length = Dim("length", min=1, max=32)
    steps = tuple((random_tokens(1, 1), torch.tensor([at])) for at in range(5, 12))
    prompt = (random_tokens(1, 5), torch.arange(5))
    return Case(StaticCache(model), prompt, ({1: length}, {0: length}), steps, strict=True)


def mamba() -> Case:
    config = tf.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, state_size=4
    )
    return Case(Decoder(tf.MambaForCausalLM(config)), (random_tokens(1, 6),))


CLIP = {
    "text_config": {**PLAIN, "eos_token_id": 2, "bos_token_id": 1},
    "vision_config": VISION,
    "projection_dim": 16,
}
HIDDEN = ("last_hidden_state", "pooler_output")
TOKENS: Shapes = {"input_ids": (2, 12)}
MASKED: Shapes = {**TOKENS, "attention_mask": (2, 12)}
BOTH: Shapes = {"input_ids": (1, 12), "decoder_input_ids": (1, 5)}

MODELS: dict[str, Maker] = {
    "bert": of(
        *("BertModel", TEXT, MASKED, HIDDEN),
        sizes={0: Dim("batch", max=4), 1: Dim("length", min=2, max=64)},
        again=(1, 33),
        # Torch-TensorRT's gather takes no dynamic shapes.
        left=("aten::gather.default", "aten::expand_copy.default", "aten::slice_copy.Tensor"),
    ),
    "distilbert": of(
        "DistilBertForSequenceClassification",
        {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        *(MASKED, ("logits",)),
    ),
    "roberta": of("RobertaForTokenClassification", TEXT, TOKENS, ("logits",)),
    "deberta": of(
        "DebertaV2Model",
        {**PLAIN, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        *(TOKENS, ENCODED),
    ),
    "t5_encoder": of(
        *("T5EncoderModel", {**T5, "num_layers": 2}, TOKENS, ENCODED),
        sizes={1: Dim("length", min=2, max=40)},
        again=(2, 33),
    ),
    "t5": of(
        "T5ForConditionalGeneration",
        {**T5, "num_layers": 1, "use_cache": False, "decoder_start_token_id": 0},
        *(BOTH, ("logits",)),
    ),
    "bart": of("BartModel", {**TWO_SIDES, "max_position_embeddings": 64}, BOTH, ENCODED),
    "llama_prefill": grouped("Llama"),
    "llama_past": llama_past,
    "llama_static_cache": llama_static_cache,
    "gpt2": causal(
        "GPT2",
        {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64},
    ),
    "gemma": grouped("Gemma", head_dim=8),
    "gemma2": grouped("Gemma2", head_dim=8, query_pre_attn_scalar=8, attn_implementation="eager"),
    "gemma3": grouped("Gemma3Text", head_dim=8, query_pre_attn_scalar=8, sliding_window=8),
    "qwen2": grouped("Qwen2"),
    "qwen3": grouped("Qwen3", head_dim=8),
    "mistral": grouped("Mistral"),
    "phi3": grouped("Phi3", pad_token_id=0),
    "opt": grouped("OPT", ffn_dim=64, word_embed_proj_dim=32),
    "gpt_neox": grouped("GPTNeoX"),
    "bloom": grouped("Bloom", n_layer=1, n_head=4, attn_implementation="eager"),
    "falcon": grouped("Falcon"),
    "mamba": mamba,
    "vit": of("ViTForImageClassification", VISION, {"pixel_values": (2, 3, 32, 32)}, ("logits",)),
    "clip": of(
        *("CLIPModel", CLIP),
        {"input_ids": (2, 9), "pixel_values": (3, 3, 32, 32), "attention_mask": (2, 9)},
        ("logits_per_image", "text_embeds", "image_embeds"),
    ),
    "clip_text": of("CLIPModel", CLIP, {"input_ids": (2, 9)}, HIDDEN, part="text_model"),
    "clip_vision": of(
        *("CLIPModel", CLIP, {"pixel_values": (2, 3, 32, 32)}, HIDDEN), part="vision_model"
    ),
    "swin": image(
        "SwinForImageClassification",
        {
            **{"image_size": 32, "patch_size": 2, "embed_dim": 16, "window_size": 4},
            **{"depths": [2, 2], "num_heads": [2, 4]},
        },
    ),
    "convnext": of(
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [2, 2], "num_stages": 2, "image_size": 32},
        *({"pixel_values": (2, 3, 32, 32)}, ("logits",)),
    ),
    "segformer": image(
        "SegformerForSemanticSegmentation",
        {
            **{"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1]},
            **{"hidden_sizes": [16, 32], "patch_sizes": [7, 3], "strides": [4, 2]},
            **{"num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16},
        },
    ),
    "mobilenet_v2": image(
        "MobileNetV2ForImageClassification", {"image_size": 32, "depth_multiplier": 0.35}
    ),
    "resnet_hf": image("ResNetForImageClassification", RESNET),
    # Full depth, an eighth of the width.
    "resnet50": of(
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [32, 64, 128, 256], "depths": [3, 4, 6, 3]},
        *({"pixel_values": (2, 3, 64, 64)}, ("logits",)),
        sizes={0: Dim("batch", max=4)},
        again=(3, 3, 64, 64),
    ),
    "resnet_bf16": image("ResNetForImageClassification", RESNET, dtype=torch.bfloat16, atol=1e-1),
    "dinov2": image("Dinov2Model", VISION, *ENCODED),
    "sam_vision": image(
        "SamVisionModel",
        {
            **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"image_size": 32, "patch_size": 4, "window_size": 4, "global_attn_indexes": [1]},
            **{"output_channels": 8, "mlp_dim": 32},
        },
        *ENCODED,
    ),
    "yolos": image(
        "YolosForObjectDetection",
        {**VISION, "image_size": [32, 32], "num_detection_tokens": 5},
        *("logits", "pred_boxes"),
    ),
    "whisper_encoder": of(
        *("WhisperModel", WHISPER, {"input_features": (1, 16, 100)}, ENCODED), part="encoder"
    ),
    "whisper": of(
        "WhisperModel",
        WHISPER,
        {"input_features": (1, 16, 100), "decoder_input_ids": (1, 6)},
        ENCODED,
    ),
    "wav2vec2": of(
        "Wav2Vec2Model",
        {**SOUND, "attn_implementation": "sdpa"},
        *({"input_values": (1, 400)}, ENCODED),
    ),
    "conformer": of(
        "Wav2Vec2ConformerModel",
        {**SOUND, "position_embeddings_type": "rotary"},
        *({"input_values": (1, 400)}, ENCODED),
    ),
}
