"""Graphs as programs of Python that need NumPy alone."""
