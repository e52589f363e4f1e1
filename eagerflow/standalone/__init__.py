"""Export of graphs as Python programs that need only NumPy."""
