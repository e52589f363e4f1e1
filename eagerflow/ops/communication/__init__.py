"""Ops of what several replicas of a step compute together."""
