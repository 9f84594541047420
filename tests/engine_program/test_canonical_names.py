"""Equal partitions have equal engines, wherever they are and whatever the names of their nodes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import blobs, lower


@pytest.mark.parametrize("builder", ["reference", "tensorrt_rtx"])
def test_an_engine_that_is_needed_twice_is_stored_once(builder):
    class Repeated(nn.Module):
        """One block, used twice, with something between that no engine holds."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.norm = nn.LayerNorm(8)

        def block(self, x):
            return self.norm(torch.relu(self.first(x)) + x)

        def forward(self, x):
            return self.block(torch.cumsum(self.block(x), 1))

    program = torch.export.export(Repeated().eval(), (torch.randn(2, 8),))
    pte = lower(program, builder=builder, excluded_ops=["aten.cumsum"])
    first, second = blobs(pte)
    assert first == second
    assert pte.count(first) == 1
