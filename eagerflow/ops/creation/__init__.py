"""Ops that create tensors from shapes, numbers and random states, or change dtype and device."""
