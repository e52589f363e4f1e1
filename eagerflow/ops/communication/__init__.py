"""Ops between replicas and parts of a step: what they compute together, and in what order."""
