"""The operators of TensorRT's ONNX parser, as its release 10.0 lists them.

The dtypes apply to an operator's first input with data; its importer also sums integers
cumulatively, which the list does not mention. Later releases, and TensorRT-RTX's
parser, take more; a payload is for all of them.
"""

from __future__ import annotations

from typing import Final

_FLOATS: Final = frozenset({"FLOAT", "FLOAT16", "BFLOAT16"})
_NUMBERS: Final = _FLOATS | {"INT32", "INT64"}
_ALL: Final = _NUMBERS | {"BOOL"}

_OF_FLOATS: Final = """
Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Conv Cos
Cosh Einsum Elu Erf Exp Floor Gelu Gemm GlobalAveragePool GlobalMaxPool GridSample HardSigmoid
HardSwish InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu Log LogSoftmax MatMul
MaxPool Mish PRelu Pow QuantizeLinear Reciprocal Resize Round Selu Sigmoid Sin Sinh Softmax
Softplus Softsign Sqrt Tan Tanh ThresholdedRelu
"""
_OF_NUMBERS: Final = """
Abs Add ArgMax ArgMin Clip CumSum DepthToSpace Div Equal Greater GreaterOrEqual Less LessOrEqual
Max Mean Min Mod Mul Neg Pad Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu ScatterElements ScatterND Sign
SpaceToDepth Sub Sum TopK
"""
_OF_ALL: Final = """
Cast CastLike Concat Constant ConstantOfShape Expand EyeLike Flatten Gather GatherElements
GatherND Identity OneHot Reshape Shape Size Slice Split Squeeze Tile Transpose Trilu Unsqueeze
Where
"""

TAKES: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(_OF_FLOATS.split(), _FLOATS),
    **dict.fromkeys(_OF_NUMBERS.split(), _NUMBERS),
    **dict.fromkeys(_OF_ALL.split(), _ALL),
    **dict.fromkeys(("And", "Not", "Or", "Xor"), frozenset({"BOOL"})),
    "Cast": _ALL | {"UINT8"},  # Of inputs and outputs of the model only.
    "ConvTranspose": _FLOATS - {"BFLOAT16"},  # TensorRT-RTX 1.5 builds no engine of it.
    "DequantizeLinear": frozenset({"INT4", "INT8", "FLOAT8E4M3FN"}),
}
"""By the operator's name, in ONNX's names of dtypes."""

LIBRARY_TAKES: Final = {
    # Seen with 1.6 and 1.7.
    "tensorrt_rtx": TAKES | {"Cast": TAKES["Cast"] | {"INT8"}},
}
"""What the parser of one library takes, by its builder's name."""
