"""Fusion: groups of a graph's nodes, each computed by one generated kernel."""
