"""Checks for users' own ops, layers and functions; also used by the project's tests."""

from __future__ import annotations

from eagerflow.testing.gradients import check_gradients

__all__ = ["check_gradients"]


def __dir__() -> list[str]:
    return sorted(__all__)
