"""Fusion: nodes of a graph that one generated kernel computes."""
