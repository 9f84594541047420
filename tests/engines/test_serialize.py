"""Engines that update a cache in place, and the same engines where TensorRT cannot."""

from __future__ import annotations

import logging

import pytest
import tensorrt_rtx as trt
import torch

from tests.support.lowering import blobs, lower
from tests.support.programs.kv_cache_models import Cache, recorded
from tests.support.programs.kv_cache_updates import LONG, ONE, add_to_it, put, rows
from trt_et.conversion import rewriting
from trt_et.conversion.operators.caches import update_in_place
from trt_et.engine_info import Alias, decode_blob
from trt_et.engines import serialize as engines
from trt_et.engines import tensorrt_rtx
from trt_et.errors import BuildCancelled, BuilderError, OptionError


def lowered(update=put, row=None) -> bytes:
    program = torch.export.export(Cache(update), (ONE, rows() if row is None else row))
    (blob,) = blobs(lower(program, builder="tensorrt_rtx"))
    return bytes(blob)


def built(caplog) -> tuple[bytes, str]:
    with caplog.at_level(logging.WARNING, "trt_et"):
        return lowered(), caplog.text


def refuse(monkeypatch, refusal) -> list[tuple[Alias, ...]]:
    """Each build raises what ``refusal`` makes of its aliases; the aliases of all builds."""
    serialize = tensorrt_rtx.serialize
    tried = []

    def refusing(network, *args, **kwargs):
        tried.append(network.aliases)
        if error := refusal(network.aliases):
            raise error
        return serialize(network, *args, **kwargs)

    monkeypatch.setattr(tensorrt_rtx, "serialize", refusing)
    return tried


def test_a_tensorrt_without_the_layer_builds_as_before(caplog, monkeypatch):
    lowered()  # Torch-TensorRT is loaded.
    monkeypatch.setattr(rewriting, "has_cache_update_layer", lambda: False)
    blob, said = built(caplog)
    assert (blob[:4], decode_blob(blob).info.aliases) == (b"TR01", ())
    assert "in place" not in said


def test_a_layer_that_tensorrt_refuses_is_left_out(caplog, monkeypatch):
    monkeypatch.setattr(trt.INetworkDefinition, "add_kv_cache_update", lambda *_: None)
    blob, said = built(caplog)
    assert (blob[:4], decode_blob(blob).info.aliases) == (b"TR01", ())
    assert "no engine that writes state in place" in said
    assert "refuses the update of a KV cache at write_rows" in said


def test_a_build_that_fails_with_the_layer_is_repeated_without(caplog, monkeypatch):
    tried = refuse(monkeypatch, lambda aliases: BuilderError("Myelin says no") if aliases else None)
    blob, said = built(caplog)
    assert blob[:4] == b"TR01"
    assert [len(each) for each in tried] == [1, 0]
    assert "Myelin says no" in said


@pytest.mark.parametrize(
    ("update", "error", "builds", "message"),
    [
        (put, BuilderError, [1, 0], "failed with 0"),
        (add_to_it, BuilderError, [0], "failed with 0"),  # Nothing is in place anyway.
        (put, BuildCancelled, [1], "failed with 1"),
        (put, OptionError, [1], "failed with 1"),
    ],
)
def test_a_failed_build_is_repeated_only_if_that_can_help(
    monkeypatch, caplog, update, error, builds, message
):
    tried = refuse(monkeypatch, lambda aliases: error(f"failed with {len(aliases)}"))
    with pytest.raises((BuilderError, OptionError), match=message):
        lowered(update, LONG if update is add_to_it else None)
    assert [len(each) for each in tried] == builds
    assert ("in place" in caplog.text) == (len(builds) > 1)


def test_a_layer_that_nobody_asked_for_is_an_error(monkeypatch):
    """A later Torch-TensorRT may make the layer by itself, whoever needs the old value."""
    (request,), _ = recorded(Cache(put), (ONE, rows()))
    made = engines.build_network(request)
    from trt_et.conversion.operators.caches import check_cache_updates

    check_cache_updates(made.network, made.aliases)
    for wrong in ((), (Alias("output1", made.aliases[0].input),)):
        with pytest.raises(BuilderError, match="in place; expected"):
            check_cache_updates(made.network, wrong)

    def silently(module, updates):
        update_in_place(module, updates)
        return ()

    monkeypatch.setattr(rewriting, "update_in_place", silently)
    with pytest.raises(BuilderError, match="in place; expected"):
        engines.build_network(request)
