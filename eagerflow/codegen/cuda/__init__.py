"""Regions as CUDA C, for plans on GPUs. Not run on one yet: compiled for GPUs, run on CPUs."""
