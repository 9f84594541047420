"""Models of the ``transformers`` package: their real code, small configurations, random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from torch import nn
from torch.export import Dim

from tests.support.zoo.case import Case

__all__ = ["MODELS"]

VOCABULARY = 64
_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "attn_implementation": "sdpa",
}
_VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def _tokens(*size: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, size)


def _image(*size: int) -> torch.Tensor:
    return torch.randn(*size)


class Fields(nn.Module):
    """Calls a model by keyword and returns the named fields of what it returns."""

    def __init__(self, model: nn.Module, keys: tuple[str, ...], fields: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.keys = keys
        self.fields = fields

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.model(**dict(zip(self.keys, inputs, strict=True)))
        return tuple(getattr(result, field) for field in self.fields)


class Decoder(nn.Module):
    """A causal language model without its cache: logits of every token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


class PastTensors(nn.Module):
    """A causal language model that takes its keys and values, and returns them longer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache = tf.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
        kept = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return (result.logits, *kept)


def bert() -> Case:
    config = tf.BertConfig(**_TEXT)
    keys, fields = ("input_ids", "attention_mask"), ("last_hidden_state", "pooler_output")
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    batch, length = Dim("batch", max=4), Dim("length", min=2, max=64)
    return Case(
        Fields(tf.BertModel(config), keys, fields),
        (_tokens(2, 12), mask),
        (({0: batch, 1: length}, {0: batch, 1: length}),),
        ((_tokens(1, 33), torch.ones(1, 33, dtype=torch.long)),),
        # Torch-TensorRT's gather takes no dynamic shapes.
        left=("aten::gather.default", "aten::expand_copy.default", "aten::slice_copy.Tensor"),
    )


def distilbert() -> Case:
    config = tf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64
    )
    model = tf.DistilBertForSequenceClassification(config)
    keys = ("input_ids", "attention_mask")
    return Case(
        Fields(model, keys, ("logits",)), (_tokens(2, 12), torch.ones(2, 12, dtype=torch.long))
    )


def roberta() -> Case:
    config = tf.RobertaConfig(**_TEXT)
    return Case(
        Fields(tf.RobertaForTokenClassification(config), ("input_ids",), ("logits",)),
        (_tokens(2, 12),),
    )


def deberta() -> Case:
    config = tf.DebertaV2Config(
        **{k: v for k, v in _TEXT.items() if k != "attn_implementation"},
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
    )
    return Case(
        Fields(tf.DebertaV2Model(config), ("input_ids",), ("last_hidden_state",)), (_tokens(2, 12),)
    )


def vit() -> Case:
    config = tf.ViTConfig(**_VISION)
    return Case(
        Fields(tf.ViTForImageClassification(config), ("pixel_values",), ("logits",)),
        (_image(2, 3, 32, 32),),
    )


def _llama(layers: int) -> nn.Module:
    config = {**_TEXT, "num_hidden_layers": layers, "num_key_value_heads": 2}
    return tf.LlamaForCausalLM(tf.LlamaConfig(**config))


def llama_prefill() -> Case:
    length = Dim("length", min=2, max=60)
    return Case(
        Decoder(_llama(1)),
        (_tokens(1, 12),),
        ({1: length},),
        ((_tokens(1, 7),), (_tokens(1, 60),)),
    )


def llama_past() -> Case:
    """One token a call; keys and values come in and go out, longer each time."""
    # torch.export cannot prove its own stride guards for grouped heads with a dynamic past.
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**_TEXT))
    past = tuple(torch.randn(1, 4, 6, 8) for _ in range(2))
    length = Dim("past", min=2, max=60)
    more = tuple(torch.randn(1, 4, 31, 8) for _ in range(2))
    return Case(
        PastTensors(model),
        (_tokens(1, 1), *past),
        (None, tuple({2: length} for _ in past)),
        ((_tokens(1, 1), *more),),
    )


def llama_static_cache() -> Case:
    """Keys and values in buffers: a prompt of any length, then a token a call."""
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model = _llama(1).eval()
    model.generation_config = tf.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=64,
        cache_config={"batch_size": 1, "max_cache_len": 64, "device": "cpu"},
    )
    module = TorchExportableModuleWithStaticCache(model)
    length = Dim("length", min=1, max=32)
    prompt = (_tokens(1, 5), torch.arange(5))
    steps = tuple((_tokens(1, 1), torch.tensor([at])) for at in range(5, 12))
    return Case(
        _Static(module),
        prompt,
        ({1: length}, {0: length}),
        steps,
        strict=True,
    )


class _Static(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.module(input_ids=tokens, cache_position=position)


def whisper_encoder() -> Case:
    config = tf.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        encoder_attention_heads=4,
        decoder_layers=1,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=50,
        pad_token_id=0,
    )
    encoder = tf.WhisperModel(config).get_encoder()
    return Case(
        Fields(encoder, ("input_features",), ("last_hidden_state",)), (torch.randn(1, 16, 100),)
    )


def whisper() -> Case:
    config = tf.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        encoder_attention_heads=4,
        decoder_layers=1,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=50,
        pad_token_id=0,
        use_cache=False,
    )
    keys = ("input_features", "decoder_input_ids")
    return Case(
        Fields(tf.WhisperModel(config), keys, ("last_hidden_state",)),
        (torch.randn(1, 16, 100), _tokens(1, 6)),
    )


def _clip() -> Any:
    text = {k: v for k, v in _TEXT.items() if k != "attn_implementation"}
    return tf.CLIPModel(
        tf.CLIPConfig(
            text_config={**text, "eos_token_id": 2, "bos_token_id": 1},
            vision_config=_VISION,
            projection_dim=16,
        )
    )


def clip() -> Case:
    keys = ("input_ids", "pixel_values", "attention_mask")
    tokens = _tokens(2, 9)
    tokens[:, -1] = 2
    return Case(
        Fields(_clip(), keys, ("logits_per_image", "text_embeds", "image_embeds")),
        (tokens, _image(3, 3, 32, 32), torch.ones(2, 9, dtype=torch.long)),
    )


def clip_text() -> Case:
    tokens = _tokens(2, 9)
    tokens[:, -1] = 2
    fields = ("last_hidden_state", "pooler_output")
    return Case(Fields(_clip().text_model, ("input_ids",), fields), (tokens,))


def clip_vision() -> Case:
    fields = ("last_hidden_state", "pooler_output")
    return Case(Fields(_clip().vision_model, ("pixel_values",), fields), (_image(2, 3, 32, 32),))


def gpt2() -> Case:
    config = tf.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=4, n_positions=64)
    length = Dim("length", min=2, max=60)
    return Case(
        Decoder(tf.GPT2LMHeadModel(config)),
        (_tokens(1, 12),),
        ({1: length},),
        ((_tokens(1, 40),),),
    )


def t5_encoder() -> Case:
    config = tf.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
    )
    length = Dim("length", min=2, max=40)
    return Case(
        Fields(tf.T5EncoderModel(config), ("input_ids",), ("last_hidden_state",)),
        (_tokens(2, 12),),
        (({1: length},),),
        ((_tokens(2, 33),),),
    )


def t5() -> Case:
    config = tf.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=1,
        num_heads=4,
        use_cache=False,
        decoder_start_token_id=0,
    )
    keys = ("input_ids", "decoder_input_ids")
    return Case(
        Fields(tf.T5ForConditionalGeneration(config), keys, ("logits",)),
        (_tokens(1, 12), _tokens(1, 5)),
    )


def bart() -> Case:
    config = tf.BartConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        use_cache=False,
    )
    keys = ("input_ids", "decoder_input_ids")
    return Case(
        Fields(tf.BartModel(config), keys, ("last_hidden_state",)), (_tokens(1, 12), _tokens(1, 5))
    )


def swin() -> Case:
    config = tf.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return Case(
        Fields(tf.SwinForImageClassification(config), ("pixel_values",), ("logits",)),
        (_image(1, 3, 32, 32),),
    )


def convnext() -> Case:
    config = tf.ConvNextConfig(hidden_sizes=[8, 16], depths=[2, 2], num_stages=2, image_size=32)
    return Case(
        Fields(tf.ConvNextForImageClassification(config), ("pixel_values",), ("logits",)),
        (_image(2, 3, 32, 32),),
    )


def segformer() -> Case:
    config = tf.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
    )
    return Case(
        Fields(tf.SegformerForSemanticSegmentation(config), ("pixel_values",), ("logits",)),
        (_image(1, 3, 32, 32),),
    )


def mobilenet_v2() -> Case:
    config = tf.MobileNetV2Config(image_size=32, depth_multiplier=0.35)
    return Case(
        Fields(tf.MobileNetV2ForImageClassification(config), ("pixel_values",), ("logits",)),
        (_image(1, 3, 32, 32),),
    )


def resnet_hf() -> Case:
    config = tf.ResNetConfig(hidden_sizes=[8, 16], depths=[1, 1], embedding_size=8)
    return Case(
        Fields(tf.ResNetForImageClassification(config), ("pixel_values",), ("logits",)),
        (_image(1, 3, 32, 32),),
    )


def dinov2() -> Case:
    config = tf.Dinov2Config(**_VISION)
    return Case(
        Fields(tf.Dinov2Model(config), ("pixel_values",), ("last_hidden_state",)),
        (_image(1, 3, 32, 32),),
    )


def wav2vec2() -> Case:
    text = {k: v for k, v in _TEXT.items() if k != "max_position_embeddings"}
    config = tf.Wav2Vec2Config(
        **text,
        conv_dim=[16, 16],
        conv_stride=[5, 2],
        conv_kernel=[10, 3],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    return Case(
        Fields(tf.Wav2Vec2Model(config), ("input_values",), ("last_hidden_state",)),
        (torch.randn(1, 400),),
    )


def conformer() -> Case:
    text = {k: v for k, v in _TEXT.items() if k != "max_position_embeddings"}
    text.pop("attn_implementation")
    config = tf.Wav2Vec2ConformerConfig(
        **text,
        conv_dim=[16, 16],
        conv_stride=[5, 2],
        conv_kernel=[10, 3],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        position_embeddings_type="rotary",
    )
    return Case(
        Fields(tf.Wav2Vec2ConformerModel(config), ("input_values",), ("last_hidden_state",)),
        (torch.randn(1, 400),),
    )


def _causal(name: str, **more: Any) -> Callable[[], Case]:
    def case() -> Case:
        config = getattr(tf, f"{name}Config")(**{**_TEXT, "num_key_value_heads": 2, **more})
        # The text half of a model of several kinds names its configuration only.
        model = getattr(tf, f"{name.removesuffix('Text')}ForCausalLM")(config)
        length = Dim("length", min=2, max=60)
        return Case(Decoder(model), (_tokens(1, 12),), ({1: length},), ((_tokens(1, 37),),))

    return case


def mamba() -> Case:
    config = tf.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, state_size=4
    )
    return Case(Decoder(tf.MambaForCausalLM(config)), (_tokens(1, 6),))


def sam_vision() -> Case:
    config = tf.SamVisionConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=4,
        window_size=4,
        global_attn_indexes=[1],
        output_channels=8,
        mlp_dim=32,
    )
    return Case(
        Fields(tf.SamVisionModel(config), ("pixel_values",), ("last_hidden_state",)),
        (_image(1, 3, 32, 32),),
    )


def yolos() -> Case:
    config = tf.YolosConfig(**{**_VISION, "image_size": [32, 32]}, num_detection_tokens=5)
    return Case(
        Fields(tf.YolosForObjectDetection(config), ("pixel_values",), ("logits", "pred_boxes")),
        (_image(1, 3, 32, 32),),
    )


MODELS: dict[str, Callable[[], Case]] = {
    "bert": bert,
    "vit": vit,
    "llama_prefill": llama_prefill,
    "llama_past": llama_past,
    "llama_static_cache": llama_static_cache,
    "whisper_encoder": whisper_encoder,
    "whisper": whisper,
    "clip": clip,
    "clip_text": clip_text,
    "clip_vision": clip_vision,
    "gpt2": gpt2,
    "t5_encoder": t5_encoder,
    "t5": t5,
    "bart": bart,
    "distilbert": distilbert,
    "roberta": roberta,
    "deberta": deberta,
    "swin": swin,
    "convnext": convnext,
    "segformer": segformer,
    "mobilenet_v2": mobilenet_v2,
    "resnet_hf": resnet_hf,
    "dinov2": dinov2,
    "yolos": yolos,
    "sam_vision": sam_vision,
    "wav2vec2": wav2vec2,
    "conformer": conformer,
    "gemma": _causal("Gemma", head_dim=8),
    "gemma2": _causal("Gemma2", head_dim=8, query_pre_attn_scalar=8, attn_implementation="eager"),
    "gemma3": _causal("Gemma3Text", head_dim=8, query_pre_attn_scalar=8, sliding_window=8),
    "qwen2": _causal("Qwen2"),
    "qwen3": _causal("Qwen3", head_dim=8),
    "mistral": _causal("Mistral"),
    "phi3": _causal("Phi3", pad_token_id=0),
    "opt": _causal("OPT", ffn_dim=64, word_embed_proj_dim=32),
    "gpt_neox": _causal("GPTNeoX"),
    "bloom": _causal("Bloom", n_layer=1, n_head=4, attn_implementation="eager"),
    "falcon": _causal("Falcon"),
    "mamba": mamba,
}
