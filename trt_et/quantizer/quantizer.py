"""The quantizer for PT2E."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import GraphModule
from torchao.quantization.pt2e.fake_quantize import FakeQuantizeBase
from torchao.quantization.pt2e.quantizer import QuantizationConfig, Quantizer

from trt_et.errors import OptionError
from trt_et.graph.constants import constant_value
from trt_et.graph.operators import ATTENTION
from trt_et.quantizer.attention import is_better_whole, write_out_attention
from trt_et.quantizer.configs import check_config
from trt_et.quantizer.constants import constants_of
from trt_et.quantizer.operators import QUANTIZED_OPS, annotate_product, annotate_shared
from trt_et.quantizer.rules import OPERATORS, Rules

_log = logging.getLogger(__name__)


class TensorRTQuantizer(Quantizer):
    """Quantizes a model for TensorRT's explicit quantization.

    For ``prepare_pt2e`` and ``prepare_qat_pt2e``. A configuration is what
    ``trt_et.quantizer.int8`` and the other functions return; None leaves operators in their
    dtype. A module's name comes before its type, that before the operator, and that before the
    global configuration; the innermost module wins.

    Attention is written out as two matrix products and a softmax if it is quantized. With int8, an
    attention in half precision is quantized only if ``set_op`` names it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rules = Rules()

    def set_global(self, config: QuantizationConfig | None) -> TensorRTQuantizer:
        """Set the configuration of everything without another one.

        Raises:
            OptionError: TensorRT has no layers for the configuration.
        """
        check_config(config)
        self._rules.everywhere = config
        return self

    def set_module_name(self, name: str, config: QuantizationConfig | None) -> TensorRTQuantizer:
        """Set the configuration of a module, such as ``"layers.0.fc"``, and all inside of it.

        Raises:
            OptionError: TensorRT has no layers for the configuration, or the name is no string.
                ``prepare_pt2e`` raises it if the program has no such module.
        """
        check_config(config)
        if not isinstance(name, str) or not name:
            raise OptionError(f"the module name is {name!r}; expected a name such as 'layers.0.fc'")
        self._rules.names[name] = config
        return self

    def set_module_type(
        self, module_type: type[nn.Module], config: QuantizationConfig | None
    ) -> TensorRTQuantizer:
        """Set the configuration of all modules of a type, and all inside of them.

        Raises:
            OptionError: TensorRT has no layers for the configuration, or the type is no module's.
                ``prepare_pt2e`` raises it if the program has no such module.
        """
        check_config(config)
        if not isinstance(module_type, type) or not issubclass(module_type, nn.Module):
            raise OptionError(
                f"the module type is {module_type!r}; expected a class of modules such as "
                "torch.nn.Linear"
            )
        self._rules.types[f"{module_type.__module__}.{module_type.__qualname__}"] = config
        return self

    def set_op(
        self, op: OpOverload | OpOverloadPacket | str, config: QuantizationConfig | None
    ) -> TensorRTQuantizer:
        """Set the configuration of an operator, such as ``torch.ops.aten.linear``.

        Raises:
            OptionError: TensorRT has no layers for the configuration, or the quantizer does not
                quantize the operator. ``prepare_pt2e`` raises it if the program does not call it.
        """
        check_config(config)
        name = str(op).replace("::", ".").removeprefix("torch.ops.")
        is_operator = isinstance(op, OpOverload | OpOverloadPacket | str)
        if not is_operator or name not in OPERATORS:
            known = sorted({str(op).rpartition(".")[0] for op in QUANTIZED_OPS})
            raise OptionError(
                f"the operator {op!r} is not quantized; expected one of {', '.join(known)}"
            )
        self._rules.ops[name] = config
        return self

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Check the names that were set, and write out and annotate attention."""
        self._rules.check(model)
        constants = constants_of(model)
        for node in list(model.graph.nodes):
            config = self._rules.config_of(node) if node.target is ATTENTION else None
            if config is None or config.input_activation is None:
                continue
            if self._rules.names_operator(node) or not is_better_whole(node, config):
                for product in write_out_attention(model, node):
                    annotate_product(product, config, constants)
        model.recompile()
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate all operators that a configuration is set for."""
        constants = constants_of(model)
        chosen = {node: self._rules.config_of(node) for node in model.graph.nodes}
        if not any(chosen.values()):
            _log.warning(
                "TensorRTQuantizer quantizes no operator of this program: no configuration is set "
                "for any. Call set_global(int8()), or another of its functions"
            )
        for node, config in chosen.items():
            if config is not None:
                annotate_product(node, config, constants)
        for node, config in reversed(chosen.items()):
            if config is not None:
                annotate_shared(node, config)
        return model

    def validate(self, model: GraphModule) -> None:
        """Do nothing: a configuration is checked when it is set."""

    def prepare_obs_or_fq_callback(
        self, model: GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        """Show weights to their observers, so that weights alone need no calibration."""
        constants = constants_of(model)
        for edge, observer in edge_or_node_to_obs_or_fq.items():
            source = edge[0] if isinstance(edge, tuple) else edge
            if source in constants and not isinstance(observer, FakeQuantizeBase | None):
                observer(constant_value(source))
