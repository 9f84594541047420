"""What a caller may ask of an engine: one typed field per option.

Everything else about an option is derived from its field: it is checked when the object is made,
goes to Torch-TensorRT (``compilation_settings``), is part of the key of the engine cache, travels
to worker processes, and is listed in ``docs/options.md`` (``options_table``). How to add one:
``docs/internals/add-an-option.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from trt_et.errors import OptionError

__all__ = ["BuildOptions", "option", "options_table"]

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")

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
    """One option: a dataclass field with its check and its documentation.

    Args:
        default: Its value where the caller gives none.
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
    for capability in value or ():
        if not isinstance(capability, str) or not _CAPABILITY.fullmatch(capability):
            raise OptionError(
                f"compute capability {capability!r} is not of the form '<major>.<minor>', "
                "such as '8.9'"
            )
    return tuple(value or ())


def _level(name: str, value: Any) -> int | None:  # noqa: ANN401
    if value is None or (type(value) is int and 0 <= value <= 5):
        return value
    raise OptionError(f"{name} is {value!r}; expected 0..5")


def _bytes(name: str, value: Any) -> int | None:  # noqa: ANN401
    if value is None or (type(value) is int and value >= 1):
        return value
    raise OptionError(f"{name} is {value!r}; expected bytes, 1 or more")


def _flag(name: str, value: Any) -> bool:  # noqa: ANN401
    if type(value) is not bool:
        raise OptionError(f"{name} is {value!r}; expected True or False")
    return value


def _version_compatible(name: str, value: Any) -> bool:  # noqa: ANN401
    if _flag(name, value):
        raise OptionError(
            "version_compatible=True is not supported: Torch-TensorRT leaves the lean runtime "
            "out of such engines, and no other TensorRT version runs them without it; export "
            "once with each TensorRT version that is to run the program"
        )
    return False


def _settings(name: str, value: Any) -> Mapping[str, Any]:  # noqa: ANN401
    if not isinstance(value, Mapping | None):
        raise OptionError(f"{name} is {type(value).__name__}; expected a dictionary")
    given = dict(value or {})
    for setting in given:
        if setting in _reserved_settings():
            raise OptionError(
                f"setting {setting!r} is an option of the partitioner itself: "
                f"{_reserved_settings()[setting]}"
            )
    if given.get("strip_engine_weights"):
        raise OptionError(
            "strip_engine_weights makes engines without weights, and nothing here puts them back "
            "when a program is loaded"
        )
    return given


@dataclass(frozen=True)
class BuildOptions:
    """What a caller may ask of an engine, beyond the partition itself; see ``docs/options.md``.

    Raises:
        OptionError: A value has the wrong type or form, or is given twice.
    """

    compute_capabilities: tuple[str, ...] = option(
        (),
        _capabilities,
        'Targets, such as `["8.6", "8.9"]`. Empty: the GPU at hand (`tensorrt`), or the '
        "library's default set, Ampere and later (`tensorrt_rtx`).",
    )
    optimization_level: int | None = option(
        None,
        _level,
        "TensorRT's builder optimization level, 0 to 5. None: its default.",
        setting="optimization_level",
    )
    settings: Mapping[str, Any] = option(
        None,
        _settings,
        "Further fields of Torch-TensorRT's `CompilationSettings`, such as "
        '`{"disable_tf32": True}`.',
    )
    workspace_size: int | None = option(
        None,
        _bytes,
        "Bytes of scratch memory that TensorRT may use. None: all.",
        setting="workspace_size",
    )
    hardware_compatible: bool = option(
        False,
        _flag,
        "Engines for all GPUs from Ampere on (TensorRT-RTX's always are).",
        setting="hardware_compatible",
    )
    version_compatible: bool = option(
        False,
        _version_compatible,
        "Refused if True: Torch-TensorRT leaves the lean runtime out of such engines.",
        setting="version_compatible",
    )
    refittable: bool = option(
        False,
        _flag,
        "Engines whose weights TensorRT's refitter can replace.",
        setting="immutable_weights",
        sent_as=lambda refittable: not refittable,
    )
    weight_streaming: bool = option(
        False,
        _flag,
        "Engines that may keep weights in host memory; the compile spec and load option "
        "`weight_streaming_budget` says how much.",
        setting="enable_weight_streaming",
    )

    def __post_init__(self) -> None:
        for known in fields(self):
            check: Check = known.metadata["check"]
            object.__setattr__(self, known.name, check(known.name, getattr(self, known.name)))

    def compilation_settings(self) -> dict[str, Any]:
        """The fields of Torch-TensorRT's ``CompilationSettings`` that differ from its defaults."""
        found = dict(self.settings)
        for known in fields(self):
            value = getattr(self, known.name)
            if known.metadata["setting"] and value != known.default:
                found[known.metadata["setting"]] = known.metadata["sent_as"](value)
        return found


# Fields of CompilationSettings that arguments of the partitioner stand for, which are no
# options of an engine.
_PARTITIONER: Final = {
    "device": "device",
    "torch_executed_ops": "excluded_ops",
    "min_block_size": "min_block_size",
    "require_full_compilation": "full_graph",
}


def _reserved_settings() -> dict[str, str]:
    """The partitioner's options by the field of ``CompilationSettings`` that each stands for."""
    own = {known.metadata["setting"]: known.name for known in fields(BuildOptions)}
    return {setting: name for setting, name in (own | _PARTITIONER).items() if setting}


def options_table(options: type[BuildOptions] = BuildOptions) -> str:
    """The options as a Markdown table, with which ``docs/options.md`` ends."""
    rows = [
        f"| `{known.name}` | `{known.default!r}` | {known.metadata['text']} |"
        for known in fields(options)
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"
