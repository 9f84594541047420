"""TensorRT's timings are kept between exports. TensorRT itself is a fake: there is no GPU."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from tests.support.builders import build, request
from tests.support.builders import program as small_program
from trt_et import EngineCache
from trt_et.conversion.settings import make_settings
from trt_et.engines import BuildOptions, tensorrt
from trt_et.engines.timing_cache import TimingCache


class Timings:
    def __init__(self, known: dict[str, int]) -> None:
        self.known = known

    def combine(self, other, ignore_mismatch) -> bool:
        assert not ignore_mismatch
        self.known = {**other.known, **self.known}
        return True

    def serialize(self) -> bytes:
        return json.dumps(self.known, sort_keys=True).encode()


class Config:
    """The part of IBuilderConfig that knows timing caches; it takes none of another version."""

    def __init__(self) -> None:
        self.cache: Timings | None = None

    def create_timing_cache(self, data: bytes) -> Timings | None:
        return None if data == b"mismatch" else Timings(json.loads(data or b"{}"))

    def set_timing_cache(self, cache, ignore_mismatch) -> bool:
        assert not ignore_mismatch
        self.cache = cache
        return True

    def get_timing_cache(self) -> Timings | None:
        return self.cache


def measured(cache: TimingCache, **timings: int) -> dict[str, int]:
    """Build once, measuring something; what was known before."""
    config = Config()
    cache.load(config)
    before = dict(config.cache.known)
    config.cache.known.update(timings)
    cache.save(config)
    return before


def test_what_was_measured_is_known_the_next_time(tmp_path):
    assert measured(TimingCache(tmp_path, "a GPU"), conv=3) == {}
    assert measured(TimingCache(tmp_path, "a GPU"), gemm=4) == {"conv": 3}
    assert measured(TimingCache(tmp_path, "a GPU")) == {"conv": 3, "gemm": 4}
    assert measured(TimingCache(tmp_path, "another GPU")) == {}


def test_two_processes_keep_what_both_measured(tmp_path):
    one, other = (TimingCache(tmp_path, "a GPU") for _ in range(2))
    configs = [Config(), Config()]
    one.load(configs[0])
    other.load(configs[1])
    configs[0].cache.known["conv"] = 1
    configs[1].cache.known["gemm"] = 2
    one.save(configs[0])
    other.save(configs[1])
    assert measured(TimingCache(tmp_path, "a GPU")) == {"conv": 1, "gemm": 2}
    assert len(list(tmp_path.glob("*.timing*"))) == 1


def test_timings_that_tensorrt_refuses_are_measured_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("trt_et.engines.timing_cache.read_checked", lambda path: b"mismatch")
    assert measured(TimingCache(tmp_path, "a GPU")) == {}
    assert "measures them again" in caplog.text


@pytest.fixture
def machine(monkeypatch):
    """A GPU, and a TensorRT that notes what it knew and measures one kernel more each time."""
    known = []

    def network_of(request):
        trt = SimpleNamespace(__version__="11.1")
        return SimpleNamespace(trt=trt, config=Config(), aliases=(), free=lambda: None)

    def serialize(network, partition, write, *_):
        timings = network.config.get_timing_cache()
        known.append(timings and dict(timings.known))
        if timings:
            timings.known[f"kernel{len(timings.known)}"] = 1
        write(b"engine")

    gpu = SimpleNamespace(name="A GPU", major=9, minor=0)
    monkeypatch.setattr("trt_et.engines.tensorrt.build_network", network_of)
    monkeypatch.setattr(tensorrt, "serialize", serialize)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    return known


def test_the_tensorrt_builder_keeps_them_beside_the_engines(tmp_path, machine):
    builder, cache = tensorrt.TensorRTBuilder(), EngineCache(tmp_path)
    assert build(builder, cache, options=BuildOptions(optimization_level=1)).origin == "built"
    assert build(builder, cache, options=BuildOptions(optimization_level=2)).origin == "built"
    assert build(builder, cache, options=BuildOptions(optimization_level=2)).origin == "cached"
    assert machine == [{}, {"kernel0": 1}]
    assert len(list(cache.timings_folder.glob("*.timing"))) == 1
    assert build(builder, None).origin == "built"
    assert machine[2:] == [None]
    assert cache.clear() > 0
    assert list(cache.timings_folder.glob("*.timing")) == []


def test_torch_tensorrts_own_file_in_tmp_is_not_read():
    assert make_settings().timing_cache_path == ""
    assert request(small_program()).timings is None
