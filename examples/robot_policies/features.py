"""What the robot of the examples sees and does, as lerobot's configurations have it."""

from __future__ import annotations

from typing import Any

from lerobot.configs.types import FeatureType, PolicyFeature

from robot_policies import CAMERAS, JOINTS


def features(size: int = 96) -> dict[str, Any]:
    """Return the features of two cameras, of square images, and of the joints."""
    images = {
        f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, size, size))
        for name in CAMERAS
    }
    joints = {"observation.state": PolicyFeature(FeatureType.STATE, (JOINTS,))}
    actions = {"action": PolicyFeature(FeatureType.ACTION, (JOINTS,))}
    return {"input_features": {**images, **joints}, "output_features": actions, "device": "cpu"}
