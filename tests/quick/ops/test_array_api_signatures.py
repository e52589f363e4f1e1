"""The parameters of the Array API standard: their names, their order, and how they may be given.

Programs for any library rely on that: what the standard takes by position and by name has to be
taken in both ways, under the standard's name; what it takes by position alone may have any name,
and what it takes by name alone may be taken by position as well. More parameters may follow.
"""

import inspect
from inspect import Parameter

import array_api_strict as strict
import pytest

import eagerflow as ef

BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
OF_STRICT = {f"{verb}_array_api_strict_flags" for verb in ("get", "reset", "set")}
IN_PLACE = "__iadd__ __iand__ __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__ __ior__ "
IN_PLACE += "__ipow__ __irshift__ __isub__ __itruediv__ __ixor__"  # Python makes a new tensor
OF_PYTHON = {"__buffer__", "__reduce__", "__repr__", "__str__"}
CLASS = type(strict.asarray(1))


def functions():
    """(their function, ours) of all that the standard has."""
    for theirs, ours in ((strict, ef), (strict.linalg, ef.linalg), (strict.fft, ef.fft)):
        for name in theirs.__all__:
            found = getattr(theirs, name)
            if inspect.isfunction(found) and name not in OF_STRICT:
                yield pytest.param(found, getattr(ours, name), id=f"{theirs.__name__}.{name}")


def methods():
    """(their method, without the array, ours of a tensor)."""
    for name, found in vars(CLASS).items():
        public = name.startswith("__") or not name.startswith("_")
        if inspect.isfunction(found) and public and name not in {*IN_PLACE.split(), *OF_PYTHON}:
            bound = getattr(strict.ones((1, 1)), name)
            yield pytest.param(bound, getattr(ef.ones((1, 1)), name), id=name)


def differences(theirs, ours):
    """What a program for any library would stumble over."""
    wanted = list(inspect.signature(theirs).parameters.values())
    found = list(inspect.signature(ours).parameters.values())
    for own, their in zip(found, [p for p in wanted if p.kind is not p.KEYWORD_ONLY], strict=False):
        if their.kind in VARIABLE and own.kind is not their.kind:
            yield f"*{their.name}"
        elif their.kind in BY_POSITION and own.kind not in BY_POSITION:
            yield f"{their.name} cannot be given by position"
        elif their.kind in BY_NAME and (own.kind not in BY_NAME or own.name != their.name):
            yield f"{their.name} cannot be given by name"
    names = {p.name: p for p in found}
    for their in [p for i, p in enumerate(wanted) if i >= len(found) or p.kind is p.KEYWORD_ONLY]:
        if their.name not in names or names[their.name].kind not in BY_NAME:
            yield f"{their.name} is missing"
    for their in wanted:
        own = names.get(their.name)
        if own and (own.default is own.empty) and their.default is not their.empty:
            yield f"{their.name} has no default"


@pytest.mark.parametrize(("theirs", "ours"), functions())
def test_functions(theirs, ours):
    assert list(differences(theirs, ours)) == []


@pytest.mark.parametrize(("theirs", "ours"), methods())
def test_methods(theirs, ours):
    # theirs takes to_device's stream by position too, the standard by name alone
    if ours.__name__ == "_to_device":
        told = "(device: 'Any', /, *, stream: 'Any' = None) -> 'Tensor'"
        assert str(inspect.signature(ours)) == told
    else:
        assert list(differences(theirs, ours)) == []


def test_operators_name_their_operand():
    x = ef.ones((2,))
    for name in "add and eq floordiv ge lshift matmul mod ne or pow sub truediv xor radd".split():
        assert list(inspect.signature(getattr(x, f"__{name}__")).parameters) == ["other"]


def test_differences_are_found():
    def theirs(x, /, axis, *, n=1):
        """The standard's."""

    def of(ours):
        return list(differences(theirs, ours))

    assert of(lambda x, axis, n=1: None) == of(lambda a, /, axis, *, n=1, m=2: None) == []
    assert of(lambda x, /, ax, *, n=1: None) == ["axis cannot be given by name"]
    assert of(lambda x, axis, /, n=1: None) == ["axis cannot be given by name"]
    assert of(lambda x, axis: None) == ["n is missing"]
    assert of(lambda x: None) == ["axis is missing", "n is missing"]
    assert of(lambda x, axis, n: None) == ["n has no default"]
    assert list(differences(lambda *arrays: None, lambda arrays: None)) == ["*arrays"]
    assert list(differences(lambda x, /: None, lambda *, x: None))
