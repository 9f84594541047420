"""SmolVLA: an action expert denoises the actions, and attends to a VLM's keys and values."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import torch
from lerobot.policies.smolvla import modeling_smolvla, smolvlm_with_expert
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
from torch import nn
from transformers import SmolVLMConfig

from robot_policies import CAMERAS, JOINTS, Method, Policy, as_lerobot, camera_image
from robot_policies.features import features

SIZE, PATCH, TOKENS, LAYERS = 64, 16, 8, 4


class PatchEmbeddings(nn.Module):
    """The embeddings of whole images: their positions do not depend on the data."""

    def __init__(self, embeddings: nn.Module) -> None:
        super().__init__()
        self.patch_embedding = embeddings.patch_embedding
        found: list[torch.Tensor] = []
        hook = embeddings.position_embedding.register_forward_hook(
            lambda module, inputs, output: found.append(output)
        )
        side = SIZE // PATCH
        embeddings(torch.zeros(1, 3, SIZE, SIZE), torch.ones(1, side, side, dtype=torch.bool))
        hook.remove()
        self.register_buffer("positions", found[0])

    def forward(self, pixel_values: torch.Tensor, **_: torch.Tensor) -> torch.Tensor:
        """Return [images, patches, width]."""
        return self.patch_embedding(pixel_values).flatten(2).transpose(1, 2) + self.positions


class Expert(nn.Module):
    """The VLM's keys and values, and the actions, stay in buffers."""

    def __init__(self, policy: SmolVLAPolicy, prefix: int) -> None:
        super().__init__()
        self.policy = policy
        self.model = policy.model
        config, text = policy.config, self.model.vlm_with_expert.config.text_config
        cache = (LAYERS, 2, 1, prefix, text.num_key_value_heads, text.head_dim)
        self.register_buffer("cache", torch.zeros(cache))
        self.register_buffer("mask", torch.zeros(1, prefix, dtype=torch.bool))
        self.register_buffer("actions", torch.zeros(1, config.chunk_size, config.max_action_dim))
        times = 1 - torch.arange(config.num_steps) / config.num_steps
        width = self.model.vlm_with_expert.expert_hidden_size
        times = modeling_smolvla.create_sinusoidal_pos_embedding(
            times, width, config.min_period, config.max_period, times.device
        )
        self.register_buffer("times", times.float())  # lerobot computes them in float64.

    def encode(self, *observation: torch.Tensor) -> None:
        """Fill the cache from images, an instruction and joints, and start from noise."""
        top, wrist, tokens, token_mask, joints, noise = observation
        images, masks, state = prepared(self.policy, top, wrist, joints)
        embedded, mask, order = self.model.embed_prefix(images, masks, tokens, token_mask, state)
        _, cache = self.model.vlm_with_expert(
            attention_mask=modeling_smolvla.make_att_2d_masks(mask, order),
            position_ids=torch.cumsum(mask, 1) - 1,
            inputs_embeds=[embedded, None],
            use_cache=True,
            fill_kv_cache=True,
        )
        layers = [torch.stack(list(cache[index].values())) for index in range(LAYERS)]
        self.cache.copy_(torch.stack(layers))
        self.mask.copy_(mask)
        # The engine has to write the actions; an input alone would be copied on the host.
        self.actions.copy_(noise * 1.0)

    def denoise(self, step: torch.Tensor) -> torch.Tensor:
        """Make a step of flow matching, and return the actions."""
        cache = {
            index: {"key_states": layer[0], "value_states": layer[1]}
            for index, layer in enumerate(self.cache)
        }
        with mock.patch.object(
            modeling_smolvla, "create_sinusoidal_pos_embedding", lambda time, *_, **__: time
        ):
            velocity = self.model.denoise_step(self.mask, cache, self.actions, self.times[step])
        self.actions.add_(velocity, alpha=-1 / self.policy.config.num_steps)
        for kept in (self.cache, self.mask):
            kept.copy_(kept)  # Otherwise it would be a constant of this method.
        return self.actions[:, :, :JOINTS]


def prepared(
    policy: SmolVLAPolicy, top: torch.Tensor, wrist: torch.Tensor, joints: torch.Tensor
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """Return the images, their masks and the joints as lerobot's model takes them."""
    images = {
        f"observation.images.{name}": as_lerobot(image)
        for name, image in zip(CAMERAS, (top, wrist), strict=True)
    }
    state = policy.prepare_state({"observation.state": joints})
    return (*policy.prepare_images(images), state)


def make_policy() -> SmolVLAPolicy:
    """Four layers of a VLM and of an expert, without a download."""
    text = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": LAYERS}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    vlm = SmolVLMConfig(
        text_config={**text, **heads, "vocab_size": 256, "pad_token_id": 0},
        vision_config={**vision, "num_hidden_layers": 2, "image_size": SIZE, "patch_size": PATCH},
        scale_factor=2,
    )
    tokenizer = SimpleNamespace(fake_image_token_id=1, global_image_token_id=2)
    config = SmolVLAConfig(
        **features(),
        chunk_size=10,
        n_action_steps=10,
        num_steps=4,
        num_vlm_layers=LAYERS,
        resize_imgs_with_padding=(SIZE, SIZE),
    )
    auto = smolvlm_with_expert
    processor = SimpleNamespace(tokenizer=tokenizer)
    with (
        mock.patch.object(auto.AutoConfig, "from_pretrained", return_value=vlm),
        mock.patch.object(auto.AutoProcessor, "from_pretrained", return_value=processor),
    ):
        return SmolVLAPolicy(config).eval()


def make() -> Policy:
    """Two images, an instruction of five tokens, and four steps."""
    policy = make_policy()
    model, config = policy.model, policy.config
    top, wrist = (camera_image() for _ in CAMERAS)
    tokens, joints = torch.randint(256, (1, TOKENS)), torch.randn(1, JOINTS)
    token_mask = torch.arange(TOKENS)[None] < 5
    noise = torch.randn(1, config.chunk_size, config.max_action_dim)
    images, masks, state = prepared(policy, top, wrist, joints)
    prefix = model.embed_prefix(images, masks, tokens, token_mask, state)[1].shape[1]
    expected = model.sample_actions(images, masks, tokens, token_mask, state, noise=noise)
    vision = model.vlm_with_expert.get_vlm_model().vision_model
    vision.embeddings = PatchEmbeddings(vision.embeddings)
    expert = Expert(policy, prefix)
    encode, denoise = Method(expert, expert.encode), Method(expert, expert.denoise)
    observation = (top, wrist, tokens, token_mask, joints, noise)
    return Policy(encode, [observation], expected[..., :JOINTS], denoise, config.num_steps)
