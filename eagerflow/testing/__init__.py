"""Checks for users' own ops, layers and functions; the project's tests use them as well."""

from __future__ import annotations

from eagerflow.testing.gradients import check_gradients

__all__ = ["check_gradients"]
