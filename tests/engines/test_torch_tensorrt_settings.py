"""``torch_tensorrt_settings`` takes what the builder reads; each other name has an answer."""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from tests.support.lowering import export, lower, request
from tests.support.models import Function, make
from trt_et import OptionError, TensorRTPartitioner
from trt_et.blob.codec import decode_blob
from trt_et.conversion.installed import installed_variant
from trt_et.conversion.settings import make_settings
from trt_et.engines import BuildOptions
from trt_et.engines.serialize import build_network
from trt_et.engines.tensorrt import TensorRTBuilder, keep_lean_runtime
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder
from trt_et.options import _ADVICE, _UNREAD, SETTINGS, settings_table

pytestmark = pytest.mark.skipif(
    installed_variant() is None, reason="Torch-TensorRT is not installed"
)
PAGE = Path(__file__).parents[2] / "docs" / "options.md"

# Of each setting, a value that is not its default.
OTHER = {
    "assume_dynamic_shape_support": True,
    "disable_tf32": True,
    "disabled_constant_fold_exclusions": [],
    "dla_global_dram_size": 1 << 21,
    "dla_local_dram_size": 1 << 21,
    "dla_sram_size": 1 << 21,
    "l2_limit_for_tiling": 1 << 20,
    "max_aux_streams": 2,
    "num_avg_timing_iters": 4,
    "refit_identical_engine_weights": True,
    "sparse_weights": True,
    "tiling_optimization_level": "full",
    "truncate_double": True,
    "use_fp32_acc": True,
    "version_compatible": True,
}
WITHOUT_EFFECT = {
    name: OTHER[name] for name, setting in SETTINGS.items() if setting.builders == ("tensorrt",)
}
NEEDED = {"dla_core": {"dla_core": 0}, "refittable": {"refittable": True}, "": {}}


def forced(options: BuildOptions, **settings) -> BuildOptions:
    """Options with settings that nothing has checked."""
    made = replace(options)
    object.__setattr__(made, "torch_tensorrt_settings", settings)
    return made


class Forcing(TensorRTRTXBuilder):
    """Builds with settings that it would refuse."""

    settings: dict

    def build(self, request):
        blob = super().build(replace(request, options=forced(request.options, **self.settings)))
        self.digest = hashlib.sha256(bytes(decode_blob(blob).engine)).hexdigest()
        return blob


def test_the_page_lists_the_settings_as_they_are():
    assert settings_table() in PAGE.read_text()


def test_every_field_of_torch_tensorrt_has_a_row():
    make_settings()  # Makes the module below importable.
    from torch_tensorrt.dynamo._settings import CompilationSettings

    rows = set(re.findall(r"^\| `(\w+)`", settings_table(), re.MULTILINE))
    assert {field.name for field in fields(CompilationSettings)} <= rows
    assert set(OTHER) == set(SETTINGS)


def test_every_setting_is_read_or_refused():
    """Torch-TensorRT's modules that are called here read the settings that are taken."""
    make_settings()  # Makes the module below importable.
    from torch_tensorrt.dynamo import _settings

    folder = Path(_settings.__file__).parent
    network = (folder / "conversion" / "_TRTInterpreter.py").read_text()
    converters = sorted((folder / "conversion").rglob("*.py"))
    passes = sorted((folder / "lowering" / "passes").glob("*.py"))
    # Called by torch_tensorrt.compile() only; run() is not called here.
    unused = {"_conversion.py", "_TRTInterpreter.py", "rule_based_autocast.py"}
    unused.add("complex_decomposition_adapter.py")  # Before an export, for complex numbers.
    text = "".join(path.read_text() for path in (*converters, *passes) if path.name not in unused)
    text = text.partition("def pre_export_lowering")[0] + text.partition("def dump_lowering")[2]
    known = {field.name for field in fields(_settings.CompilationSettings)}

    def read_in(source):
        return {name for name in known if re.search(rf"settings\.{name}\b", source)}

    network = network[: network.index("    def run(")]
    read = read_in(text) | read_in(network)
    assert set(SETTINGS) & known <= read
    # Converters and passes are those of both; of the configuration, TensorRT-RTX heeds one.
    both = {name for name, setting in SETTINGS.items() if len(setting.builders) == 2}
    assert both & known == (set(SETTINGS) & read_in(text)) | {"disable_tf32"}
    # One pass moves constants to the CPU, where they are already.
    assert _UNREAD & read == {"offload_module_to_cpu"}
    assert not set(SETTINGS) & (_UNREAD | set(_ADVICE))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("builder", [TensorRTBuilder(), TensorRTRTXBuilder()], ids=lambda b: b.name)
def test_a_builder_takes_what_it_reads_and_refuses_the_rest(builder, name):
    setting = SETTINGS[name]
    options = BuildOptions(torch_tensorrt_settings={name: OTHER[name]}, **NEEDED[setting.needs])
    if builder.name in setting.builders:
        builder.check_options(options)
        if setting.needs:
            with pytest.raises(
                OptionError, match=f"{name}.* has no effect without {setting.needs}"
            ):
                builder.check_options(BuildOptions(torch_tensorrt_settings={name: OTHER[name]}))
    else:
        plain = BuildOptions(torch_tensorrt_settings={name: OTHER[name]})
        with pytest.raises(
            OptionError, match=f"{name}.* has no effect with builder='tensorrt_rtx'"
        ):
            builder.check_options(plain)


@pytest.mark.parametrize(
    "name", sorted(set(WITHOUT_EFFECT) - {n for n, s in SETTINGS.items() if s.needs == "dla_core"})
)
def test_tensorrt_reads_what_is_refused_for_tensorrt_rtx(name):
    """It is in the configuration that Torch-TensorRT makes."""
    model, inputs = make("mlp")

    def configured(**settings):
        needed = {"refittable": True} if SETTINGS[name].needs else {}
        options = forced(BuildOptions(**needed), **settings)
        network = build_network(replace(request(model, *inputs), options=options))
        config, flags = network.config, network.trt.BuilderFlag
        numbers = ("max_aux_streams", "avg_timing_iterations", "l2_limit_for_tiling")
        return (
            {f for f in dir(flags) if f.isupper() and config.get_flag(getattr(flags, f))},
            str(config.tiling_optimization_level),
            [getattr(config, number) for number in numbers],
        )

    assert configured(**{name: OTHER[name]}) != configured()


def test_what_is_refused_changes_no_byte_of_an_rtx_engine():
    program, builder = export("mlp"), Forcing()

    def digest(**settings):
        builder.settings = settings
        lower(program, builder=builder)
        return builder.digest

    plain = digest()
    unread = {"offload_module_to_cpu": True, **WITHOUT_EFFECT}
    del unread["version_compatible"]  # It changes bytes, but no other release runs the engine.
    assert digest(**unread) == plain
    assert digest(disable_tf32=True) != plain


def test_a_version_compatible_engine_keeps_its_lean_runtime():
    model, inputs = make("mlp")
    options = BuildOptions(torch_tensorrt_settings={"version_compatible": True})
    network = build_network(replace(request(model, *inputs), options=options))
    flags, config = network.trt.BuilderFlag, network.config
    keep_lean_runtime(network, options)
    assert config.get_flag(flags.VERSION_COMPATIBLE)
    assert not config.get_flag(flags.EXCLUDE_LEAN_RUNTIME)


def test_sums_of_float16_products_are_float32_if_asked_for():
    program = torch.export.export(Function(lambda x: x @ x), (torch.rand(4, 4),))
    builder, found = Forcing(), set()
    for settings in ({}, {"use_fp32_acc": True}):
        builder.settings = settings
        lower(program, builder=builder, precision="float16")
        found.add(builder.digest)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"disable_tf23": True}, "'disable_tf23': Torch-TensorRT has no such field; did you mean "),
        ({"ship_it": True}, "it is not one of assume_dynamic_shape_support, disable_tf32"),
        ({3: True}, "does not take 3: it is not one of"),
        ({"disable_tf32": 1}, "'disable_tf32' is 1; expected True or False"),
        ({"disable_tf32": "yes"}, "'disable_tf32' is 'yes'; expected True or False"),
        ({"max_aux_streams": -1}, "'max_aux_streams' is -1; expected 0 or more"),
        ({"num_avg_timing_iters": None}, "is None; expected an integer, 1 or more"),
        ({"l2_limit_for_tiling": "1G"}, "is '1G'; expected an integer, -1 or more"),
        ({"tiling_optimization_level": "best"}, "is 'best'; expected one of 'none', 'fast'"),
        ({"tiling_optimization_level": ["none"]}, "expected one of 'none', 'fast'"),
        ({"disabled_constant_fold_exclusions": "a"}, "expected a list of names of rules"),
        ({"engine_capability": "SAFETY"}, "engines for other runtimes than trt-et's"),
        ({"strip_engine_weights": True}, "nothing here puts them back"),
        ({"enable_cross_compile_for_windows": True}, "engines for Windows"),
        ({"attn_bias_is_causal": True}, "replaces masks by causal ones"),
        ({"immutable_weights": False}, "use refittable"),
        ({"torch_executed_ops": []}, "use excluded_ops"),
        ({"enable_autocast": True}, "use precision='float16'"),
        ({"enabled_precisions": {torch.half}}, "use precision='float16'"),
        ({"autocast_low_precision_type": torch.half}, "use precision='float16'"),
        ({"autocast_excluded_nodes": []}, "use float32_ops with precision"),
        ({"autocast_excluded_ops": []}, "use float32_ops with precision"),
        ({"autocast_calibration_dataloader": None}, "use calibration with precision"),
        ({"reuse_cached_engines": True}, "use cache=True"),
        ({"cache_built_engines": True}, "use cache=True"),
        ({"timing_cache_path": "a"}, "use cache=True.*keeps the timing cache"),
        ({"offload_module_to_cpu": True}, r"only torch_tensorrt.compile\(\) reads it"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_answered_by_the_constructor(settings, message):
    with pytest.raises(OptionError, match=f"(?s){message}"):
        TensorRTPartitioner(builder="reference", torch_tensorrt_settings=settings)


def test_a_value_that_torch_tensorrt_refuses_is_an_option_error():
    with pytest.raises(OptionError, match=r"Torch-TensorRT .* refuses a setting"):
        make_settings(disabled_constant_fold_exclusions=["no such rule"])
    with pytest.raises(
        OptionError, match=r"refuses a setting.*unexpected keyword argument 'later'"
    ):
        make_settings(later=True)


def test_masks_count_unless_torch_tensorrt_is_told_otherwise():
    assert make_settings().attn_bias_is_causal is False
