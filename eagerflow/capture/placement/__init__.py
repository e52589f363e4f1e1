"""Graphs over several devices: placement, transfers, costs, and execution."""
