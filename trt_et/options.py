"""The options of an engine: one typed field per option.

The rest follows from the field: an option is checked when the object is made, goes to
Torch-TensorRT (``compilation_settings``) and to worker processes, is part of the key of the engine
cache, and is listed in ``docs/options.md`` (``options_table``). How to add one:
``docs/internals/add-an-option.md``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final

from trt_et.errors import OptionError, UnknownOption

PRECISIONS: Final = ("float16", "bfloat16")
"""The values of ``BuildOptions.precision``, besides None."""

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")
_COMPACT = re.compile(r"(?:sm_|compute_)?(\d{1,2})(\d)")

Check = Callable[[str, Any], Any]
"""Takes an option's name and value; returns the value to keep, or raises ``OptionError``."""


def option(
    default: Any,  # noqa: ANN401
    check: Check,
    text: str,
    *,
    setting: str = "",
    sent_as: Callable[[Any], Any] = lambda value: value,
) -> Any:  # noqa: ANN401
    """Make a dataclass field with its check and its documentation.

    Args:
        default: Its default value.
        check: Checks a value.
        text: Describes it, in one sentence or two.
        setting: The field of Torch-TensorRT's ``CompilationSettings`` that it sets, if any.
        sent_as: The value of that field, from the option's.
    """
    facts = {"check": check, "text": text, "setting": setting, "sent_as": sent_as}
    return field(default=default, metadata=facts)


def _capabilities(name: str, value: Any) -> tuple[str, ...]:  # noqa: ANN401
    if isinstance(value, str) or not isinstance(value, Sequence | None):
        raise OptionError(
            f"{name} is {value!r}; expected a sequence of strings such as ['8.6', '8.9']"
        )
    # The text of a float, such as 8.6 or 12.0, has one form only.
    texts = [str(item) if isinstance(item, float) else item for item in value or ()]
    for capability in texts:
        if not isinstance(capability, str) or not _CAPABILITY.fullmatch(capability):
            compact = _COMPACT.fullmatch(str(capability))
            near = f"; did you mean '{compact[1]}.{compact[2]}'?" if compact else ", such as '8.9'"
            raise OptionError(
                f"compute capability {capability!r} is not of the form '<major>.<minor>'{near}"
            )
    return tuple(texts)


def _must_be(expected: str, accepts: Callable[[Any], bool]) -> Check:
    """Return a check that keeps the values that ``accepts`` takes."""

    def check(name: str, value: Any) -> Any:  # noqa: ANN401
        if accepts(value):
            return value
        raise OptionError(f"{name} is {value!r}; expected {expected}")

    return check


def _number(expected: str, low: int, high: float = math.inf) -> Check:
    """Return a check that keeps None and the integers from ``low`` to ``high``."""
    return _must_be(expected, lambda n: n is None or (type(n) is int and low <= n <= high))


_flag: Final = _must_be("True or False", lambda value: type(value) is bool)
# Other names of float16 and bfloat16; the text of a torch.dtype is the first.
_SHORT_NAMES: Final = {"fp16": "float16", "half": "float16", "bf16": "bfloat16"}


def _precision(name: str, value: Any) -> str | None:  # noqa: ANN401
    if value is None:
        return None
    text = str(value).removeprefix("torch.")
    precision = _SHORT_NAMES.get(text, text)
    if precision in PRECISIONS:
        return precision
    raise OptionError(
        f"{name} is {value!r}; expected None (the model's dtypes), "
        f"{' or '.join(map(repr, PRECISIONS))}; int8 and fp8 need a quantizer: "
        "help('trt_et.quantizer')"
    )


# Names of torch_tensorrt.compile() and of others, and what to use instead.
_PRECISION_ADVICE: Final = "use precision='float16' or precision='bfloat16'"
_ELSEWHERE: Final = {
    **dict.fromkeys(("enabled_precisions", "enable_autocast"), _PRECISION_ADVICE),
    **dict.fromkeys(("fp16", "bf16", "half", "bfloat16", "float16", "dtype"), _PRECISION_ADVICE),
    "torch_executed_modules": "use excluded_ops=[...] with names of operators or nodes",
    "cache_built_engines": "use cache=True",
    "engine_cache_dir": "use cache=<folder>",
    "dryrun": "use TensorRTPartitioner.explain(program)",
}
_REFUSED: Final = {
    "strip_engine_weights": "makes engines without weights, and nothing here puts them back when "
    "a program is loaded",
    "version_compatible": "makes engines that no other TensorRT version runs: Torch-TensorRT "
    "leaves the lean runtime out; export once with each TensorRT version",
}


def _settings(name: str, value: Any) -> Mapping[str, Any]:  # noqa: ANN401
    if not isinstance(value, Mapping | None):
        raise OptionError(f"{name} is {type(value).__name__}; expected a dictionary")
    given = dict(value or {})
    for setting in given:
        if own := _reserved_settings().get(setting):
            raise OptionError(f"setting {setting!r} is an option of the partitioner itself: {own}")
        advice = _ELSEWHERE.get(setting)
        if setting in _UNREAD or advice:
            raise OptionError(
                f"setting {setting!r} would change nothing: only torch_tensorrt.compile() reads it"
                + (f"; {advice}" if advice else "")
            )
    for setting, why in _REFUSED.items():
        if given.get(setting):
            raise OptionError(f"{setting} {why}")
    return given


@dataclass(frozen=True)
class BuildOptions:
    """The options of an engine; see ``docs/options.md``.

    Raises:
        OptionError: A value has the wrong type or form, or occurs twice.
    """

    compute_capabilities: tuple[str, ...] = option(
        (),
        _capabilities,
        'Targets, such as `["8.6", "8.9"]`. Empty: the GPU at hand (`tensorrt`), or the '
        "library's default set, Ampere and later (`tensorrt_rtx`).",
    )
    optimization_level: int | None = option(
        None,
        _number("0..5", 0, 5),
        "TensorRT's builder optimization level, 0 to 5. None: its default.",
        setting="optimization_level",
    )
    torch_tensorrt_settings: Mapping[str, Any] = option(
        None,
        _settings,
        "Further fields of Torch-TensorRT's `CompilationSettings`, such as "
        '`{"disable_tf32": True}`.',
    )
    workspace_size: int | None = option(
        None,
        _number("bytes, 1 or more", 1),
        "Bytes of scratch memory that TensorRT may use. None: all.",
        setting="workspace_size",
    )
    hardware_compatible: bool = option(
        False,
        _flag,
        "Engines for all GPUs from Ampere on (TensorRT-RTX's always are).",
        setting="hardware_compatible",
    )
    refittable: bool = option(
        False,
        _flag,
        "Engines whose weights TensorRT's refitter can replace. Nothing in trt-et refits one: "
        "neither the export nor the runtime.",
        setting="immutable_weights",
        sent_as=lambda refittable: not refittable,
    )
    weight_streaming: bool = option(
        False,
        _flag,
        "Engines that may keep weights in host memory; the compile spec and load option "
        "`weight_streaming_budget` sets how much.",
        setting="enable_weight_streaming",
    )
    dla_core: int | None = option(
        None,
        _number("a DLA core, such as 0", 0),
        "Build for this DLA core of a Jetson (`tensorrt`). The load option `dla_core` chooses the "
        "core that runs the engine. None: build for the GPU.",
    )
    dla_gpu_fallback: bool = option(
        False,
        _flag,
        "With `dla_core`: layers that DLA cannot run are built for the GPU. False: such a layer "
        "fails the build.",
    )

    precision: str | None = option(
        None,
        _precision,
        '`"float16"` or `"bfloat16"` (or the `torch.dtype`): engines compute in it and keep their '
        "weights in it, except operators that need float32 ([which](guides/precision.md)). None: "
        "the model's dtypes.",
    )
    debug_outputs: bool = option(
        False,
        _flag,
        "Engines that also write the result of each operator, for ExecuTorch's "
        "`Inspector.calculate_numeric_gap` ([guide](guides/debugging.md)). They are slower.",
    )

    def __post_init__(self) -> None:
        for known in fields(self):
            check: Check = known.metadata["check"]
            object.__setattr__(self, known.name, check(known.name, getattr(self, known.name)))

    def compilation_settings(self) -> dict[str, Any]:
        """Return the ``CompilationSettings`` fields that differ from Torch-TensorRT's defaults."""
        chosen = dict(self.torch_tensorrt_settings)
        for known in fields(self):
            value = getattr(self, known.name)
            if known.metadata["setting"] and value != known.default:
                chosen[known.metadata["setting"]] = known.metadata["sent_as"](value)
        return chosen


# Fields of CompilationSettings, and the partitioner's arguments that set them.
_PARTITIONER: Final = {
    "device": "device",
    "torch_executed_ops": "excluded_ops",
    "min_block_size": "min_block_size",
    "require_full_compilation": "full_graph",
}


# Fields of CompilationSettings that neither its converters nor the lowering passes called here
# read.
_UNREAD: Final = frozenset(
    {
        *("autocast_calibration_dataloader", "autocast_excluded_nodes", "autocast_excluded_ops"),
        *("autocast_low_precision_type", "autocast_max_depth_of_reduction"),
        *("autocast_max_output_threshold", "cache_built_engines", "cpu_memory_budget"),
        *("decompose_attention", "dryrun", "dynamically_allocate_resources", "enable_autocast"),
        *("enable_experimental_decompositions", "enable_resource_partitioning"),
        *("fallback_data_dependent_ops", "lazy_engine_init", "pass_through_build_failures"),
        *("reuse_cached_engines", "timing_cache_path", "use_complex_decomposition"),
        *("use_distributed_mode_trace", "use_fast_partitioner"),
    }
)


def _reserved_settings() -> dict[str, str]:
    """Return the partitioner's option that sets each field of ``CompilationSettings``."""
    own = {known.metadata["setting"]: known.name for known in fields(BuildOptions)}
    return {setting: name for setting, name in (own | _PARTITIONER).items() if setting}


def check_known(given: Iterable[str], known: Iterable[str]) -> None:
    """Check that all options exist; Torch-TensorRT's names are answered by ours.

    Args:
        given: The names of unknown options; empty: nothing is wrong.
        known: The names of all options.

    Raises:
        UnknownOption: An option is unknown.
    """
    own = {setting: f"use {name}" for setting, name in _reserved_settings().items()}
    advice_of = own | _ELSEWHERE
    for name in given:
        if name in advice_of:
            advice = advice_of[name]
        elif close := get_close_matches(name, known, n=2):
            advice = f"did you mean {' or '.join(close)}?"
        else:
            advice = (
                "help(trt_et.TensorRTPartitioner) lists the options; other fields of "
                "Torch-TensorRT's CompilationSettings go into torch_tensorrt_settings={...}"
            )
        raise UnknownOption(f"{name!r} is no option of the partitioner: {advice}")


def options_table(options: type[BuildOptions] = BuildOptions) -> str:
    """Return the options as the Markdown table at the end of ``docs/options.md``."""
    rows = [
        f"| `{known.name}` | `{known.default!r}` | {known.metadata['text']} |"
        for known in fields(options)
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"
