"""What an engine stores of a layer norm and of a bias: each number once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.lowering import blobs, lower
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.kv_cache_models import recorded
from tests.support.programs.quantized_networks import needs_rtx
from trt_et.engine_info import decode_blob

pytestmark = needs_rtx
WIDTH = 64


class Block(nn.Module):
    """The layers of a transformer that add or multiply by a weight for each channel."""

    def __init__(self, *, is_affine: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=is_affine)
        self.queries, self.result = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        queries = self.queries(self.norm(x)).unflatten(-1, (2, -1)).transpose(1, 2)
        return x + self.result(queries.transpose(1, 2).flatten(2))


def model(*, is_affine: bool = True) -> nn.Module:
    torch.manual_seed(0)
    made = Block(is_affine=is_affine).eval()
    for weight in made.parameters():
        nn.init.normal_(weight)
    return made


@pytest.mark.parametrize("is_affine", [True, False])
def test_the_size_of_an_engine_does_not_depend_on_the_number_of_tokens(is_affine):
    sizes = []
    for tokens in (16, 1024):
        program = torch.export.export(model(is_affine=is_affine), (torch.randn(1, tokens, WIDTH),))
        (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
        sizes.append(len(decode_blob(blob).engine))
    repeated = 4 * 1024 * WIDTH
    assert abs(sizes[1] - sizes[0]) < repeated / 4


@pytest.mark.parametrize(("is_affine", "tokens"), [(True, 1), (True, 5), (False, 5)])
def test_the_network_computes_what_the_program_does(is_affine, tokens):
    inputs = (torch.randn(2, tokens, WIDTH),)
    (request,) = recorded(model(is_affine=is_affine), inputs)[0]
    assert compare(request, *inputs).outcome == "equal"
