"""Predicted costs of training over many machines, without starting anything."""
