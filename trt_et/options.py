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


def _at_least(low: int) -> Check:
    return _must_be(f"an integer, {low} or more", lambda n: type(n) is int and n >= low)


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


@dataclass(frozen=True)
class Setting:
    """A field of Torch-TensorRT's ``CompilationSettings`` in ``torch_tensorrt_settings``.

    Attributes:
        check: Checks its value.
        builders: The builders that read it.
        needs: The option without which they do not.
    """

    check: Check
    builders: tuple[str, ...] = ("tensorrt", "tensorrt_rtx")
    needs: str = ""


_TENSORRT: Final = ("tensorrt",)
_TILING: Final = ("none", "fast", "moderate", "full")

SETTINGS: Final = {
    "assume_dynamic_shape_support": Setting(_flag),
    "disable_tf32": Setting(_flag),
    "disabled_constant_fold_exclusions": Setting(
        _must_be(
            "a list of names of rules",
            lambda names: (
                isinstance(names, list | tuple | set | frozenset)
                and all(isinstance(name, str) for name in names)
            ),
        )
    ),
    "dla_global_dram_size": Setting(_at_least(1), _TENSORRT, "dla_core"),
    "dla_local_dram_size": Setting(_at_least(1), _TENSORRT, "dla_core"),
    "dla_sram_size": Setting(_at_least(1), _TENSORRT, "dla_core"),
    "l2_limit_for_tiling": Setting(_at_least(-1), _TENSORRT),
    "max_aux_streams": Setting(_number("0 or more", 0), _TENSORRT),
    "num_avg_timing_iters": Setting(_at_least(1), _TENSORRT),
    "refit_identical_engine_weights": Setting(_flag, _TENSORRT, "refittable"),
    "sparse_weights": Setting(_flag, _TENSORRT),
    "tiling_optimization_level": Setting(
        _must_be(f"one of {', '.join(map(repr, _TILING))}", lambda level: level in _TILING),
        _TENSORRT,
    ),
    "truncate_double": Setting(_flag),
    "use_fp32_acc": Setting(_flag),
    "version_compatible": Setting(_flag, _TENSORRT),
}
"""The fields of ``CompilationSettings`` that ``torch_tensorrt_settings`` takes."""

_PRECISION_ADVICE: Final = "use precision='float16' or precision='bfloat16'"
_CACHE_ADVICE: Final = "use cache=True, or cache=<folder>"
_ADVICE: Final = {
    **dict.fromkeys(
        ("enabled_precisions", "enable_autocast", "autocast_low_precision_type"), _PRECISION_ADVICE
    ),
    **dict.fromkeys(
        ("autocast_excluded_nodes", "autocast_excluded_ops"), "use float32_ops with precision"
    ),
    "autocast_calibration_dataloader": "use calibration with precision",
    **dict.fromkeys(
        ("cache_built_engines", "reuse_cached_engines", "engine_cache_dir"), _CACHE_ADVICE
    ),
    "timing_cache_path": f"{_CACHE_ADVICE}, which also keeps the timing cache",
    "torch_executed_ops": "use excluded_ops",
    "torch_executed_modules": "use excluded_ops=[...] with names of operators or nodes",
    "require_full_compilation": "use full_graph",
    "dryrun": "use TensorRTPartitioner.explain(program)",
    "device": "use device",
    "min_block_size": "use min_block_size",
    "attn_bias_is_causal": "it replaces masks by causal ones, which changes results",
    "enable_cross_compile_for_windows": "it makes engines for Windows, which trt-et does not "
    "support",
    "engine_capability": "it makes engines for other runtimes than trt-et's",
    "strip_engine_weights": "it makes engines without weights, and nothing here puts them back "
    "when a program is loaded",
}
# Fields that neither Torch-TensorRT's converters nor the passes and functions called here read.
_UNREAD: Final = frozenset(
    {
        *("autocast_max_depth_of_reduction", "autocast_max_output_threshold"),
        *("cpu_memory_budget", "decompose_attention", "dynamically_allocate_resources"),
        *("enable_experimental_decompositions", "enable_resource_partitioning"),
        *("fallback_data_dependent_ops", "lazy_engine_init", "offload_module_to_cpu"),
        *("pass_through_build_failures", "use_complex_decomposition"),
        *("use_distributed_mode_trace", "use_fast_partitioner"),
    }
)


def _answer(name: str) -> str:
    """Return what to use in place of a name of Torch-TensorRT's; empty: no answer is known."""
    own = {known.metadata["setting"]: known.name for known in fields(BuildOptions)}
    if name and name in own:
        return f"use {own[name]}"
    unread = "only torch_tensorrt.compile() reads it" if name in _UNREAD else ""
    return _ADVICE.get(name, unread)


def _settings(name: str, value: Any) -> Mapping[str, Any]:  # noqa: ANN401
    if not isinstance(value, Mapping | None):
        raise OptionError(f"{name} is {type(value).__name__}; expected a dictionary")
    given = dict(value or {})
    for setting, chosen in given.items():
        if setting in SETTINGS:
            given[setting] = SETTINGS[setting].check(f"setting {setting!r}", chosen)
            continue
        close = get_close_matches(str(setting), SETTINGS, n=2)
        answer = _answer(setting) or (
            f"Torch-TensorRT has no such field; did you mean {' or '.join(close)}?"
            if close
            else f"it is not one of {', '.join(SETTINGS)}"
        )
        raise OptionError(f"{name} does not take {setting!r}: {answer}")
    return given


def check_settings_are_read(options: BuildOptions, builder: str) -> None:
    """Check that a builder reads each of the ``torch_tensorrt_settings``.

    Raises:
        OptionError: It does not read one.
    """
    for name in options.torch_tensorrt_settings:
        setting = SETTINGS[name]
        if builder not in setting.builders:
            raise OptionError(
                f"setting {name!r} has no effect with builder={builder!r}; leave it out, or use "
                f"builder={setting.builders[0]!r}"
            )
        if setting.needs and setting.needs not in options.changed():
            raise OptionError(f"setting {name!r} has no effect without {setting.needs}")


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
        '`{"disable_tf32": True}` ([which](#torch-tensorrts-settings)).',
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
        "Engines whose weights TensorRT's refitter can replace (`tensorrt`). Nothing in trt-et "
        "refits one. TensorRT-RTX builds none without a GPU.",
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

    def changed(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        default = type(self)()
        names = [known.name for known in fields(self)]
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value != getattr(default, name)}

    def compilation_settings(self) -> dict[str, Any]:
        """Return the ``CompilationSettings`` fields that differ from Torch-TensorRT's defaults."""
        chosen, changed = dict(self.torch_tensorrt_settings), self.changed()
        for known in fields(self):
            if known.metadata["setting"] and known.name in changed:
                value = known.metadata["sent_as"](changed[known.name])
                chosen[known.metadata["setting"]] = value
        return chosen


def check_known(given: Iterable[str], known: Iterable[str]) -> None:
    """Check that all options exist; Torch-TensorRT's names are answered by ours.

    Args:
        given: The names of unknown options; empty: nothing is wrong.
        known: The names of all options.

    Raises:
        UnknownOption: An option is unknown.
    """
    for name in given:
        if name in SETTINGS:
            advice = f"use torch_tensorrt_settings={{{name!r}: ...}}"
        elif answer := _answer(name):
            advice = answer
        elif close := get_close_matches(name, known, n=2):
            advice = f"did you mean {' or '.join(close)}?"
        else:
            advice = "help(trt_et.TensorRTPartitioner) lists the options"
        raise UnknownOption(f"{name!r} is no option of the partitioner: {advice}")


def options_table(options: type[BuildOptions] = BuildOptions) -> str:
    """Return the options as the Markdown table at the end of ``docs/options.md``."""
    rows = [
        f"| `{known.name}` | `{known.default!r}` | {known.metadata['text']} |"
        for known in fields(options)
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"


def settings_table() -> str:
    """Return Torch-TensorRT's settings as the Markdown table in ``docs/options.md``."""
    rows = []
    own = {known.metadata["setting"] for known in fields(BuildOptions)} - {""}
    for name in sorted({*SETTINGS, *_ADVICE, *_UNREAD, *own}):
        if name in SETTINGS:
            setting = SETTINGS[name]
            text = "read by " + " and ".join(f"`{builder}`" for builder in setting.builders)
            text += f", with `{setting.needs}`" if setting.needs else ""
        else:
            text = f"refused: {_answer(name)}"
        rows.append(f"| `{name}` | {text} |")
    return "\n".join(["| setting | |", "|---|---|", *rows]) + "\n"
