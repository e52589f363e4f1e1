"""Graphs: their form, how they are read, drawn, compared, checked, edited and run."""
