"""Detect objects: SSDLite of torchvision in one program, from an image file to boxes.

    python examples/detector.py [image.jpg] [--builder tensorrt_rtx] [--size 320]

The backbone and the heads are an engine; ``trt_et.ops.batched_nms`` runs on the CPU. The
weights are random, so the boxes mean nothing; they are those that torchvision finds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torchvision.io import ImageReadMode, decode_image, write_png
from torchvision.models.detection import ssdlite320_mobilenet_v3_large
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.ssd import SSD
from torchvision.transforms.functional import resize

import trt_et.runtime
from trt_et import TensorRTPartitioner
from trt_et.ops import batched_nms

CLASSES = 4  # Behind the background.
Detections = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Detector(nn.Module):
    """What an SSD model does between its resized images and its detections, in fixed sizes."""

    def __init__(self, model: SSD, size: int) -> None:
        super().__init__()
        self.model = model
        self.size = size
        images = torch.zeros(1, 3, size, size)
        features = list(model.backbone(images).values())
        (anchors,) = model.anchor_generator(ImageList(images, [(size, size)]), features)
        # As centers and sizes.
        self.register_buffer("centers", (anchors[:, :2] + anchors[:, 2:]) / 2)
        self.register_buffer("sizes", anchors[:, 2:] - anchors[:, :2])

    def forward(self, images: torch.Tensor) -> Detections:
        """Boxes in pixels, scores, classes from 0, and counts of images [batch, 3, size, size]."""
        heads = self.model.head(list(self.model.backbone(2 * images - 1).values()))
        boxes = self.decode(heads["bbox_regression"])
        scores = heads["cls_logits"].softmax(-1)[..., 1:]  # Without the background.
        model = self.model
        return batched_nms(
            boxes, scores, model.nms_thresh, model.score_thresh, model.detections_per_img
        )

    def decode(self, offsets: torch.Tensor) -> torch.Tensor:
        """Corners, from the offsets [batch, n, 4] to the anchors."""
        x, y, width, height = self.model.box_coder.weights
        moves = offsets[..., :2] / torch.tensor([x, y])
        growth = (offsets[..., 2:] / torch.tensor([width, height])).exp()
        center, half = self.centers + moves * self.sizes, growth * self.sizes / 2
        return torch.cat([center - half, center + half], -1).clamp(0, self.size)


def make_model() -> SSD:
    """SSDLite with random weights, and batch norms that have seen noise."""
    torch.manual_seed(0)
    # As many candidates as there are anchors: batched_nms has no limit of its own.
    model = ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=1 + CLASSES, topk_candidates=10_000
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # The statistics of the next batch.
            module.reset_running_stats()
    model.head(list(model.backbone(2 * torch.rand(4, 3, 160, 160) - 1).values()))
    return model.eval()


def read_image(path: Path, size: int) -> torch.Tensor:
    """Return the image in a file, of any format that torchvision reads, as [1, 3, size, size]."""
    pixels = decode_image(str(path), ImageReadMode.RGB)
    return resize(pixels, [size, size]).div(255).unsqueeze(0).contiguous()


def run_in_python(file: Path, images: torch.Tensor, cuda: str) -> Detections:
    """Return the outputs of the stock Python runtime."""
    trt_et.runtime.load(cuda=cuda)
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(file)
    outputs = program.load_method("forward").execute([images])
    return tuple(tensor.clone() for tensor in outputs)  # type: ignore[return-value]


def run_in_runner(file: Path, images: torch.Tensor, like: Detections, cuda: str) -> Detections:
    """Return the outputs of executor_runner, which have the shapes of others."""
    array = file.with_name("image.npy")
    np.save(array, images.numpy())
    command = [trt_et.runtime.runner_path(), "--model_path", file, "--cuda", cuda]
    command += ["--inputs", array, "--output_file", file.with_suffix(""), "--print_output", "none"]
    subprocess.run(list(map(str, command)), check=True)
    raw = [bytearray(file.with_name(f"{file.stem}-{i}.bin").read_bytes()) for i in range(len(like))]
    outputs = (
        torch.frombuffer(data, dtype=tensor.dtype).reshape(tensor.shape)
        for data, tensor in zip(raw, like, strict=True)
    )
    return tuple(outputs)  # type: ignore[return-value]


def are_torchvisions(found: Detections, model: SSD, images: torch.Tensor) -> bool:
    """Return whether detections are those of torchvision's model, in the order of the scores."""
    size = images.shape[-1]
    model.transform.fixed_size = (size, size)
    (wanted,) = model(list(images))
    boxes, scores, classes, count = (tensor[0] for tensor in found)
    if int(count) != len(wanted["scores"]):
        return False
    boxes, scores, classes = boxes[:count], scores[:count], classes[:count]
    # Scores that differ in the last bits can change places: each needs a partner.
    near = (boxes[:, None] - wanted["boxes"]).abs().amax(-1) < 0.05
    near &= (scores[:, None] - wanted["scores"]).abs() < 1e-4
    near &= classes[:, None] + 1 == wanted["labels"]
    return bool(near.any(0).all() and near.any(1).all())


def main() -> int:
    """Export, run twice, compare; 0 if torchvision finds the same boxes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("image", type=Path, nargs="?")
    parser.add_argument("--builder", default="reference")
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--output", type=Path, default=Path("detector"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.image is None:
        arguments.image = arguments.output / "noise.png"
        write_png(torch.randint(256, (3, 240, 320), dtype=torch.uint8), str(arguments.image))

    model = make_model()
    images = read_image(arguments.image, arguments.size)
    partitioner = TensorRTPartitioner(builder=arguments.builder)
    exported = torch.export.export(Detector(model, arguments.size).eval(), (images,))
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    file = arguments.output / "detector.pte"
    with file.open("wb") as stream:
        manager.to_executorch().write_to_file(stream)
    print(partitioner.report)

    cuda = "simulated:1" if arguments.builder == "reference" else "real"
    found = run_in_python(file, images, cuda)
    same = are_torchvisions(found, model, images)
    again = run_in_runner(file, images, found, cuda)
    boxes, scores, classes, count = (tensor[0] for tensor in found)
    for index in range(min(3, int(count))):
        corners = ", ".join(f"{corner:.0f}" for corner in boxes[index].tolist())
        print(f"class {int(classes[index])}, score {float(scores[index]):.3f}, box {corners}")
    print(f"{int(count)} boxes; torchvision finds {'the same' if same else 'others'}")
    equal = all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    print(f"executor_runner finds {'the same' if equal else 'others'}")
    return 0 if same and equal else 1


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
