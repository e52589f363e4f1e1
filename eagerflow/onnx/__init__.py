"""ONNX files: import of models as graphs, and export of graphs as models."""
