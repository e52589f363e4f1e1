"""Regions as CUDA C: what GPUs run. Nothing here was run on a GPU yet, only compiled for them."""
