"""ONNX: graphs as models that other programs run, and models of others as graphs."""
