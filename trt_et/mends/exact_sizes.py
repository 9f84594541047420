"""Cancels quotients of sizes that leave no remainder: ``n**2 // n`` is ``n``.

torch gives ``x.view(b, n, n)`` the last size ``n**2 // n``, and bounds dividend and divisor apart.
ExecuTorch 1.5 would plan a view that is larger than its base, and such a program does not load.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import FloorDiv

from trt_et.graph.insertion import fake_mode_of


def use_exact_sizes(program: ExportedProgram) -> None:
    """Let the environment of a program's symbols cancel such quotients, in later traces too."""
    mode = fake_mode_of(program.graph.nodes)
    environment: Any = mode and mode.shape_env
    if environment is None or isinstance(environment, _ExactSizes):
        return
    environment.__class__ = _ExactSizes
    # What sizes remember of ``replace`` is out of date. torch 2.13 may not count its versions.
    versions = getattr(environment, "_replacements_version_counter", 0)
    environment._replacements_version_counter = versions + 1


class _ExactSizes(ShapeEnv):
    """What torch asks for the expression of every size."""

    def replace(self, expr: Any) -> Any:  # type: ignore[override]  # noqa: ANN401
        return _cancelled(super().replace(expr))


@cache
def _cancelled(expression: sympy.Basic) -> sympy.Basic:
    return expression.replace(FloorDiv, _quotient) if expression.has(FloorDiv) else expression


def _quotient(dividend: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr:
    if (divisor.is_Symbol or divisor.is_Mul or divisor.is_Pow) and dividend.is_polynomial():
        # The divisor divides each term of a polynomial, or leaves a power below zero.
        quotient = sympy.expand(dividend / divisor)
        if quotient.is_polynomial() and not any(n.q > 1 for n in quotient.atoms(sympy.Rational)):
            return quotient
    return FloorDiv(dividend, divisor)
