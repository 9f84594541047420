"""A builder that compares a partition's network with the partition's program, run by torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from tests.support.network_evaluator import BadNetwork, NotEvaluated, Undefined, evaluate
from trt_et.blob.writer import BlobWriter
from trt_et.conversion.operators.member_sums import EMBEDDING_BAG
from trt_et.engine_info import EngineInfo
from trt_et.engine_program.program import DTYPE_NAMES, EngineProgram, unlift
from trt_et.engines import BuildRequest, EngineBuilder
from trt_et.engines.reference.builder import ReferenceBuilder
from trt_et.engines.serialize import build_network
from trt_et.graph.symbolic_shapes import shape_env_of, shape_range

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass
class Verdict:
    partition: str
    operators: list[str]
    outcome: str  # "equal", "different", "bad network" or "not evaluated".
    why: str = ""


def smooth(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Numbers of both signs without ties."""
    return torch.randn(shape, generator=generator) * 2


def halves(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Multiples of a half: where rounding, floors and comparisons have their edges."""
    return torch.randint(-7, 8, shape, generator=generator) * 0.5


def integers(low: int, high: int) -> Callable[..., torch.Tensor]:
    """Whole numbers from a range."""

    def draw(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    return draw


def large(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Whole numbers that float32 cannot tell apart."""
    return (1 << 26) + torch.randperm(max(torch.Size(shape).numel(), 1), generator=generator)[
        : torch.Size(shape).numel()
    ].reshape(shape)


def no_zeros(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Whole numbers of both signs, to divide by."""
    drawn = torch.randint(1, 8, shape, generator=generator)
    return drawn * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)


def in_turn(dim: int) -> Callable[..., torch.Tensor]:
    """0, 1, 2, ... along a dimension, shuffled: indices that no scatter meets twice."""

    def draw(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        if len(shape) < max(dim + 1, -dim):
            raise IndexError
        return torch.rand(shape, generator=generator).argsort(dim)

    return draw


DRAWS = 4
FLOATS = (smooth, halves)
INTEGERS = (integers(-9, 10), large)
# Of dynamic dimensions; few of the largest, since they may be large.
SIZES = ("opt_shape", "min_shape", "max_shape")
FALLBACKS = (
    *(no_zeros, in_turn(-1), in_turn(-2), in_turn(0)),
    *(integers(-2, 2), integers(0, 2), integers(0, 1)),
)


def draws(asked: EngineProgram, seed: int = 0) -> Iterator[list[torch.Tensor]]:
    """Inputs that the program takes, several times, with edges of its dtypes among them."""
    program = unlift(asked.exported)
    generator = torch.Generator().manual_seed(seed)
    offsets = _bag_offsets(program)

    placeholders = program.graph.find_nodes(op="placeholder")

    def drawn(sizes: str, floats: Any, whole: Any) -> list[torch.Tensor]:
        tensors = [
            _input(binding, _shape(node.meta.get("val"), binding, sizes), floats, whole, generator)
            for binding, node in zip(asked.inputs, placeholders, strict=True)
        ]
        for place in offsets:
            tensors[place] = tensors[place].sort().values
            tensors[place][:1] = 0
        return tensors

    whole_numbers = [
        *(INTEGERS[:1] if _computes_floats(asked) else INTEGERS),
        *FALLBACKS,
    ]
    taken = 0
    # A scatter may find its indices only among the later ones.
    for number, whole in enumerate(whole_numbers):
        first = number % len(SIZES)
        for sizes in (*SIZES[first:], *SIZES[:first]):
            try:
                tried = drawn(sizes, FLOATS[number % 2], whole)
                with torch.no_grad():
                    program(*(tensor.clone() for tensor in tried))
            except (IndexError, RuntimeError, ZeroDivisionError):
                continue
            taken += 1
            yield tried
            break
        if taken == DRAWS:
            return


def _bag_offsets(program: torch.fx.GraphModule) -> list[int]:
    """Which inputs say where bags begin: torch defines increasing ones only, and checks none."""
    inputs = program.graph.find_nodes(op="placeholder")
    bags = [node for node in program.graph.nodes if node.target in EMBEDDING_BAG.targets]
    return [inputs.index(node.args[2]) for node in bags if node.args[2] in inputs]


def _computes_floats(asked: EngineProgram) -> bool:
    values = (node.meta.get("val") for node in asked.exported.graph.nodes)
    return any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in values)


def _shape(value: Any, binding: Any, sizes: str) -> tuple[int, ...]:
    """The shape of an input if all symbols have the least, the best or the greatest value.

    A binding's least shape may be impossible: of ``n + n % 2``, it is less than any value.
    """
    if not binding.is_dynamic:
        return tuple(binding.shape)
    chosen = tuple(getattr(binding, sizes))
    if not isinstance(value, torch.Tensor):
        return chosen
    place = ("min_shape", "opt_shape", "max_shape").index(sizes)

    def size_at(size: Any) -> Any:
        if isinstance(size, int):
            return size
        env = shape_env_of(size)
        values = {}
        for symbol in size.node.expr.free_symbols:
            hint = env.backed_var_to_val.get(symbol)
            known = env.create_symintnode(symbol, hint=None if hint is None else int(hint))
            values[symbol] = shape_range(known)[place]
        return size.node.expr.subs(values)

    found = [size_at(size) for size in value.shape]
    is_known = all(isinstance(size, int) or size.is_Integer for size in found)
    return tuple(map(int, found)) if is_known else chosen


def _input(
    binding: Any, shape: tuple[int, ...], floats: Any, whole: Any, generator: torch.Generator
) -> torch.Tensor:
    dtype = _DTYPES[binding.dtype]
    if dtype.is_floating_point:
        return floats(shape, generator).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype in (torch.int8, torch.uint8):
        return torch.randint(-9 if dtype == torch.int8 else 0, 10, shape, generator=generator).to(
            dtype
        )
    return whole(shape, generator).to(dtype)


PRECISION = {torch.float16: 2e-2, torch.bfloat16: 1e-1}


def difference(found: torch.Tensor, expected: torch.Tensor, precision: float) -> str:
    """In words how they differ; empty where they agree."""
    try:
        scale, precision = 1.0, precision if expected.is_floating_point() else 0.0
        if expected.is_floating_point():
            finite = expected[torch.isfinite(expected)]
            scale = max(float(finite.abs().max()) if finite.numel() else 1.0, 1.0)
        torch.testing.assert_close(
            found, expected, rtol=precision, atol=precision * scale, equal_nan=True
        )
    except AssertionError as error:
        return str(error).partition("\n\n")[0] + "; " + str(error).rpartition("\n\n")[2]
    return ""


def operators_of(request: BuildRequest) -> list[str]:
    nodes = request.program.exported.graph.nodes
    return sorted({str(n.target) for n in nodes if n.op == "call_function"})


Run = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def judge(
    request: BuildRequest, examples: tuple[torch.Tensor, ...], run: Run, again: Run | None = None
) -> Verdict:
    """Compare what a network gives with what its partition's program gives.

    Args:
        request: The partition.
        examples: Its own inputs, if they are known; others are drawn as well.
        run: Runs the network; raises ``Undefined``, ``NotEvaluated`` or ``BadNetwork``.
        again: Runs it once more if integers differ; what it gives counts.
    """
    asked = request.program
    nodes = asked.exported.graph.nodes
    dtypes = [v.dtype for n in nodes if isinstance(v := n.meta.get("val"), torch.Tensor)]
    precision = max((PRECISION.get(dtype, 1e-4) for dtype in dtypes), default=1e-4)
    program = unlift(asked.exported)
    result = partial(Verdict, request.partition, operators_of(request))
    judged = 0
    for number, inputs in enumerate([*([list(examples)] if examples else []), *draws(asked)], 1):
        try:
            with torch.no_grad():
                expected = program(*(t.clone() for t in inputs))
                found = run(inputs)
        except Undefined:
            continue
        except NotEvaluated as error:
            return result("not evaluated", str(error))
        except BadNetwork as error:
            return result("bad network", f"draw {number}: {error}")
        judged += 1
        for index, (have, want) in enumerate(zip(found, expected, strict=True)):
            why = difference(have, want, precision)
            if why and again and not want.is_floating_point():
                why = difference(again(inputs)[index], want, precision)
            if why:
                return result("different", f"draw {number}, output {index}: {why}")
    if not judged:
        return result("not evaluated", "no inputs with a defined result were found")
    return result("equal")


def compare(request: BuildRequest, *examples: torch.Tensor) -> Verdict:
    """Evaluate a partition's network and its program on the same inputs."""
    network = build_network(request, "tensorrt_rtx")
    names = [binding.name for binding in request.program.inputs]

    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return evaluate(network, dict(zip(names, inputs, strict=True)))

    return judge(request, examples, run)


class ComparingBuilder(EngineBuilder):
    """Adds how each partition's network compares to ``verdicts``; builds engines if it ``runs``."""

    name = "comparing"

    def __init__(self, verdicts: list[Verdict], *, runs: bool = False) -> None:
        self.verdicts = verdicts
        self.runs = runs

    def build(self, request: BuildRequest) -> bytes:
        self.verdicts.append(compare(request))
        if self.runs:
            return ReferenceBuilder().build(request)
        info = EngineInfo(request.program.bindings, request.device_id, builder=self.name)
        with BlobWriter(info) as writer:
            writer.write(b"no engine")
            return writer.finish()
