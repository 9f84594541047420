"""All partitions of an export together: each distinct engine is built once, by whoever is first."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from tests.support.builders import CheapBuilder, Two, build, built_by, export, program
from trt_et import EngineCache, PartitionError, TensorRTPartitioner
from trt_et.engine_info import EngineInfo, decode_blob, encode_blob
from trt_et.engines.build import build_engines

X = torch.ones(2, 4)
fork = multiprocessing.get_context("fork")


def other_weights():
    model = Two()
    with torch.no_grad():
        model.first.weight[0, 0] += 1
    return export(model, X)


class Long(nn.Module):
    """Two of them differ only outside of the sampled elements."""

    def __init__(self, at: int) -> None:
        super().__init__()
        weight = torch.zeros(1000)
        weight[at] = 1
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        return x * self.weight


def test_equal_partitions_are_built_once_and_share_their_bytes():
    builder = CheapBuilder()
    partitions = [
        (program(), built_by(builder, name="a")),
        (other_weights(), built_by(builder, name="b")),
        (export(Two(), X), built_by(builder, name="c")),
        (program(), built_by(builder, name="d", device=1)),
    ]
    engines = build_engines(partitions)
    assert builder.built == ["a", "b", "d"]
    assert engines[0].blob is engines[2].blob
    assert engines[0].blob != engines[1].blob
    assert [decode_blob(engine.blob).info.device_id for engine in engines] == [0, 0, 0, 1]


def test_methods_of_one_program_share_their_engine():
    builder = CheapBuilder(repeat=3)
    programs = {name: torch.export.export(Two().eval(), (X,)) for name in ("prefill", "decode")}
    partitioner = TensorRTPartitioner(builder=builder)
    manager = to_edge_transform_and_lower(programs, partitioner=[partitioner])
    assert len(builder.built) == 1
    assert bytes(manager.to_executorch().buffer).count(b"TR01") == 1


def test_weights_that_differ_in_the_middle_only_are_different_engines():
    builder = CheapBuilder()
    programs = [export(Long(at), torch.ones(1000)) for at in (500, 501, 500, 502, 501)]
    engines = build_engines([(p, built_by(builder, name=str(i))) for i, p in enumerate(programs)])
    assert builder.built == ["0", "1", "3"]
    assert [engine.partition for engine in engines] == ["0", "1", "0", "3", "1"]


@pytest.mark.long
def test_one_partition_after_the_other_is_in_memory():
    alive = []

    class Watching(CheapBuilder):
        def build(self, request):
            gc.collect()
            assert [ref() for ref in alive if ref() is not None] == []
            alive.append(weakref.ref(request.program))
            return super().build(request)

    programs = [program(), other_weights(), export(nn.Linear(4, 4), X)]
    build_engines([(p, built_by(Watching())) for p in programs])
    assert len(alive) == 3


class Broken(CheapBuilder):
    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error

    def build(self, request):
        if request.partition == "bad" and self.error is not None:
            raise self.error
        return super().build(request)


@pytest.mark.parametrize("error", [RuntimeError("no luck"), KeyboardInterrupt()])
def test_a_failure_and_ctrl_c_keep_what_was_built_and_leave_nothing_half(error, tmp_path):
    cache = EngineCache(tmp_path)
    builder = Broken(error)
    partitions = [
        (program(), built_by(builder, cache, name="good")),
        (other_weights(), built_by(builder, cache, name="bad")),
    ]
    expected = PartitionError if isinstance(error, Exception) else KeyboardInterrupt
    with pytest.raises(expected) as raised:
        build_engines(partitions)
    if expected is PartitionError:
        assert "partition bad (3 nodes: aten::linear.default x2, aten::relu" in str(raised.value)
    assert len(cache.entries()) == 1
    assert list(tmp_path.rglob("*.part")) == []
    # The lock of the failed build was released: whoever waits for it would wait for ever.
    works = Broken(None)
    engines = build_engines([(p, built_by(works, cache, name=q.name)) for p, q in partitions])
    assert [engine.origin for engine in engines] == ["cached", "built"]


def test_builds_may_finish_in_any_order(tmp_path):
    class SecondFirst(CheapBuilder):
        def build(self, request):
            if request.partition == "a":
                assert second.wait(60)
            blob = super().build(request)
            second.set()
            return blob

    second = threading.Event()
    builder, cache = SecondFirst(), EngineCache(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        partitions = [
            (p, built_by(builder, cache, name=name, executor=pool))
            for name, p in (("a", program()), ("b", other_weights()), ("c", program()))
        ]
        engines = build_engines(partitions)
        assert builder.built == ["b", "a"]
        assert [engine.partition for engine in engines] == ["a", "b", "a"]
        assert [engine.origin for engine in build_engines(partitions)] == ["cached"] * 3
        assert builder.built == ["b", "a"]


def test_two_processes_that_need_each_others_engines_do_not_wait_for_ever(tmp_path):
    cache = EngineCache(tmp_path)
    log = tmp_path / "log"

    class Patient(ThreadPoolExecutor):
        """Is given a second job once the other process has a first one, which takes a while."""

        def submit(self, function, /, *args, **kwargs):
            barrier.wait(30)

            def slow():
                time.sleep(1)
                return function(*args, **kwargs)

            return super().submit(slow)

    barrier = fork.Barrier(2)

    def both(order):
        programs = [program(), other_weights()][::order]
        pool = Patient(2)
        build_engines([(p, built_by(CheapBuilder(log), cache, executor=pool)) for p in programs])

    children = [fork.Process(target=both, args=(order,)) for order in (1, -1)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        child.kill()
    assert [child.exitcode for child in children] == [0, 0]
    assert len(log.read_text().split()) == 2


def test_a_builder_that_cannot_say_what_it_is_builds_every_time(tmp_path):
    class Silent(CheapBuilder):
        def fingerprint(self):
            return ""

    for _ in range(2):
        assert build(Silent(), EngineCache(tmp_path)).origin == "built"
    assert EngineCache(tmp_path).entries() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "corrupt: checksum"),
        (lambda _: b"", "blob"),
        (lambda _: None, "NoneType"),
        (lambda _: 7, "int"),
        # A whole engine, of another partition.
        (lambda _: encode_blob(b"e", EngineInfo(())), "0 inputs; expected 1"),
    ],
)
def test_an_engine_that_a_callers_builder_damaged_is_refused(change, message):
    class Damaging(CheapBuilder):
        def build(self, request):
            return change(super().build(request))

    with pytest.raises(PartitionError, match=message):
        build(Damaging())


def test_a_builder_that_inherits_its_fingerprint_has_engines_of_its_own(tmp_path):
    class Larger(CheapBuilder):
        def build(self, request):
            self.repeat = 2
            return super().build(request)

    cache = EngineCache(tmp_path)
    plain = build(CheapBuilder(), cache)
    larger = build(Larger(), cache)
    assert larger.origin == "built"
    assert len(larger.blob) > len(plain.blob)
    assert [build(b, cache).origin for b in (CheapBuilder(), Larger())] == ["cached", "cached"]


def test_an_engine_built_on_a_gpu_that_is_not_here_is_not_kept(tmp_path):
    class Elsewhere(CheapBuilder):
        def build(self, request):
            blob = decode_blob(super().build(request))
            return encode_blob(blob.engine, replace(blob.info, gpu_name="Another GPU"))

    build(Elsewhere(), EngineCache(tmp_path))
    assert EngineCache(tmp_path).entries() == []
    build(Elsewhere(version="on Another GPU"), EngineCache(tmp_path))
    assert len(EngineCache(tmp_path).entries()) == 1
