"""ONNX files: models of other frameworks as graphs, and graphs as models."""
