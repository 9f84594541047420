"""Importing this imports and caches what a first lowering does, for processes that fork."""

from __future__ import annotations

import gc

import executorch.runtime  # noqa: F401
import torch

from tests.support.lowering import lower
from tests.support.quicker_export import make_exports_quicker
from trt_et.conversion.torch_tensorrt_import import is_importable

is_importable()
make_exports_quicker()
lower(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))  # Draws no random number.
# A child that ends looks at every other object, which copies the pages of them all.
gc.freeze()
