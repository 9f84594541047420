"""Models of images of the ``transformers`` package, CLIP's text side among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

from tests.support.zoo.case import Case
from tests.support.zoo.transformers_configs import TEXT, VISION, Fields, random_image, random_tokens

__all__ = ["MODELS"]


def vit() -> Case:
    config = tf.ViTConfig(**VISION)
    return Case(
        Fields(tf.ViTForImageClassification(config), ("pixel_values",), ("logits",)),
        (random_image(2, 3, 32, 32),),
    )


def _clip() -> Any:
    text = {k: v for k, v in TEXT.items() if k != "attn_implementation"}
    return tf.CLIPModel(
        tf.CLIPConfig(
            text_config={**text, "eos_token_id": 2, "bos_token_id": 1},
            vision_config=VISION,
            projection_dim=16,
        )
    )


def clip() -> Case:
    keys = ("input_ids", "pixel_values", "attention_mask")
    tokens = random_tokens(2, 9)
    tokens[:, -1] = 2
    return Case(
        Fields(_clip(), keys, ("logits_per_image", "text_embeds", "image_embeds")),
        (tokens, random_image(3, 3, 32, 32), torch.ones(2, 9, dtype=torch.long)),
    )


def clip_text() -> Case:
    tokens = random_tokens(2, 9)
    tokens[:, -1] = 2
    fields = ("last_hidden_state", "pooler_output")
    return Case(Fields(_clip().text_model, ("input_ids",), fields), (tokens,))


def clip_vision() -> Case:
    fields = ("last_hidden_state", "pooler_output")
    return Case(
        Fields(_clip().vision_model, ("pixel_values",), fields), (random_image(2, 3, 32, 32),)
    )


def swin() -> Case:
    config = tf.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return Case(
        Fields(tf.SwinForImageClassification(config), ("pixel_values",), ("logits",)),
        (random_image(1, 3, 32, 32),),
    )


def convnext() -> Case:
    config = tf.ConvNextConfig(hidden_sizes=[8, 16], depths=[2, 2], num_stages=2, image_size=32)
    return Case(
        Fields(tf.ConvNextForImageClassification(config), ("pixel_values",), ("logits",)),
        (random_image(2, 3, 32, 32),),
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
        (random_image(1, 3, 32, 32),),
    )


def mobilenet_v2() -> Case:
    config = tf.MobileNetV2Config(image_size=32, depth_multiplier=0.35)
    return Case(
        Fields(tf.MobileNetV2ForImageClassification(config), ("pixel_values",), ("logits",)),
        (random_image(1, 3, 32, 32),),
    )


def resnet_hf() -> Case:
    config = tf.ResNetConfig(hidden_sizes=[8, 16], depths=[1, 1], embedding_size=8)
    return Case(
        Fields(tf.ResNetForImageClassification(config), ("pixel_values",), ("logits",)),
        (random_image(1, 3, 32, 32),),
    )


def dinov2() -> Case:
    config = tf.Dinov2Config(**VISION)
    return Case(
        Fields(tf.Dinov2Model(config), ("pixel_values",), ("last_hidden_state",)),
        (random_image(1, 3, 32, 32),),
    )


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
        (random_image(1, 3, 32, 32),),
    )


def yolos() -> Case:
    config = tf.YolosConfig(**{**VISION, "image_size": [32, 32]}, num_detection_tokens=5)
    return Case(
        Fields(tf.YolosForObjectDetection(config), ("pixel_values",), ("logits", "pred_boxes")),
        (random_image(1, 3, 32, 32),),
    )


MODELS: dict[str, Callable[[], Case]] = {
    "vit": vit,
    "clip": clip,
    "clip_text": clip_text,
    "clip_vision": clip_vision,
    "swin": swin,
    "convnext": convnext,
    "segformer": segformer,
    "mobilenet_v2": mobilenet_v2,
    "resnet_hf": resnet_hf,
    "dinov2": dinov2,
    "yolos": yolos,
    "sam_vision": sam_vision,
}
