"""Diffusion policy: a U-Net denoises the actions, from features of the last two observations."""

from __future__ import annotations

import torch
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
from torch import nn

from robot_policies import CAMERAS, JOINTS, Method, Policy, as_lerobot, camera_image
from robot_policies.features import features

STEPS = 4


class Denoiser(nn.Module):
    """The features of the last observations, and the actions, stay in buffers."""

    def __init__(self, policy: DiffusionPolicy, width: int) -> None:
        super().__init__()
        self.config = policy.config
        self.model = policy.diffusion
        scheduler = self.model.noise_scheduler
        scheduler.set_timesteps(STEPS)
        alphas = scheduler.alphas_cumprod[scheduler.timesteps]
        self.register_buffer("times", scheduler.timesteps)
        self.register_buffer("alphas", alphas)
        last = scheduler.final_alpha_cumprod.reshape(1)
        self.register_buffer("next_alphas", torch.cat([alphas[1:], last]))
        self.register_buffer("features", torch.zeros(1, self.config.n_obs_steps * width))
        self.register_buffer("actions", torch.zeros(1, self.config.horizon, JOINTS))

    def encode(
        self, top: torch.Tensor, wrist: torch.Tensor, joints: torch.Tensor, noise: torch.Tensor
    ) -> None:
        """Put the features of an observation behind the earlier ones, and start from noise."""
        images = torch.stack([as_lerobot(top), as_lerobot(wrist)], 1)
        new = self.model._prepare_global_conditioning(
            {"observation.images": images[None], "observation.state": joints[None]}
        )
        self.features.copy_(torch.cat([self.features[:, new.shape[1] :], new], 1))
        # The engine has to write the actions; an input alone would be copied on the host.
        self.actions.copy_(noise * self.model.noise_scheduler.init_noise_sigma)

    def denoise(self, step: torch.Tensor) -> torch.Tensor:
        """Make a step of DDIM (eta = 0, as lerobot uses it), and return the actions to execute."""
        alpha, next_alpha = self.alphas[step], self.next_alphas[step]
        noise = self.model.unet(self.actions, self.times[step], global_cond=self.features)
        clean = (self.actions - (1 - alpha).sqrt() * noise) / alpha.sqrt()
        clean = clean.clamp(-self.config.clip_sample_range, self.config.clip_sample_range)
        self.actions.copy_(next_alpha.sqrt() * clean + (1 - next_alpha).sqrt() * noise)
        self.features.copy_(self.features)  # Otherwise they would be constants of this method.
        first = self.config.n_obs_steps - 1
        return self.actions[:, first : first + self.config.n_action_steps]


def make() -> Policy:
    """A ResNet-18 and a U-Net of two levels."""
    config = DiffusionConfig(
        **features(),
        crop_shape=(84, 84),
        down_dims=(32, 64),
        diffusion_step_embed_dim=32,
        noise_scheduler_type="DDIM",
        num_inference_steps=STEPS,
    )
    policy = DiffusionPolicy(config).eval()
    noise = torch.randn(1, config.horizon, JOINTS)
    seen = [
        (*(camera_image() for _ in CAMERAS), torch.randn(1, JOINTS), noise)
        for _ in range(config.n_obs_steps)
    ]
    images = [torch.stack([as_lerobot(top), as_lerobot(wrist)], 1) for top, wrist, *_ in seen]
    batch = {
        "observation.images": torch.stack(images, 1),
        "observation.state": torch.stack([joints for *_, joints, _ in seen], 1),
    }
    expected = policy.diffusion.generate_actions(batch, noise=noise)
    width = policy.diffusion._prepare_global_conditioning(batch).shape[1] // config.n_obs_steps
    module = Denoiser(policy, width)
    encode, denoise = Method(module, module.encode), Method(module, module.denoise)
    return Policy(encode, seen, expected, denoise, STEPS)
