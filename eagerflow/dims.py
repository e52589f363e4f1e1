"""Symbolic dimensions: polynomials in named sizes, with integer coefficients.

``Dim("batch") * 3 + 1`` is a size like any other: it is compared, added, multiplied and
divided. Questions about unknown sizes raise errors rather than guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partialmethod
from operator import ge, gt, le, lt, ne
from typing import Any

from eagerflow.errors import CaptureError, ShapeError

# A monomial is the sorted tuple of its atoms; an atom is a name or an opaque quotient's text.
_Terms = dict[tuple[str, ...], int]


class Dim:
    """A size that is known only by name.

    ``name`` is an identifier such as ``"batch"``; names stand for sizes of at least one.

    >>> n = ef.Dim("n")
    >>> 2 * n + n, (n * 12) // n, (n + 1) // 2
    (3*n, 12, (n + 1)//2)
    """

    __slots__ = ("_quotients", "_terms", "free")
    _terms: _Terms
    _quotients: dict[str, tuple[Dim | int, Dim | int]]
    free: Any
    """What answers questions about its value while a function is traced (``FreeSizes``)."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ShapeError(f"{name!r} cannot name a dimension", expected="an identifier")
        self._terms = {(name,): 1}
        self._quotients = {}
        self.free = None

    @staticmethod
    def _make(terms: _Terms, *parents: DimLike) -> DimLike:
        # In a fixed order, so that equal dimensions have the same text, even within quotients.
        order = sorted((m for m in terms if terms[m]), key=lambda m: (-len(m), m))
        terms = {monomial: terms[monomial] for monomial in order}
        if not terms:
            return 0
        if list(terms) == [()]:
            return terms[()]
        dim = object.__new__(Dim)
        dim._terms = terms
        dim._quotients, dim.free = {}, None
        for parent in parents:
            if isinstance(parent, Dim):
                dim._quotients.update(parent._quotients)
                dim.free = dim.free or parent.free
        return dim

    def asked(self, free: Any) -> Dim:
        """The same size, with answers to questions about it."""
        dim = object.__new__(Dim)
        dim._terms, dim._quotients, dim.free = self._terms, self._quotients, free
        return dim

    def __add__(self, other: DimLike) -> DimLike:
        if not isinstance(other, int | Dim):
            return NotImplemented
        terms = dict(self._terms)
        for monomial, factor in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return Dim._make(terms, self, other)

    def __mul__(self, other: DimLike) -> DimLike:
        if not isinstance(other, int | Dim):
            return NotImplemented
        terms: _Terms = {}
        for left, a in self._terms.items():
            for right, b in _terms(other).items():
                monomial = tuple(sorted(left + right))
                terms[monomial] = terms.get(monomial, 0) + a * b
        return Dim._make(terms, self, other)

    def __floordiv__(self, other: DimLike) -> DimLike:
        if not isinstance(other, int | Dim):
            return NotImplemented
        if other == 0:
            raise ShapeError(f"{self!r} is divided by 0")
        exact = _divide(self._terms, _terms(other))
        if exact is not None:
            return Dim._make(exact, self, other)
        return _quotient(self, other)

    def __rfloordiv__(self, other: int) -> DimLike:
        if not isinstance(other, int):
            return NotImplemented
        return 0 if other == 0 else _quotient(other, self)

    def __mod__(self, other: DimLike) -> DimLike:
        if not isinstance(other, int | Dim):
            return NotImplemented
        return self - (self // other) * other

    def __rmod__(self, other: int) -> DimLike:
        return other - (other // self) * self

    def __neg__(self) -> DimLike:
        return self * -1

    def __sub__(self, other: DimLike) -> DimLike:
        return self + other * -1

    def __rsub__(self, other: int) -> DimLike:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if type(other) is Dim and self._terms == other._terms:
            return True
        return self.free is not None and self.free.are_equal(self, other)

    def __hash__(self) -> int:
        if self.free is not None:
            self.free.note("a size as the key of a dict or set")
        return hash(frozenset(self._terms.items()))

    def _answer(self, how: Any, other: Any = 0) -> Any:
        """What is known of a size; CaptureError if that depends on its number."""
        free = self.free or getattr(other, "free", None)
        found = None if free is None else free.answer(how, self, other)
        if found is None:
            raise CaptureError(
                f"the size of dimension {self._text()} is not known while tracing",
                hint="x.shape[0] in place of len(x); or give it a number in the TensorSpec",
            )
        return found

    __lt__, __le__ = partialmethod(_answer, lt), partialmethod(_answer, le)
    __gt__, __ge__ = partialmethod(_answer, gt), partialmethod(_answer, ge)
    __int__ = __index__ = __float__ = partialmethod(_answer, None)

    def __bool__(self) -> bool:
        if self._quotients or any(factor < 0 for factor in self._terms.values()):
            return self._answer(ne)  # type: ignore[no-any-return]
        return True  # a named size is at least one

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class for ``isinstance``."""
        return Dim if self.free is None else self.free.class_of(self)

    def __getstate__(self) -> Any:
        return None, {"_terms": self._terms, "_quotients": self._quotients, "free": None}

    def __repr__(self) -> str:
        if self.free is not None:
            self.free.note("the text of a size")
        return self._text()

    def _text(self) -> str:
        parts: list[str] = []
        for monomial, factor in self._terms.items():
            symbols = "*".join(monomial)
            sign = "-" if factor < 0 else "+"
            size = abs(factor)
            text = (
                symbols if symbols and size == 1 else "*".join(filter(None, [str(size), symbols]))
            )
            parts.append(f" {sign} {text}" if parts else (f"-{text}" if sign == "-" else text))
        return "".join(parts)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value of this dimension for given sizes of its names."""
        total = 0
        for monomial, factor in self._terms.items():
            for atom in monomial:
                factor *= self._atom(atom, sizes)
            total += factor
        return total

    def _atom(self, atom: str, sizes: Mapping[str, int]) -> int:
        if atom in self._quotients:
            upper, lower = (_evaluate(part, sizes) for part in self._quotients[atom])
            if lower == 0:
                raise ShapeError(f"{atom} is divided by 0", received=f"sizes {dict(sizes)}")
            return upper // lower
        try:
            return sizes[atom]
        except KeyError:
            raise ShapeError(f"the size of dimension {atom!r} was not given") from None


DimLike = int | Dim
Shape = tuple[DimLike, ...]


def _terms(dim: DimLike) -> _Terms:
    return dim._terms if isinstance(dim, Dim) else {(): int(dim)}


def _evaluate(dim: DimLike, sizes: Mapping[str, int]) -> int:
    return dim.evaluate(sizes) if isinstance(dim, Dim) else dim


def _divide(upper: _Terms, lower: _Terms) -> _Terms | None:
    """Exact quotient by a single term or by a multiple of itself, else None."""
    if len(lower) > 1:
        ratio = {factor // lower[m] for m, factor in upper.items() if m in lower}
        exact = len(ratio) == 1 and upper == {m: f * next(iter(ratio)) for m, f in lower.items()}
        return {(): ratio.pop()} if exact else None
    ((atoms, size),) = lower.items()
    result: _Terms = {}
    for monomial, factor in upper.items():
        rest = list(monomial)
        if factor % size or any(rest.count(atom) < atoms.count(atom) for atom in atoms):
            return None
        for atom in atoms:
            rest.remove(atom)
        result[tuple(rest)] = factor // size
    return result


def _quotient(upper: DimLike, lower: DimLike) -> DimLike:
    wrapped = [f"({d!r})" if len(_terms(d)) > 1 else repr(d) for d in (upper, lower)]
    text = "//".join(wrapped)
    dim = Dim._make({(text,): 1}, upper, lower)
    assert isinstance(dim, Dim)
    dim._quotients[text] = (upper, lower)
    return dim


def product(dims: Iterable[DimLike]) -> DimLike:
    """Number of elements of a shape."""
    return math.prod(dims)


def symbolic(shape: Iterable[object]) -> bool:
    """Whether any dimension of ``shape`` is known only by name."""
    return any(isinstance(dim, Dim) for dim in shape)
