"""Calls of ATen's operators, tried one by one: do they go into an engine, static and dynamic?"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch.export import Dim
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.torch_samples import op_db
from trt_et import TensorRTPartitioner
from trt_et.errors import TrtEtError
from trt_et.partition.operator_support import COMPUTES_A_SIZE

_log = logging.getLogger(__name__)
aten = torch.ops.aten
CALLS = 2  # Of each operator.
_SAMPLES = 8  # Of each of torch's tests of operators.
_DTYPES = (torch.float32, torch.int64, torch.bool)
_TENSORRT = (*_DTYPES, torch.int32)
_WEIGHTS = ("weight", "bias", "running_mean", "running_var", "scale")
# A call of a view alone is not worth an engine.
_IS_A_VIEW = "its partition would only reshape or quantize"
_ROW, _LINE, _IMAGE, _VOLUME = ((2, 6), (2, 3, 8), (2, 3, 8, 8), (2, 3, 4, 6, 6))

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _tensor(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 0.5


def _whole(*shape: int) -> torch.Tensor:
    return (_tensor(*shape) * 9).long()


def _sizes(operator: OpOverload, *sizes: Any) -> Callable[..., Any]:
    """Call an operator with sizes of its tensor: of a number, and of that dimension for None."""

    def call(x: torch.Tensor) -> Any:
        return operator(x, [x.shape[d] if s is None else s for d, s in enumerate(sizes)])

    return call


# What torch's tests do not call by this overload, or with numbers in place of dynamic sizes.
_OWN: dict[OpOverload, list[tuple[Callable[..., Any] | None, tuple[Any, ...]]]] = {
    aten._native_batch_norm_legit.no_stats: [
        (None, (_tensor(*_IMAGE), _tensor(3), _tensor(3), True, 0.1, 1e-5))
    ],
    aten._native_batch_norm_legit_no_training.default: [
        (None, (_tensor(*_IMAGE), *(_tensor(3) for _ in range(4)), 0.1, 1e-5))
    ],
    aten._prelu_kernel.default: [(None, (_tensor(*_IMAGE) - 1, _tensor(1, 3, 1, 1)))],
    aten._to_copy.default: [
        (lambda x, dtype=dtype: aten._to_copy(x, dtype=dtype), (_tensor(*_ROW),))
        for dtype in (torch.float16, torch.int64)
    ],
    aten.full_like.default: [(lambda x: aten.full_like(x, 2.0) * x, (_tensor(*_ROW),))],
    aten.nonzero.default: [(None, (_tensor(*_ROW),))],
    **{
        operator: [
            (None, (_whole(*_ROW) > 3, _whole(*_ROW) > 5)),
            (None, (_whole(*_ROW), _whole(*_ROW))),
        ]
        for operator in (aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor)
    },
    aten._embedding_bag.default: [(None, (_tensor(9, 4), _whole(6), torch.tensor([0, 3])))],
    aten.embedding_bag.padding_idx: [
        (None, (_tensor(15, 4), _whole(6), torch.tensor([0, 3]), False, 0, False, None, False, 1))
    ],
    aten.adaptive_avg_pool1d.default: [(None, (_tensor(*_LINE), [4]))],
    aten.adaptive_avg_pool2d.default: [(None, (_tensor(*_IMAGE), [n, n])) for n in (4, 1)],
    aten.adaptive_avg_pool3d.default: [(None, (_tensor(*_VOLUME), [2, 2, 2]))],
    aten.avg_pool1d.default: [(None, (_tensor(*_LINE), [2]))],
    **{
        operator: [(None, (_whole(*_ROW), 5))]
        for operator in (aten.bitwise_and.Scalar, aten.bitwise_or.Scalar, aten.bitwise_xor.Scalar)
    },
    aten.col2im.default: [(None, (_tensor(2, 12, 16), [8, 8], [2, 2], [1, 1], [0, 0], [2, 2]))],
    aten.copy.default: [(None, (_tensor(*_ROW), _tensor(*_ROW)))],
    aten.div.Scalar_mode: [
        (lambda x, mode=mode: aten.div.Scalar_mode(x, 2.5, rounding_mode=mode), (_tensor(*_ROW),))
        for mode in ("floor", "trunc")
    ],
    aten.expand.default: [(_sizes(aten.expand.default, None, 6), (_tensor(2, 1),))],
    aten.fmod.Scalar: [(None, (_tensor(*_ROW), 0.7))],
    aten.full.default: [
        (lambda x: aten.full.default(list(x.shape), 2.0) * x, (_tensor(*_ROW),)),
    ],
    aten.arange.start_step: [
        (lambda x: aten.arange.start_step(0, x.shape[0], 1) * x, (_tensor(6),)),
    ],
    aten.scalar_tensor.default: [(lambda x: aten.scalar_tensor(2.0) * x, (_tensor(6),))],
    aten.grid_sampler.default: [(None, (_tensor(*_IMAGE), _tensor(2, 5, 5, 2) - 1, 0, 0, False))],
    **{f: [(None, (_tensor(*_ROW), 1))] for f in (aten.gt.Scalar, aten.ge.Scalar)},
    aten.instance_norm.default: [
        (
            None,
            (_tensor(*_IMAGE), *(_tensor(3) for _ in "wb"), None, None, True, 0.1, 1e-5, False),
        ),
        (None, (_tensor(*_IMAGE), *(_tensor(3) for _ in range(4)), False, 0.1, 1e-5, False)),
    ],
    aten.linear.default: [(None, (_tensor(2, 5, 6), _tensor(4, 6), _tensor(4)))],
    aten.log_sigmoid.default: [(None, (_tensor(*_ROW),))],
    aten.matmul.default: [
        (None, (_tensor(*a), _tensor(*b))) for a, b in (((2, 5, 6), (2, 6, 4)), ((5, 6), (6,)))
    ],
    aten.max_pool2d.default: [
        (None, (_tensor(*_IMAGE), [3, 3], [2, 2], [1, 1], [1, 1], ceil)) for ceil in (False, True)
    ],
    aten.max_pool3d.default: [(None, (_tensor(*_VOLUME), [2, 2, 2]))],
    aten.native_group_norm.default: [
        (
            lambda x: aten.native_group_norm(x, None, None, x.shape[0], 4, x.shape[2], 2, 1e-5)[0],
            (_tensor(2, 4, 8),),
        )
    ],
    aten.pad.default: [(None, (_tensor(*_ROW), [1, 2], mode)) for mode in ("constant", "reflect")],
    aten.pow.Scalar: [(None, (2.0, _tensor(*_ROW)))],
    aten.reflection_pad3d.default: [(None, (_tensor(*_VOLUME), [1] * 6))],
    aten.replication_pad3d.default: [(None, (_tensor(*_VOLUME), [1] * 6))],
    aten.repeat.default: [(None, (_tensor(*_ROW), [2, 1, 3]))],
    aten.rms_norm.default: [(None, (_tensor(2, 5, 6), [6], _tensor(6), 1e-5))],
    aten.scaled_dot_product_attention.default: [
        (None, tuple(_tensor(2, 4, n, 8) for n in (5, 7, 7))),
        (None, (*(_tensor(2, 4, 5, 8) for _ in "qkv"), None, 0.0, True)),
    ],
    aten.scatter.value: [(None, (_tensor(3, 6), 1, _whole(3, 2) % 6, 2.0))],
    **{
        operator: [(lambda x, f=operator, t=tail: f(x, None, *t), (_tensor(*shape),))]
        for operator, shape, tail in (
            (aten.upsample_linear1d.vec, _LINE, (False, [2.0])),
            (aten.upsample_bilinear2d.vec, _IMAGE, (False, [2.0, 2.0])),
            (aten.upsample_bicubic2d.vec, _IMAGE, (False, [2.0, 2.0])),
            (aten.upsample_trilinear3d.vec, _VOLUME, (False, [2.0] * 3)),
            (aten.upsample_nearest1d.vec, _LINE, ([2.0],)),
            (aten.upsample_nearest2d.vec, _IMAGE, ([2.0, 2.0],)),
            (aten.upsample_nearest3d.vec, _VOLUME, ([2.0] * 3,)),
        )
    },
    aten.var.dim: [(None, (_tensor(*_ROW), [1]))],
    aten.view.default: [(_sizes(aten.view.default, None, 3, 2), (_tensor(*_ROW),))],
}


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[OpOverload, list[Arguments]] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if tensors and all(t.dim() and t.numel() > 1 and t.dtype in _TENSORRT for t in tensors):
            self.calls.setdefault(func, []).append((args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@cache
def _recorded() -> dict[OpOverload, list[Arguments]]:
    """What torch's own tests of operators call, by operator; a quarter of a minute."""
    recorder = _Recorder()
    for info in op_db:
        dtype = next((d for d in _DTYPES if info.supports_dtype(d, "cpu")), None)
        if dtype is None:
            continue
        torch.manual_seed(0)
        try:
            samples = [*islice(info.sample_inputs("cpu", dtype, requires_grad=False), _SAMPLES)]
            for sample in samples:
                with torch.no_grad(), recorder:
                    info.op(sample.input, *sample.args, **sample.kwargs)
        except Exception as error:  # Of a test that needs more than a CPU.
            _log.debug("%s: %s", info.name, error)
    return recorder.calls


class _Call(nn.Module):
    """One call; its tensors are the inputs, weights are buffers, all else is fixed."""

    def __init__(self, operator: Any, args: Any, kwargs: Any, weights: Collection[Any]) -> None:
        super().__init__()
        self.operator = operator
        self.flat, self.spec = pytree.tree_flatten((args, kwargs))
        fixed = set(map(id, weights))
        self.inputs: list[torch.Tensor] = []
        self.places: list[int] = []
        for place, leaf in enumerate(self.flat):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in fixed:
                self.places.append(place)
                self.inputs.append(leaf.detach().clone())
            elif isinstance(leaf, torch.Tensor):
                self.register_buffer(f"weight_{place}", leaf.detach().clone())
                self.flat[place] = None

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        flat = [getattr(self, f"weight_{place}", leaf) for place, leaf in enumerate(self.flat)]
        for place, tensor in zip(self.places, tensors, strict=True):
            flat[place] = tensor
        args, kwargs = pytree.tree_unflatten(flat, self.spec)
        leaves = pytree.tree_leaves(self.operator(*args, **kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not _is_empty(leaf)]


def _is_empty(tensor: torch.Tensor) -> bool:
    return any(isinstance(size, int) and size == 0 for size in tensor.shape)


def calls(operator: OpOverload) -> list[_Call]:
    """Some calls of an operator."""
    if operator in _OWN:
        return [
            _call(operator, function or operator, args, {}) for function, args in _OWN[operator]
        ]
    recorded = sorted(_recorded().get(operator, []), key=_numbers, reverse=True)
    chosen = recorded[:: max(1, len(recorded) // CALLS)][:CALLS]
    return [_call(operator, operator, args, kwargs) for args, kwargs in chosen]


def _numbers(arguments: Arguments) -> int:
    return sum(x.numel() for x in pytree.tree_leaves(arguments) if isinstance(x, torch.Tensor))


def _call(operator: OpOverload, function: Any, args: Any, kwargs: Any) -> _Call:
    given = dict(zip((a.name for a in operator._schema.arguments), args, strict=False)) | kwargs
    weights = [value for name, value in given.items() if name in _WEIGHTS]
    return _Call(function, args, kwargs, weights)


@dataclass
class Tried:
    """What became of the calls of an operator.

    Attributes:
        static: Whether each call goes into an engine.
        dynamic: The same with dynamic sizes; without calls that fix all sizes.
        reasons: Why not, with ``dynamic sizes: `` before reasons of those.
    """

    static: list[bool] = field(default_factory=list)
    dynamic: list[bool] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def tried(operator: OpOverload) -> Tried:
    """Export some calls of an operator, and ask the partitioner about each."""
    result = Tried()
    for call in calls(operator):
        why = _refusals(call, None)
        if why is None:
            continue
        result.static.append(not why)
        result.reasons += why
        found = _dynamic(call, result.reasons) if not why else None
        if found is not None:
            result.dynamic.append(found)
    return result


def _dynamic(call: _Call, reasons: list[str]) -> bool | None:
    """Try all sizes as dynamic ones, then all but the channels."""
    why = _refusals(call, ())
    if not why:
        return None if why is None else True
    again = _refusals(call, (1,))
    where = "dynamic sizes" if again or again is None else "a dynamic second dimension"
    reasons += [f"{where}: {reason}" for reason in why]
    return again == []


def _refusals(call: _Call, fixed: tuple[int, ...] | None) -> list[str] | None:
    """Return the reasons why a call stays on the CPU; None if it cannot be exported like that.

    Args:
        call: The call.
        fixed: The dimensions that are not dynamic; None: all.
    """
    shapes = None
    if fixed is not None:
        shapes = (tuple(_ranges(tensor, fixed) for tensor in call.inputs),)
    partitioner = TensorRTPartitioner(builder="tensorrt_rtx")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(call, tuple(call.inputs), dynamic_shapes=shapes)
        report = None if shapes and not program.range_constraints else partitioner.explain(program)
    except TrtEtError:
        raise
    except Exception as error:  # Of torch or ExecuTorch: any backend would meet it.
        _log.debug("%s: %s", call.operator, error)
        return None
    if report is None:
        return None
    ignored = {COMPUTES_A_SIZE, _IS_A_VIEW, "it returns no tensor"}
    reasons = (why for _, operator, why in report.not_delegated if operator != "getitem")
    return list(dict.fromkeys(why for why in reasons if why not in ignored))


def _ranges(tensor: torch.Tensor, fixed: tuple[int, ...]) -> dict[int, Any]:
    sizes = ((d, size) for d, size in enumerate(tensor.shape) if size > 1 and d not in fixed)
    return {d: Dim.AUTO(min=1, max=2 * size) for d, size in sizes}
