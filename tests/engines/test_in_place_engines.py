"""Engines that update caches in place: their keys, and the cache of engines."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from typer.testing import CliRunner

from tests.support.lowering import blobs, lower
from tests.support.programs.kv_cache_models import SHAPE, Cache
from tests.support.programs.kv_cache_updates import ONE, copy_rows, recording, rows
from trt_et import TensorRTPartitioner
from trt_et.cli import app
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.engines import tensorrt_rtx
from trt_et.engines.key import request_digest
from trt_et.inspection import inspect_program


def test_what_may_be_written_in_place_is_part_of_an_engine_key():
    _, request = recording("index_copy")
    (update,) = request.program.aliased_outputs

    def digest(*updates: InPlaceBuffer) -> str | None:
        program = replace(request.program, aliased_outputs=updates)
        return request_digest(replace(request, program=program))

    others = {digest(), digest(update), digest(replace(update, refuses_negative_indices=False))}
    assert len(others) == 3
    assert digest(update) == request_digest(request)


def test_equal_partitions_of_which_one_may_not_are_two_engines(tmp_path):
    """The very same partition: a buffer's in one method, the caller's in the other."""

    class Given(nn.Module):
        def forward(self, position, rows, cache):
            new = cache.index_copy(2, position, rows)
            return new, new * 2

    programs = {
        "own": torch.export.export(Cache(copy_rows), (ONE, rows())),
        "given": torch.export.export(Given(), (ONE, rows(), torch.zeros(SHAPE))),
    }
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx", cache=tmp_path)
    manager = to_edge_transform_and_lower(programs, partitioner=[partitioner])
    with torch.no_grad():
        methods = inspect_program(bytes(manager.to_executorch().buffer))
    found = {method.name: bytes(method.delegates[0].blob[:4]) for method in methods}
    assert found == {"own": b"TR02", "given": b"TR01"}


def test_an_engine_from_the_cache_still_says_what_it_writes_in_place(tmp_path, monkeypatch, capsys):
    def exported() -> bytes:
        program = torch.export.export(Cache(copy_rows), (ONE, rows()))
        return lower(program, builder="tensorrt_rtx", cache=tmp_path / "cache")

    first = exported()
    monkeypatch.setattr(tensorrt_rtx, "build_engine", lambda *_: pytest.fail("built again"))
    second = exported()
    assert blobs(first) == blobs(second)
    assert blobs(second)[0][:4] == b"TR02"
    file = tmp_path / "cache.pte"
    file.write_bytes(second)
    said = CliRunner().invoke(app, ["inspect", str(file)], env={"COLUMNS": "250"}).output
    assert "written into input" in said
