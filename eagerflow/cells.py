"""Names of files in messages: a cell of a notebook or of IPython is ``In[3]``."""

from __future__ import annotations

import re
import sys
from typing import Any

__all__ = ["file_name", "shell_here"]

_TERMINAL = re.compile(r"<ipython-input-(\d+)-\w+>")


def file_name(file: str) -> str:
    """The file as it is shown: ``In[3]`` for the third cell, others unchanged.

    >>> from eagerflow.cells import file_name
    >>> file_name("<ipython-input-3-0123456789ab>"), file_name("train.py")
    ('In[3]', 'train.py')
    """
    found = _TERMINAL.fullmatch(file)
    if found is not None:
        return f"In[{found[1]}]"
    shell = shell_here()
    named = getattr(getattr(shell, "compile", None), "format_code_name", None)
    pair = named and named(file)
    return file if pair is None else str(pair[1])


def shell_here() -> Any:
    """The IPython shell of this process; None without one."""
    find = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return find and find()
