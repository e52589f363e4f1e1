"""Regions and scalar bodies as programs of NumPy functions."""
