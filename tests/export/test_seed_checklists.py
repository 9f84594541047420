"""The checklists of the three seeds of this project, box by box.

Propagation, executorch#18078 (what ExecuTorch itself does is held here too: an upgrade shows)

* device string case-insensitive, no index means 0:
  test_the_device_string_is_case_insensitive_and_no_index_means_0
* an unknown type is a ValueError: test_an_unknown_type_is_a_value_error
* delegate outputs and getitems carry device and index, others stay CPU:
  test_delegates_carry_device_and_index_and_other_tensors_stay_on_the_cpu
* a delegate without a spec is untouched: test_a_delegate_without_a_spec_is_untouched
* a delegate call without a lowered module raises:
  test_a_delegate_call_without_a_lowered_module_raises
* several delegates on several GPUs: test_several_delegates_on_several_gpus_are_each_labelled_right

Device from the engine, pytorch/TensorRT#4329

* cuda:0 is byte-identical with and without a spec: test_an_explicit_cuda_0_changes_no_byte
* tensors and planned buffers record N: test_tensors_and_planned_buffers_record_the_engines_gpu
* an explicit device is verbatim for every partition, extraction skipped:
  test_an_explicit_device_is_verbatim_for_every_partition_and_nothing_is_extracted
* an unreadable index is cuda:0, with a warning:
  test_an_unreadable_index_is_cuda_0_with_a_warning_for_each_partition
* one parser: test_one_parser_serves_export_and_the_python_runtime
* documented: test_it_is_documented_what_the_spec_and_the_blob_decide
* spec and blob disagree:
  test_a_disagreement_of_spec_and_blob_is_said_at_export_and_safe_at_run_time

Composition, executorch#20077

* delegate calls and getitems: test_delegate_calls_and_their_getitems_are_never_claimed_again
* a prior delegate's constant stays untagged: test_a_constant_of_a_prior_delegate_stays_untagged;
  an unused one is tagged: test_a_genuinely_unused_constant_does_not_end_up_in_the_file
* every user of a tagged constant shares its tag:
  test_every_user_of_a_tagged_constant_shares_its_tag
* with a single partitioner nothing changes: test_with_a_single_partitioner_nothing_changes
* TensorRT first, then another backend, and the other way round, both run:
  test_tensorrt_and_xnnpack_run_in_one_program_in_either_order
* partitions are convex: test_partitions_are_convex; control flow: test_control_flow_branches_work
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import _maybe_duplicate_constant_nodes, tag_constant_data
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.passes.propagate_device_pass import PropagateDevicePass
from executorch.exir.schema import Tensor
from torch import nn
from torch.utils._pytree import tree_leaves

from tests.support.builders import Rewritten
from tests.support.lowering import (
    blobs,
    delegate_tensor_devices,
    export,
    lower,
    lower_case,
    planned_devices,
    target_devices,
)
from tests.support.models import make
from tests.support.native_environment import ROOT
from tests.support.stock_process import run
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.engine_info import decode_blob, parse_device_id
from trt_et.inspection import inspect_program
from trt_et.target_device import parse_device

SPLIT = {"excluded_ops": [torch.ops.aten.cumsum]}


def pinned(device: bytes) -> dict:
    return {"compile_specs": [CompileSpec("target_device", device)]}


def edge_of(name: str) -> torch.export.ExportedProgram:
    return to_edge(export(name)).exported_program()


class FindsNothing(Partitioner):
    """Delegates no node, and preserves the operators that another partitioner preserves."""

    def __init__(self, other: Partitioner) -> None:
        super().__init__()
        self.ops_to_not_decompose = other.ops_to_not_decompose

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        return PartitionResult(exported_program, {})


class TakesWeightsAsInputs(Partitioner):
    """Another backend's: XNNPACK gets an operator, and its weights stay with the program."""

    def __init__(self, operator: str) -> None:
        super().__init__()
        self._operator = operator

    def partition(self, exported_program: torch.export.ExportedProgram) -> PartitionResult:
        (node,) = (n for n in exported_program.graph.nodes if self._operator in str(n.target))
        node.meta["delegation_tag"] = "other"
        return PartitionResult(exported_program, {"other": DelegationSpec("XnnpackBackend", [])})


def calls(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    return [n for n in program.graph.nodes if n.target is executorch_call_delegate]


class TestPropagation:
    @pytest.mark.parametrize(
        ("device", "index"), [(b"CUDA:1", 1), (b"Cuda", 0), (b"cuda:0", 0), (b"cUdA:2", 2)]
    )
    def test_the_device_string_is_case_insensitive_and_no_index_means_0(self, device, index):
        """device string is case-insensitive; no index means 0"""
        assert delegate_tensor_devices(lower_case("order", **pinned(device))) == [{("CUDA", index)}]
        assert parse_device(device.decode()) == index

    def test_an_unknown_type_is_a_value_error(self):
        """an unknown type is a ValueError"""
        with pytest.raises(ValueError, match=r"[Uu]nknown device type|not a GPU"):
            lower_case("order", **pinned(b"tpu:0"))
        with pytest.raises(ValueError, match="tpu:0"):
            TensorRTPartitioner(builder="reference", device="tpu:0")

    def test_delegates_carry_device_and_index_and_other_tensors_stay_on_the_cpu(self):
        """delegate outputs and getitems carry device and index; non-delegated tensors stay CPU"""
        pte = lower_case("split", device="cuda:1", **SPLIT)
        assert delegate_tensor_devices(pte) == [{("CUDA", 1)}, {("CUDA", 1)}]
        (plan,) = deserialize_pte_binary(pte).program.execution_plan
        kernels = [
            instruction.instr_args
            for chain in plan.chains
            for instruction in chain.instructions
            if type(instruction.instr_args).__name__ == "KernelCall"
        ]
        (cumsum,) = (k for k in kernels if "cumsum" in plan.operators[k.op_index].name)
        tensors = [plan.values[i].val for i in cumsum.args]
        infos = [t.extra_tensor_info for t in tensors if isinstance(t, Tensor)]
        assert len(infos) >= 2
        assert all(info is None or info.device_type.name == "CPU" for info in infos)

    def test_a_delegate_without_a_spec_is_untouched(self):
        """a delegate with no spec is untouched"""
        # Beside one of ours, with our memory planning: nothing of it may rub off.
        ours = TensorRTPartitioner(
            builder="reference", device="cuda:1", excluded_ops=["aten.linear", "aten.addmm"]
        )
        manager = to_edge_transform_and_lower(
            export("mlp"), partitioner=[ours, XnnpackPartitioner()]
        )
        config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
        pte = bytes(manager.to_executorch(config).buffer)
        backends = [delegate.backend_id for delegate in inspect_program(pte)[0].delegates]
        labels = delegate_tensor_devices(pte)
        assert {"XnnpackBackend", "TensorRTBackend"} == set(backends)
        for backend, devices in zip(backends, labels, strict=True):
            assert devices == {("CPU", 0) if backend == "XnnpackBackend" else ("CUDA", 1)}

    def test_a_delegate_call_without_a_lowered_module_raises(self):
        """a delegate call without a lowered module raises"""
        manager = to_edge_transform_and_lower(
            export("order"), partitioner=[TensorRTPartitioner(builder="reference")]
        )
        module = manager.exported_program().graph_module
        (call,) = calls(manager.exported_program())
        delattr(module, call.args[0].target)
        with pytest.raises((RuntimeError, AttributeError)):
            PropagateDevicePass(enable_non_cpu_memory_planning=True)(module)

    def test_several_delegates_on_several_gpus_are_each_labelled_right(self):
        """several delegates on several GPUs in one graph are each labelled right"""
        pte = lower_case("split", device=lambda part: part.index + 1, **SPLIT)
        assert delegate_tensor_devices(pte) == [{("CUDA", 1)}, {("CUDA", 2)}]
        assert [parse_device_id(blob) for blob in blobs(pte)] == [1, 2]


class TestDeviceFromTheEngine:
    def test_an_explicit_cuda_0_changes_no_byte(self):
        """cuda:0 export is byte-identical with and without an explicit cuda:0"""
        assert lower_case("mlp") == lower_case("mlp", **pinned(b"cuda:0"))

    def test_tensors_and_planned_buffers_record_the_engines_gpu(self):
        """boundary tensors record N in extra_tensor_info, the planned buffer in
        non_const_buffer_device"""
        pte = lower_case("mlp", device="cuda:2")
        assert delegate_tensor_devices(pte) == [{("CUDA", 2)}]
        assert planned_devices(pte) == {("CUDA", 2)}

    def test_an_explicit_device_is_verbatim_for_every_partition_and_nothing_is_extracted(self):
        """explicit cuda:3 used verbatim for every partition, extraction skipped"""
        # The engines' own indices are unreadable: were they asked for, there would be a warning.
        pte = lower_case("split", builder=Rewritten("?"), **SPLIT, **pinned(b"cuda:3"))
        assert target_devices(pte) == [[b"cuda:3"], [b"cuda:3"]]

    def test_an_unreadable_index_is_cuda_0_with_a_warning_for_each_partition(self, caplog):
        """unreadable index -> cuda:0 with a warning that names the partition; export never
        aborts"""
        with caplog.at_level(logging.WARNING, "trt_et"):
            pte = lower_case("split", builder=Rewritten("?"), **SPLIT)
        assert target_devices(pte) == [[b"cuda:0"], [b"cuda:0"]]
        messages = [record.getMessage() for record in caplog.records]
        for partition in ("tensorrt_0", "tensorrt_1"):
            assert any(partition in message for message in messages)

    def test_one_parser_serves_export_and_inspection(self):
        """the same parser serves export and run time, so they cannot drift"""
        # C++ and Python read the same blobs alike: tests/runtime/test_blob.py.
        import trt_et.engine_info
        import trt_et.target_device as export_time

        assert export_time.parse_device_id is trt_et.engine_info.parse_device_id
        (blob,) = blobs(lower_case("order", device=5))
        assert parse_device_id(blob) == decode_blob(blob).info.device_id == 5

    def test_it_is_documented_what_the_spec_and_the_blob_decide(self):
        """documented: the spec decides where buffers are; the engine's GPU comes from the blob"""
        guide = " ".join((ROOT / "docs/guides/several-gpus.md").read_text().split())
        assert "where ExecuTorch plans the *tensors*; the *engine* goes to the GPU in" in guide

    def test_a_disagreement_of_spec_and_blob_is_said_at_export_and_safe_at_run_time(
        self, caplog, tmp_path
    ):
        """explicit spec and blob disagree: said at export, and safe at run time"""
        with caplog.at_level(logging.WARNING, "trt_et"):
            pte = lower_case("order", device="cuda:0", **pinned(b"cuda:1"))
        assert "tensorrt_0" in caplog.text
        assert "cuda:0" in caplog.text
        assert "cuda:1" in caplog.text
        assert delegate_tensor_devices(pte) == [{("CUDA", 1)}]
        agrees(tmp_path, pte, *make("order"))


def agrees(folder: Path, pte: bytes, model: nn.Module, *calls: tuple) -> None:
    """The program does what eager does, in the stock runtime on two simulated GPUs."""
    for outputs, call in zip(run(folder, pte, *calls), calls, strict=True):
        expected = tree_leaves(model(*call))
        for have, want in zip(outputs, expected, strict=True):
            torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)


class Weights(nn.Module):
    """A layer for the first delegate, one for the second, and a buffer that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.register_buffer("unused", torch.zeros(1 << 18))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.cumsum(self.first(x), 1))


class Scaled(nn.Module):
    """A weight that another delegate gets as an argument, and a layer behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.scale)


def after_another_delegate() -> torch.export.ExportedProgram:
    """Scaled, with its multiplication taken already."""
    torch.manual_seed(0)
    program = torch.export.export(Scaled().eval(), (torch.randn(2, 4),))
    manager = to_edge(program).to_backend(TakesWeightsAsInputs("aten.mul.Tensor"))
    return manager.exported_program()


class TestComposition:
    def test_delegate_calls_and_their_getitems_are_never_claimed_again(self):
        """existing delegate calls and their getitems are never delegated again"""
        program = after_another_delegate()
        partitioner = TensorRTPartitioner(builder="reference")
        partitioner.partition(program)
        (call,) = calls(program)
        (result,) = call.users
        tagged = [n.name for n in program.graph.nodes if "delegation_tag" in n.meta]
        assert "aten_addmm_default" in tagged
        assert call.name not in tagged
        assert result.name not in tagged
        reasons = {name: why for name, _, why in partitioner.report.not_delegated}
        assert reasons[call.name] == "it is delegated already"
        assert reasons[result.name] == "it is an output of an existing delegate"

    def test_a_constant_of_a_prior_delegate_stays_untagged(self):
        """a constant used only by a prior delegate stays untagged"""

        edge = after_another_delegate()
        (call,) = calls(edge)
        TensorRTPartitioner(builder="reference").partition(edge)
        placeholders = [node for node in edge.graph.nodes if node.op == "placeholder"]
        tags = {node.name: node.meta.get("delegation_tag") for node in placeholders}
        assert any(node.name == "p_scale" for node in call.args)
        assert tags == {
            "p_scale": None,
            "p_linear_weight": "tensorrt_0",
            "p_linear_bias": "tensorrt_0",
            "x": None,
        }

    def test_a_genuinely_unused_constant_does_not_end_up_in_the_file(self):
        """a genuinely unused one is tagged (so that it leaves the program)"""
        program = torch.export.export(Weights().eval(), (torch.randn(2, 4),))
        edge = to_edge(program).exported_program()
        TensorRTPartitioner(builder="reference", **SPLIT).partition(edge)
        (unused,) = (n for n in edge.graph.nodes if n.name == "b_unused")
        assert unused.meta["delegation_tag"] == "tensorrt_0"
        assert len(lower(program, **SPLIT)) < (1 << 18)

    @pytest.mark.parametrize("elsewhere", ["engine", "cpu", "list", "cond"])
    def test_every_user_of_a_tagged_constant_shares_its_tag(self, elsewhere, tmp_path):
        """every user of a tagged constant shares its tag (shared constants are duplicated or
        left)"""

        class Shared(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 4))

            def forward(self, x):
                y = torch.cumsum((x @ self.weight).relu(), 1)
                if elsewhere == "engine":
                    return y @ self.weight
                if elsewhere == "cpu":
                    return torch.cumsum(self.weight, 1) @ y
                if elsewhere == "list":
                    return torch.cumsum(torch.cat([self.weight, y]), 1).relu()
                return torch.cond(x.sum() > 0, lambda y: y @ self.weight, lambda y: y * 2, (y,))

        torch.manual_seed(0)
        model, inputs = Shared().eval(), (torch.randn(4, 4),)
        program = torch.export.export(model, inputs)
        edge = to_edge(program).exported_program()
        result = TensorRTPartitioner(builder="reference", **SPLIT).partition(edge)
        assert result.partition_tags
        # As to_backend does before it cuts partitions out.
        for tag in result.partition_tags:
            _maybe_duplicate_constant_nodes(edge, tag)
        tagged = [n for n in edge.graph.nodes if n.op == "placeholder" and n.users]
        tagged = [n for n in tagged if n.meta.get("delegation_tag")]
        assert tagged
        for node in tagged:
            tags = {user.meta.get("delegation_tag") for user in node.users}
            assert tags == {node.meta["delegation_tag"]}
        agrees(tmp_path, lower(program, **SPLIT), model, inputs)

    def test_with_a_single_partitioner_nothing_changes(self):
        """with a single partitioner nothing changes"""
        program = export("split")
        alone = lower(program, **SPLIT)
        for order in ("nothing before", "nothing behind", "ourselves behind"):
            ours = TensorRTPartitioner(builder="reference", **SPLIT)
            chain: list[Partitioner] = [ours, FindsNothing(ours)]
            if order == "nothing before":
                chain.reverse()
            if order == "ourselves behind":
                chain[1] = TensorRTPartitioner(builder="reference", **SPLIT)
            manager = to_edge_transform_and_lower(program, partitioner=chain)
            assert bytes(manager.to_executorch().buffer) == alone, order
        # And constants are tagged as ExecuTorch's own function tags them.
        mine, plain = edge_of("split"), edge_of("split")
        TensorRTPartitioner(builder="reference", **SPLIT).partition(mine)
        nodes = list(zip(mine.graph.nodes, plain.graph.nodes, strict=True))
        for have, want in nodes:
            if have.op != "placeholder" and "delegation_tag" in have.meta:
                want.meta["delegation_tag"] = have.meta["delegation_tag"]
        tag_constant_data(plain)
        for have, want in nodes:
            assert have.meta.get("delegation_tag") == want.meta.get("delegation_tag")

    @pytest.mark.parametrize("first", ["TensorRT", "XNNPACK"])
    def test_tensorrt_and_xnnpack_run_in_one_program_in_either_order(self, tmp_path, first):
        """TensorRT first then another backend, and the other way round, in one .pte, both run"""
        model, inputs = make("cnn")
        ours = TensorRTPartitioner(
            builder="reference", excluded_ops=[torch.ops.aten.convolution.default]
        )
        chain = (
            [ours, XnnpackPartitioner()] if first == "TensorRT" else [XnnpackPartitioner(), ours]
        )
        program = torch.export.export(model, inputs)
        manager = to_edge_transform_and_lower(program, partitioner=chain)
        pte = bytes(manager.to_executorch().buffer)
        backends = {delegate.backend_id for delegate in inspect_program(pte)[0].delegates}
        assert backends == {"TensorRTBackend", "XnnpackBackend"}
        agrees(tmp_path, pte, model, inputs)

    def test_partitions_are_convex(self):
        """partitions are convex (no cycles through a CPU node)"""

        class Around(nn.Module):
            def forward(self, x):
                y = x * 2
                return y + torch.cumsum(y, 0) + y.tanh()

        program = torch.export.export(Around(), (torch.randn(3, 3),))
        partitioner = TensorRTPartitioner(builder="reference", **SPLIT)
        edge = to_edge(program).exported_program()
        partitioner.partition(edge)
        position = {node: i for i, node in enumerate(edge.graph.nodes)}
        (cpu,) = (n for n in position if "cumsum" in n.name)
        tags = {n: n.meta["delegation_tag"] for n in position if "delegation_tag" in n.meta}
        behind, stack = set(), [cpu]
        while stack:
            node = stack.pop()
            behind.add(node)
            stack.extend(node.users)
        ahead, stack = set(), [cpu]
        while stack:
            node = stack.pop()
            ahead.add(node)
            stack.extend(node.all_input_nodes)
        assert not {tags[n] for n in behind if n in tags} & {tags[n] for n in ahead if n in tags}
        assert len(set(tags.values())) == 2

    def test_control_flow_branches_work(self, tmp_path):
        """control-flow branches work"""

        class Branches(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x):
                y = torch.cond(x.sum() > 0, self.linear, lambda a: a.tanh() * a, (x,))
                return self.linear(y)

        torch.manual_seed(0)
        model, inputs = Branches().eval(), torch.rand(2, 4)
        partitioner = TensorRTPartitioner(builder="reference")
        program = torch.export.export(model, (inputs,))
        pte = lower(program, partitioner=partitioner)
        assert {part.subgraph for part in partitioner.report.partitions} == {
            "",
            "cond/true",
            "cond/false",
        }
        agrees(tmp_path, pte, model, (inputs,), (-inputs,))
