"""Ops that change shape or order, join, pad and repeat."""
