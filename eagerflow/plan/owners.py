"""Owners: values that a run may overwrite, as nothing else can see them.

A Variable's mark says that its value was made for it alone and has not been read since (see
``Variable._owner``); active runs list the Variables they use. A run checks both
in the same call that writes.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, gt, is_, is_not, not_
from threading import get_ident
from typing import Any

from eagerflow.tensor import Tensor
from eagerflow.variable import Variable


class _Token:
    """Lives as long as a run."""

    __slots__ = ("__weakref__",)


class _Run(weakref.ref[_Token]):
    """A run that uses the values of the Variables with these ids."""

    __slots__ = ("reads", "thread")

    reads: frozenset[int]
    thread: int

    __hash__ = object.__hash__  # a reference hashes by its object, which may be gone
    __eq__ = object.__eq__


_runs: set[_Run] = set()
"""The active runs: a run ends, in any way, with its token."""

_owner_of: Any = attrgetter("_owner")
_reads_of: Any = attrgetter("reads")


def begin_run(reads: frozenset[int]) -> _Token:
    """A token: while it lives, no other run overwrites values of the Variables with these ids.

    It is taken before ``held_together`` returns the values.
    """
    token = _Token()
    run = _Run(token, _runs.discard)
    run.reads, run.thread = reads, get_ident()
    _runs.add(run)
    return token


def owned(variables: Sequence[Variable], values: Sequence[Tensor]) -> list[bool]:
    """Flags of the values, held by the Variables, that the run holding them may overwrite.

    They are valid until another reference is given out, which ``taken`` reports.
    """
    return list(map(is_, map(_owner_of, variables), values))


def taken(
    variables: Sequence[Variable], values: Sequence[Tensor], reads: frozenset[int]
) -> Callable[[], bool]:
    """A call that returns whether some owned values must not be overwritten any more.

    That is the case if one was read or replaced, or if another run uses one of the Variables that
    the run ``reads``. It is one call of functions in C, for one use.
    """
    used = map(reads.isdisjoint, map(_reads_of, chain.from_iterable((_runs,))))
    others = map(gt, map(sum, (map(not_, used),)), (1,))  # the run itself is one of these
    return partial(any, chain(map(is_not, map(_owner_of, variables), values), others))


def _forget_runs() -> None:
    # Runs of other threads, which do not exist in a forked child.
    _runs.difference_update([run for run in _runs if run.thread != get_ident()])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_runs)
