"""Facts of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Final

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import EngineInfo
from trt_et.blob.partition_spec import PartitionNames
from trt_et.errors import OptionError
from trt_et.inspection.kernels import EngineKernels, read_kernels
from trt_et.inspection.tables import Shown, Table, size_text
from trt_et.inspection.texts import binding_sizes, counted, engine_text, targets_text

_ENDS: Final = ("", "name", "type", "sizes", "device", "bytes")
_DIRECTIONS: Final = {"et_copy::_h2d_copy": "h2d", "et_copy::_d2h_copy": "d2h"}
#: Headings of ``DelegateInfo.row``.
DELEGATE: Final = (
    *("", "partition", "backend", "built by", "targets", "GPU", "operators", "bytes"),
)
#: Headings of ``DelegateInfo.binding_rows``, after the delegate's index.
BINDING: Final = ("", "name in the engine", "name", "type", "sizes", "note")


@dataclass(frozen=True)
class TensorValue:
    """A tensor of a method.

    Attributes:
        dtype: Its type, such as ``float32``.
        sizes: Its sizes; the largest ones if they are dynamic.
        is_dynamic: True if its sizes may be smaller.
        device: ``cpu`` or ``cuda:<index>``.
        nbytes: Its bytes at these sizes.
        is_constant: True if the file holds its data.
        dim_order: Its dimensions from the outermost to the innermost in memory; empty: as they are
            numbered.
    """

    dtype: str
    sizes: tuple[int, ...]
    is_dynamic: bool
    device: str
    nbytes: int
    is_constant: bool
    dim_order: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.sizes)}, {size_text(self.nbytes)}"


@dataclass(frozen=True)
class Call:
    """A call of an operator (``kernel``) or a ``delegate``, by its index, with its values."""

    kind: str
    index: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class DelegateInfo:
    """One delegate of a method.

    Attributes:
        backend_id: The backend that runs it.
        compile_specs: Its compile specs, in order.
        size: Bytes of its blob.
        engine: Facts of its engine; None for other backends and for an unreadable blob.
        engine_size: Bytes of the engine itself; 0 without one.
        problem: Why the blob is unreadable; empty if it is intact.
        blob: Its bytes, with the engine even if that is in a second file; a view unless the program
            was passed as ``bytes``.
        operators: The kernels of a reference engine, in order; other engines do not name theirs.
        offset: Start of the blob in the file.
        partition: The names of its partition's tensors and operators, if the file has them.
    """

    backend_id: str
    compile_specs: tuple[tuple[str, bytes], ...]
    size: int
    engine: EngineInfo | None
    engine_size: int
    problem: str
    blob: bytes | memoryview
    operators: tuple[str, ...] = ()
    offset: int = 0
    partition: PartitionNames = field(default_factory=PartitionNames)

    @property
    def title(self) -> str:
        """Return its partition's name, or else its backend's."""
        return self.partition.name or self.backend_id

    def row(self, index: int) -> tuple[str, ...]:
        """Return its row in the table of delegates."""
        info = self.engine
        built = engine_text(info) if info else ""
        if info and info.precision:
            built += f", computes in {info.precision}"
        if info and info.engine_key:
            built += f"; the engine is in a .ptd file: {info.engine_key}"
            built += "" if self.engine_size else ", which is not there"
        return (
            *(str(index), self.partition.name, self.backend_id),
            f"DAMAGED: {self.problem}" if self.problem else built,
            targets_text(info) if info else "",
            *(f"cuda:{info.device_id}" if info and info.device_id is not None else "",),
            str(sum(self.operator_counts.values()) or ""),
            size_text(self.size),
        )

    def binding_rows(self, index: int) -> Iterator[tuple[str, ...]]:
        """Yield a row for each tensor of its engine."""
        bindings = self.engine.bindings if self.engine else ()
        notes = {b.name: f"result of {b.value_of}, for debugging" for b in bindings if b.value_of}
        if self.engine:
            notes |= {a.output: f"written into {a.input}" for a in self.engine.aliases}
        for is_input, names in ((True, self.partition.inputs), (False, self.partition.outputs)):
            chosen = [binding for binding in bindings if binding.is_input == is_input]
            extra = [""] * sum(bool(binding.value_of) for binding in chosen)  # These come last.
            given = [*names, *extra]
            given = given if len(given) == len(chosen) else [""] * len(chosen)
            for binding, name in zip(chosen, given, strict=True):
                yield (
                    *(str(index), "in" if is_input else "out", binding.name, name),
                    *(binding.dtype, binding_sizes(binding), notes.get(binding.name, "")),
                )

    @cached_property
    def kernels(self) -> EngineKernels | None:
        """Return the kernels that a call of its engine launches; None if they are not known.

        The engine is passed over once, when this is first read.
        """
        if self.engine is None or self.problem:
            return None
        return read_kernels(decode_blob(self.blob, verify=False).engine)

    @property
    def operator_counts(self) -> dict[str, int]:
        """Count the calls of each operator of the partition, or else of each kernel."""
        return dict(self.partition.operators) or dict(Counter(self.operators))


@dataclass(frozen=True)
class DeviceUse:
    """Tensors and planned bytes of a method on one device, such as ``cuda:1`` or ``cpu``."""

    device: str
    tensors: int
    planned_bytes: int


@dataclass(frozen=True)
class CopyInfo:
    """One copy between host and GPU that ExecuTorch does in every call of a method.

    Attributes:
        direction: ``h2d`` or ``d2h``.
        device: The GPU.
        nbytes: Its bytes, at the largest sizes.
    """

    direction: str
    device: str
    nbytes: int


@dataclass(frozen=True)
class MethodInfo(Shown):
    """One method: its delegates, the operators on the CPU, and the devices of its tensors.

    Attributes:
        name: Its name.
        delegates: Its delegates.
        cpu_operators: The operators that it calls outside of delegates, once each.
        devices: Tensors and planned memory of each device.
        input_values: Its inputs, as indices into ``values``.
        output_values: Its outputs, as indices into ``values``.
        calls: Its calls, in order.
        values: The tensors that calls refer to by index; None for other values.
        output_names: The model's name of each output, if it returns a dict or a data class; else
            empty names.
    """

    name: str
    delegates: tuple[DelegateInfo, ...]
    cpu_operators: tuple[str, ...]
    devices: tuple[DeviceUse, ...]
    input_values: tuple[int, ...] = ()
    output_values: tuple[int, ...] = ()
    calls: tuple[Call, ...] = ()
    values: tuple[TensorValue | None, ...] = ()
    output_names: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[TensorValue | None, ...]:
        """Return the inputs; None for one that is no tensor."""
        return tuple(self.values[index] for index in self.input_values)

    @property
    def outputs(self) -> tuple[TensorValue | None, ...]:
        """Return the outputs; None for one that is no tensor."""
        return tuple(self.values[index] for index in self.output_values)

    @property
    def copies(self) -> tuple[CopyInfo, ...]:
        """Return the copies between host and GPU in each call."""
        return tuple(copy for copy, _, _ in self._copies())

    def _copies(self) -> Iterator[tuple[CopyInfo, int, int]]:
        """Yield each copy, with the values that it reads and writes."""
        for call in self.calls:
            values = [(index, self.values[index]) for index in call.args]
            tensors = [(index, tensor) for index, tensor in values if tensor is not None]
            direction = self.copy_direction(call)
            if direction and tensors:
                (source, read), (target, written) = tensors[0], tensors[-1]
                on_gpu = written if direction == "h2d" else read
                yield CopyInfo(direction, on_gpu.device, read.nbytes), source, target

    def copy_direction(self, call: Call) -> str:
        """Return ``h2d`` or ``d2h`` for a copy between host and GPU; empty for another call."""
        name = self.cpu_operators[call.index] if call.kind == "kernel" else ""
        return _DIRECTIONS.get(name.partition(".")[0], "")

    def tables(self) -> Iterator[Table]:
        """Yield tables of its facts."""
        names = self.value_names
        ends = [
            (f"{kind} {at}", names.get(index, ""), *_tensor_cells(self.values[index]))
            for kind, indices in (("input", self.input_values), ("output", self.output_values))
            for at, index in enumerate(indices)
        ]
        yield Table(f"Method {self.name}", _ENDS, ends, ["bytes"]).without_empty_columns()
        delegates = list(enumerate(self.delegates))
        rows = [delegate.row(index) for index, delegate in delegates]
        if rows:
            table = Table("Delegates", DELEGATE, rows, ["operators", "bytes"])
            yield table.without_empty_columns()
        rows = [row for index, delegate in delegates for row in delegate.binding_rows(index)]
        if rows:
            table = Table("Inputs and outputs of engines", ("delegate", *BINDING), rows)
            yield table.without_empty_columns()
        calls = {f"delegate {index}": delegate.operator_counts for index, delegate in delegates}
        rows = [
            (where, str(sum(counts.values())), counted(counts) or "nothing")
            for where, counts in {**calls, "on the CPU": self.operator_calls}.items()
            if counts or where == "on the CPU"
        ]
        yield Table("Operators", ("", "calls", "operators"), rows, ["calls"])
        rows = [(u.device, str(u.tensors), size_text(u.planned_bytes)) for u in self.devices]
        yield Table("Memory", ("device", "tensors", "planned"), rows, ["tensors", "planned"])
        rows = []
        for direction, name in (("h2d", "to the GPU"), ("d2h", "to the host")):
            sizes = [copy.nbytes for copy in self.copies if copy.direction == direction]
            if sizes:
                rows.append((name, str(len(sizes)), size_text(sum(sizes))))
        if rows:
            heads = ("direction", "copies", "bytes")
            yield Table("Copies in each call", heads, rows, heads[1:])

    @property
    def value_names(self) -> dict[int, str]:
        """Return the model's names of values that enter and leave it or engines, by index."""
        names: dict[int, str] = {}
        for call in self.calls:
            if call.kind == "delegate":
                partition = self.delegates[call.index].partition
                given = [*partition.inputs, *partition.outputs]
                if len(given) == len(call.args):
                    names |= zip(call.args, given, strict=True)
        for _, source, target in self._copies():
            if target in names:
                names.setdefault(source, names[target])
            elif source in names:
                names[target] = names[source]
        named = zip(self.output_values, self.output_names, strict=False)
        return names | {v: name for v, name in named if name and v not in self.input_values}

    @property
    def operator_calls(self) -> dict[str, int]:
        """Count the calls of each operator on the CPU, without copies between devices."""
        calls = [call for call in self.calls if call.kind == "kernel"]
        others = [call.index for call in calls if not self.copy_direction(call)]
        return dict(Counter(self.cpu_operators[index] for index in others))


@dataclass(frozen=True)
class ProgramInfo(Shown):
    """One ``.pte``.

    Attributes:
        methods: Its methods.
        size: Bytes of the file.
        constant_bytes: Bytes of constants that CPU kernels use.
        named_data: Names and sizes of data that backends share, such as XNNPACK's weights.
    """

    methods: tuple[MethodInfo, ...]
    size: int
    constant_bytes: int
    named_data: tuple[tuple[str, int], ...]

    def tables(self) -> Iterator[Table]:
        """Yield tables of its facts."""
        for method in self.methods:
            yield from method.tables()
        rows = []
        if self.constant_bytes:
            rows.append(("constants of CPU kernels", size_text(self.constant_bytes)))
        if self.named_data:
            named = f"named data of delegates: {len(self.named_data)}"
            rows.append((named, size_text(sum(size for _, size in self.named_data))))
        if rows:
            yield Table("Data", ("", "bytes"), rows, ["bytes"])

    def method(self, name: str, where: str | PathLike[str] = "the program") -> MethodInfo:
        """Return the method of a name; empty: the first one.

        Raises:
            OptionError: There is no method of that name; the message begins with ``where``.
        """
        methods = {method.name: method for method in self.methods}
        if name and name not in methods:
            raise OptionError(f"{where} has no method {name!r}; it has {', '.join(methods)}")
        return methods[name] if name else self.methods[0]

    @property
    def problems(self) -> tuple[str, ...]:
        """Describe each damaged engine in one sentence."""
        return tuple(
            f"method {method.name!r}, delegate {index}: {delegate.problem}"
            for method in self.methods
            for index, delegate in enumerate(method.delegates)
            if delegate.problem
        )


def _tensor_cells(tensor: TensorValue | None) -> tuple[str, ...]:
    if tensor is None:
        return "no tensor", "", "", ""
    most = "at most " if tensor.is_dynamic else ""
    return tensor.dtype, f"{most}{list(tensor.sizes)}", tensor.device, size_text(tensor.nbytes)
