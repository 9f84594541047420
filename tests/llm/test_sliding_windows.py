"""The rows of a sliding window's cache: no call overwrites what its tokens see."""

from __future__ import annotations

import random

import pytest
import torch

from tests.support.programs.language_models import make_model
from trt_et.llm.decoder import make_decoder
from trt_et.llm.sliding_windows import WindowPositions, window_rows


@pytest.mark.parametrize(("window", "max_prompt"), [(1, 1), (4, 1), (1, 4), (5, 3), (3, 8)])
def test_every_token_finds_the_rows_of_its_window(window, max_prompt):
    places = WindowPositions(window, max_prompt)
    rows = torch.full((window_rows(window, max_prompt),), -1)  # The token in each row.
    choose, start = random.Random(0), 0
    for call in range(300):
        if call % 60 == 0:
            start = 0  # Another text.
        count = choose.randint(1, max_prompt)
        written, positions = places(torch.tensor(start), count)
        rows[written] = call // 60 * 10**6 + start + torch.arange(count)
        seen = range(max(0, start - window + 1), start + count)
        for position in seen:
            (found,) = (positions == position).nonzero()
            assert rows[found] == call // 60 * 10**6 + position
        # The causal mask hides all other rows.
        assert not ((positions >= start + count) & (positions < 10**6)).any()
        start += count


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "layers", "kinds"),
    [
        ("llama", {}, 1),
        ("mistral", {}, 1),
        ("gemma3", {"layer_types": ["sliding_attention", "full_attention"] * 2}, 2),
    ],
)
def test_layers_of_one_kind_write_the_same_rows(name, layers, kinds):
    decoder = make_decoder(make_model(name, num_hidden_layers=4, **layers), 64, 4)
    with torch.no_grad():
        program = torch.export.export(
            decoder, (torch.tensor([[1, 2, 3]]), torch.tensor([5])), strict=True
        )
    caches = program.graph_signature.inputs_to_buffers
    writes = [
        node
        for node in program.graph.find_nodes(
            op="call_function", target=torch.ops.aten.index_copy_.default
        )
        if "_cache_" in caches.get(node.args[0].name, "")
    ]
    assert len(writes) == 2 * 4
    assert len({node.args[2] for node in writes}) == kinds
