"""Nests of tensors as inputs and results of bodies, and checks that they match."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from eagerflow import tree
from eagerflow.cells import file_name
from eagerflow.convert import as_tensor, number_type
from eagerflow.display import function_name, summary
from eagerflow.dtypes import BOOL, INTEGERS, join_scalar
from eagerflow.errors import CaptureError, DTypeError, EagerflowError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.masks import Masked, opened
from eagerflow.op import spec_of
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor


def place_of(f: Any) -> str | None:
    """``file:line in name`` of a user function; None without a source."""
    while isinstance(f, functools.partial):
        f = f.func
    f = inspect.unwrap(f)
    called = f if hasattr(f, "__code__") else vars(type(f)).get("__call__")
    code = getattr(called, "__code__", None)
    if code is None:
        return None
    return f"{file_name(code.co_filename)}:{code.co_firstlineno} in {code.co_name}"


def callable_of(f: Any, op: str, argument: str, takes: str, count: int) -> None:
    """Raise an error if ``f`` is not callable with ``count`` arguments, listed in ``takes``."""
    if not callable(f):
        raise DTypeError(
            f"it cannot be called: {summary(f)}",
            op=op,
            argument=argument,
            received=summary(f),
            expected=f"a function {argument}({takes})",
        )
    if type(f) is FunctionType and not f.__dict__:
        code = f.__code__
        if code.co_argcount == count and not code.co_kwonlyargcount:
            return  # the usual function needs no signature
    try:
        inspect.signature(f).bind(*(None,) * count)
    except raised_here(ValueError):  # a builtin without a signature
        pass
    except raised_here(TypeError) as error:
        raise CaptureError(
            f"it is called as {argument}({takes}), which its signature does not allow: {error}",
            op=op,
            argument=argument,
            received=f"{function_name(f)}{inspect.signature(f)}",
            expected=f"a function {argument}({takes})",
            at=place_of(f),
            hint="pass related values as one argument: a tuple, list or dict of them",
        ) from None


def scalar(value: Any, op: str, argument: str, kind: str, at: str | None = None) -> Tensor:
    """``value`` as a 0-d tensor of dtype bool or of an integer dtype."""
    if type(value) is Tensor and not value._array.shape and value._kind.dtype.kind == kind[0]:
        return value
    dtypes = BOOL if kind == "bool" else INTEGERS
    wanted = "True or False" if kind == "bool" else "an integer"
    try:
        tensor = as_tensor(value)
    except EagerflowError as error:
        error.op, error.argument, error.at = op, argument, error.at or at
        raise
    if tensor.dtype in dtypes and not tensor.ndim:
        return tensor
    facts = {
        "op": op,
        "argument": argument,
        "received": summary(tensor),
        "expected": f"{wanted}, or a tensor of one without axes",
        "at": at,
    }
    if tensor.dtype not in dtypes:
        hint = "x != 0, x > 0 or ef.any(x)" if kind == "bool" else f"{argument}.astype('int32')"
        is_not = "it is not a bool" if kind == "bool" else "it is not an integer"
        raise DTypeError(is_not, hint=hint, **facts)
    hint = "ef.any(x) or ef.all(x), or ef.where(x, a, b) element by element"
    raise ShapeError(
        "it has axes", hint=hint if kind == "bool" else "ef.vmap for many of them", **facts
    )


class Form:
    """The structure of a nest, and its tensors; None leaves are kept.

    ``op`` and ``what`` name it in errors; ``at`` is the location of the function that made it.
    """

    def __init__(self, nest: Any, op: str, what: str, at: str | None = None) -> None:
        leaves, self.structure = tree.flatten(nest)
        self.op, self.what = op, what
        self.paths = tree.paths(self.structure, what)
        self.tensors: list[Any] = []
        self.holds: list[bool] = []  # which leaves are tensors
        for leaf, path in zip(leaves, self.paths, strict=True):
            self.holds.append(leaf is not None)
            if leaf is not None:
                self.tensors.append(_as_leaf(leaf, op, path, at))
        self._alone = self.structure.container is None and len(self.tensors) == 1

    @property
    def labels(self) -> list[str]:
        """The path of each tensor."""
        return [path for path, held in zip(self.paths, self.holds, strict=True) if held]

    def take(self) -> list[Tensor]:
        """The tensors; the form keeps only their shapes and dtypes from then on."""
        tensors, self.tensors = self.tensors, [spec_of(t) for t in self.tensors]
        return tensors

    def nest(self, tensors: Sequence[Any]) -> Any:
        """The nest with these tensors in place of its own."""
        if self._alone:
            return tensors[0]
        found = iter(tensors)
        return tree.unflatten(
            self.structure, [next(found) if held else None for held in self.holds]
        )

    def match(
        self,
        nest: Any,
        what: str,
        at: str | None,
        weak: bool = True,
        other: str = "that at the start",
    ) -> list[Tensor]:
        """The tensors of ``nest``, which must match in structure, shapes and dtypes.

        With ``weak``, Python numbers take on the dtype wanted if no information is lost. Raises
        CaptureError, ShapeError or DTypeError with the leaf's path; ``other`` describes the origin
        of this form.
        """
        nest = opened(nest)
        quick = self._as_before(nest)
        if quick is not None:
            return quick
        leaves = self._leaves(self.structure, nest, what, at, other)
        labels = [what + path.removeprefix(self.what) for path in self.paths]
        found = []
        wanted = iter(self.tensors)
        for leaf, label, held in zip(leaves, labels, self.holds, strict=True):
            if held != (leaf is not None):
                raise CaptureError(
                    f"its structure is not {other}",
                    op=self.op,
                    at=at,
                    argument=label,
                    received=summary(leaf),
                    expected="a tensor" if held else "None",
                )
            if held:
                found.append(self._fitting(leaf, next(wanted), label, at, weak, other))
        return found

    def _as_before(self, nest: Any) -> list[Tensor] | None:
        """The tensors of a nest that matches exactly; None if it does not."""
        if self._alone:
            leaves = [nest]
        else:
            leaves, structure = tree.flatten(nest)
            if structure != self.structure:
                return None
            if len(leaves) > len(self.tensors):
                if [leaf is not None for leaf in leaves] != self.holds:
                    return None
                leaves = [leaf for leaf in leaves if leaf is not None]
        for leaf, like in zip(leaves, self.tensors, strict=True):
            if (
                type(leaf) is not Tensor
                or leaf._kind.dtype != like.dtype
                or leaf._array.shape != like.shape
            ):
                return None
        return leaves

    def _leaves(
        self, structure: tree.Structure, nest: Any, what: str, at: str | None, other: str
    ) -> list[Any]:
        """The leaves of a nest in this order; the order of dict keys may differ."""
        if structure.container is None:
            if tree.flatten(nest)[1].container is not None:
                self._other_structure(_kind_of(type(nest)), "one tensor", what, at, other)
            return [nest]
        wanted = structure.container
        if type(nest) is not wanted:
            self._other_structure(_kind_of(type(nest)), _kind_of(wanted), what, at, other)
        if isinstance(nest, dict) and set(nest) != set(structure.keys):
            self._other_structure(
                f"the keys {list(nest)}", f"the keys {list(structure.keys)}", what, at, other
            )
        shallow = structure._replace(children=(_LEAF,) * len(structure.children))
        try:
            ordered = isinstance(nest, dict)
            parts = (
                [nest[key] for key in structure.keys]
                if ordered
                else tree.flatten_up_to(shallow, nest)
            )
        except raised_here(ValueError):
            count = len(structure.children)
            came = f"{len(nest)} items" if hasattr(nest, "__len__") else "other items"
            self._other_structure(came, f"{count} items", what, at, other)
        labels = tree.paths(shallow, what)
        return [
            leaf
            for child, part, label in zip(structure.children, parts, labels, strict=True)
            for leaf in self._leaves(child, part, label, at, other)
        ]

    def _other_structure(
        self, received: str, expected: str, what: str, at: str | None, other: str
    ) -> None:
        raise CaptureError(
            f"its structure is not {other}",
            op=self.op,
            at=at,
            argument=what,
            received=received,
            expected=expected,
            hint=_UNMASKED if _MASKED in (received, expected) else None,
        )

    def _fitting(
        self, leaf: Any, like: Tensor, label: str, at: str | None, weak: bool, other: str
    ) -> Tensor:
        kind = number_type(leaf) if weak else None
        if kind is not None and join_scalar(like.dtype, kind) == like.dtype:
            leaf = as_tensor(leaf, like.dtype, like.device)
        tensor = _as_leaf(leaf, self.op, label, at)
        same = tuple(tensor.shape) == tuple(like.shape)
        if same and tensor.dtype == like.dtype:
            return tensor
        facts = {
            "op": self.op,
            "at": at,
            "argument": label,
            "received": str(TensorSpec(tensor.shape, tensor.dtype)),
            "expected": str(TensorSpec(like.shape, like.dtype)),
        }
        if not same:
            hint = "a carry keeps its shape: pad it, or write into a tensor with x.at[i].set(y)"
            hint = hint if weak else "ef.broadcast_to or ef.reshape in one of them"
            raise ShapeError(f"its shape is not {other}", hint=hint, **facts)
        hint = f"y.astype({like.dtype.name!r})"
        hint += f", or start with {tensor.dtype.name}" if weak else ""
        raise DTypeError(f"its dtype is not {other}", hint=hint, **facts)


class Results:
    """The form of results: set by the first result, matched by later ones."""

    def __init__(self, op: str, first: str) -> None:
        self._op, self._first = op, first
        self.form: Form = None  # type: ignore[assignment]

    def take(self, nest: Any, what: str, at: str | None) -> list[Tensor]:
        """The tensors of a result; raises the errors of ``Form.match``."""
        if self.form is None:
            self.form = Form(opened(nest), self._op, what, at)
            return self.form.take()
        return self.form.match(nest, what, at, False, self._first)


_LEAF = tree.Structure(None, (), ())
_MASKED = "a tensor with a mask"
_UNMASKED = "x * 1 has the values of x, and no mask"


def _kind_of(cls: type) -> str:
    return _MASKED if cls is Masked else f"a {cls.__name__}"


def _as_leaf(leaf: Any, op: str, path: str, at: str | None) -> Tensor:
    try:
        return as_tensor(leaf)
    except EagerflowError as error:
        error.op, error.argument, error.at = op, path, error.at or at
        raise
