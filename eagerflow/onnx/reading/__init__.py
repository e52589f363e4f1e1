"""Import of ONNX models as graphs."""
