"""Quantization of graphs after training."""
