"""The IPython shell of this process if it is a notebook kernel, and display in its cells."""

from __future__ import annotations

from typing import Any

from eagerflow import extras
from eagerflow.cells import shell_here


def kernel_shell() -> Any:
    """The shell of the notebook that this process is the kernel of; None elsewhere."""
    shell = shell_here()
    return shell if getattr(shell, "kernel", None) is not None else None


def show(thing: Any, **options: Any) -> Any:
    """Display an object below the running cell; ``options`` are those of IPython's ``display``."""
    module = extras.load("IPython.display", "tutorials", "showing something in a notebook")
    return module.display(thing, **options)
