"""Graphs over several devices: where nodes go, what is sent, what it costs, and the run."""
