"""Ops that read and write elements by indices."""
