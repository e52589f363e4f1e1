"""Regions and scalar bodies as programs of NumPy's functions."""
