"""Regions as CUDA C, for plans on GPUs. Not run on one yet: compiled for them, run on the CPU."""
