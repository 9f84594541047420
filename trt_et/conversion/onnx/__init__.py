"""Makes ONNX models of lowered partitions; the only folder that imports onnx and onnxscript."""
