"""Makes ONNX models of engine programs; the only folder that imports onnx and onnxscript."""
