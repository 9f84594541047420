"""ACT: a chunk of actions from each observation, in one method."""

from __future__ import annotations

import torch
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from torch import nn

from robot_policies import CAMERAS, JOINTS, Method, Policy, as_lerobot, camera_image
from robot_policies.features import features


class ChunkOfActions(nn.Module):
    """lerobot's model, from the cameras' images and the joints [1, joints]."""

    def __init__(self, policy: ACTPolicy) -> None:
        super().__init__()
        self.model = policy.model

    def act(self, top: torch.Tensor, wrist: torch.Tensor, joints: torch.Tensor) -> torch.Tensor:
        """Return actions [1, chunk, joints]."""
        images = [as_lerobot(top), as_lerobot(wrist)]
        actions: torch.Tensor = self.model(
            {"observation.images": images, "observation.state": joints}
        )[0]
        return actions


def make() -> Policy:
    """ACT with a ResNet-18 and two layers."""
    config = ACTConfig(
        **features(),
        chunk_size=10,
        n_action_steps=10,
        dim_model=64,
        n_heads=4,
        dim_feedforward=128,
        n_encoder_layers=2,
        pretrained_backbone_weights=None,
    )
    policy = ACTPolicy(config).eval()
    joints = torch.randn(1, JOINTS)
    images = [camera_image() for _ in CAMERAS]
    batch = {
        f"observation.images.{name}": as_lerobot(image)
        for name, image in zip(CAMERAS, images, strict=True)
    }
    chunk = ChunkOfActions(policy)
    expected = policy.predict_action_chunk({**batch, "observation.state": joints})
    return Policy(Method(chunk, chunk.act), [(*images, joints)], expected)
