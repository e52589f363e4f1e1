"""Ops between replicas and parts of a step: collective results, and order."""
