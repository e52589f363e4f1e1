"""Saved graphs: one safetensors file, written atomically, read without running code."""
