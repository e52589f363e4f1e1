"""Quantization of captured graphs after training: small integers in place of floats."""
