"""The checklists of the three seeds of this project, box by box.

Propagation is executorch#18078, the device from the engine pytorch/TensorRT#4329, composition
executorch#20077. Each test quotes its box; what needs more than one test has the others in
``test_target_device.py``, ``test_composition.py``, ``test_end_to_end.py``, ``runtime/``.
"""

from __future__ import annotations

import logging

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.passes.propagate_device_pass import PropagateDevicePass
from executorch.exir.schema import Tensor
from torch import nn

from tests.lowering_helpers import (
    blobs,
    delegate_tensor_devices,
    export,
    lower,
    lower_case,
    planned_devices,
    target_devices,
)
from tests.test_target_device import Rewritten
from trt_et import TensorRTPartitioner
from trt_et.engine_info import decode_blob, parse_device_id
from trt_et.inspection import inspect_program
from trt_et.target_device import parse_device

SPLIT = {"excluded_ops": ["aten.cumsum"]}


def pinned(device: bytes) -> dict:
    return {"compile_specs": [CompileSpec("target_device", device)]}


def edge_of(name: str) -> torch.export.ExportedProgram:
    return to_edge(export(name)).exported_program()


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
        pte = lower(export("mlp"), partitioner=XnnpackPartitioner())
        assert {device for call in delegate_tensor_devices(pte) for device in call} == {("CPU", 0)}
        assert planned_devices(pte) <= {("CPU", 0)}

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

    def test_one_parser_serves_export_and_the_python_runtime(self):
        """the same parser serves export and run time, so they cannot drift"""
        # C++ and Python read the same blobs alike: tests/runtime/test_blob_native.py.
        import trt_et.engine_info
        import trt_et.runtime.python_provider as provider
        import trt_et.target_device as export_time

        assert export_time.parse_device_id is trt_et.engine_info.parse_device_id
        assert "device_id" not in provider.__dict__
        (blob,) = blobs(lower_case("order", device=5))
        assert parse_device_id(blob) == decode_blob(blob).info.device_id == 5

    def test_it_is_documented_what_the_spec_and_the_blob_decide(self):
        """documented: the spec places buffers; the engine's GPU comes from the blob"""
        from pathlib import Path

        readme = " ".join((Path(__file__).parents[1] / "README.md").read_text().split())
        assert "where ExecuTorch plans the *tensors*; the *engine* goes to the GPU in" in readme

    def test_a_disagreement_of_spec_and_blob_is_said_at_export(self, caplog):
        """explicit spec and blob disagree: said at export, and safe at run time"""
        # Run time: tests/test_end_to_end.py::test_a_label_that_disagrees_...
        with caplog.at_level(logging.WARNING, "trt_et"):
            lower_case("order", device="cuda:1", **pinned(b"cuda:3"))
        assert "tensorrt_0" in caplog.text
        assert "cuda:1" in caplog.text
        assert "cuda:3" in caplog.text


class Weights(nn.Module):
    """A layer for the first delegate, one for the second, and a buffer that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.register_buffer("unused", torch.zeros(1 << 18))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.cumsum(self.first(x), 1))


def after_xnnpack() -> torch.export.ExportedProgram:
    """Weights, its first layer taken by XNNPACK."""
    torch.manual_seed(0)
    program = torch.export.export(Weights().eval(), (torch.randn(2, 4),))
    xnnpack = XnnpackPartitioner()
    manager = to_edge_transform_and_lower(program, partitioner=[xnnpack])
    return manager.exported_program()


class TestComposition:
    def test_delegate_calls_and_their_getitems_are_never_claimed_again(self):
        """existing delegate calls and their getitems are never claimed again"""
        program = after_xnnpack()
        before = calls(program)
        assert before
        TensorRTPartitioner(builder="reference").partition(program)
        for call in before:
            assert "delegation_tag" not in call.meta
            assert call.users
            assert all("delegation_tag" not in user.meta for user in call.users)

    def test_a_constant_of_a_prior_delegate_stays_untagged(self):
        """a constant used only by a prior delegate stays untagged"""
        edge = edge_of("split")
        (first,) = (n for n in edge.graph.nodes if n.name == "p_first_weight")
        for node in edge.graph.nodes:
            if "first" in str(node.meta.get("nn_module_stack")):
                node.meta["claimed"] = True
        partitioner = TensorRTPartitioner(
            builder="reference", excluded_ops=[lambda node: "claimed" in node.meta]
        )
        partitioner.partition(edge)
        assert "delegation_tag" not in first.meta
        tagged = [
            n.name for n in edge.graph.nodes if n.op == "placeholder" and "delegation_tag" in n.meta
        ]
        assert tagged == ["p_second_weight", "p_second_bias"]

    def test_a_genuinely_unused_constant_does_not_end_up_in_the_file(self):
        """a genuinely unused one is tagged (so that it leaves the program)"""
        program = torch.export.export(Weights().eval(), (torch.randn(2, 4),))
        edge = to_edge(program).exported_program()
        TensorRTPartitioner(builder="reference", **SPLIT).partition(edge)
        (unused,) = (n for n in edge.graph.nodes if n.name == "b_unused")
        assert unused.meta["delegation_tag"] == "tensorrt_0"
        assert len(lower(program, **SPLIT)) < (1 << 18)

    def test_every_user_of_a_tagged_constant_shares_its_tag(self):
        """every user of a tagged constant shares its tag (shared constants are duplicated or
        left)"""

        class Shared(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 4))

            def forward(self, x):
                return torch.cumsum((x @ self.weight).relu(), 1) @ self.weight

        manager = to_edge_transform_and_lower(
            torch.export.export(Shared().eval(), (torch.randn(2, 4),)),
            partitioner=[TensorRTPartitioner(builder="reference", **SPLIT)],
        )
        lowered = manager.exported_program()
        # Each partition took its own copy: nothing of the weight is left to the CPU.
        assert len(calls(lowered)) == 2
        assert not lowered.graph_signature.inputs_to_parameters
        pte = bytes(manager.to_executorch().buffer)
        assert [d.problem for d in inspect_program(pte)[0].delegates] == ["", ""]

    def test_with_a_single_partitioner_nothing_changes(self):
        """with a single partitioner nothing changes"""
        alone = lower_case("cnn")
        manager = to_edge(export("cnn")).to_backend(TensorRTPartitioner(builder="reference"))
        engines = blobs(alone)
        assert len(engines) == 1
        again = lower_case("cnn")
        assert again == alone
        assert len(calls(manager.exported_program())) == 1

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

    # TensorRT first then another backend, and the other way round, in one .pte, both run:
    # test_composition.py::test_xnnpack_before_and_after_runs. Control-flow branches:
    # test_composition.py::test_control_flow_runs_around_engines.
