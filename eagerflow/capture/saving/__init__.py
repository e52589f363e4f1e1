"""Saved graphs: one safetensors file, written whole or not at all, read without running code."""
