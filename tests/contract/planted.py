"""Ops with a bug put in on purpose, for the tests that show that the checks find it."""

import numpy as np

import eagerflow as ef
from eagerflow.dispatch import bind
from tests.cases import Cases, cases_of, of_tests
from tests.contract.cases import FLOAT64, samples
from tests.contract.derivatives import gradients_at


def planted(op, **changes):
    """An unregistered copy of an op with some facts or cases changed."""
    own = cases_of(op)
    cases = {name: changes.pop(name) for name in Cases._fields if name in changes}
    copy = op.replaced(table={}, kernels={}, call=None, **changes)
    bind(copy)
    of_tests[copy] = own._replace(**cases)
    return copy


def scaled(value):
    return value * 1.01


def negated(value):
    return value * -1


def zeroed(value):
    return value * 0


def first_lost(value):
    """The value with its first element zero."""
    if not isinstance(value, ef.Tensor) or not value.size:
        return value * 0
    mask = np.ones(value.size)
    mask[0] = 0
    return value * ef.asarray(mask.reshape(value.shape), dtype=value.dtype)


CHANGES = {"scaled": scaled, "negated": negated, "zeroed": zeroed, "first lost": first_lost}


def changed_rule(rule, change):
    """A rule, or a number in place of one, with its result changed."""
    if isinstance(rule, int):
        return lambda y, *args, **attributes: change(ef.ones_like(y) * rule)

    def changed(*args, **attributes):
        value = rule(*args, **attributes)
        return None if value is None else change(value)

    return changed


def rule_changes(op, position, change):
    """The facts of an op whose rule for one argument is changed."""
    if isinstance(op.partials, tuple):
        rules = list(op.partials)
        rules[position] = changed_rule(rules[position], change)
        return {"partials": tuple(rules)}
    if isinstance(op.vjp, tuple):
        rules = list(op.vjp)
        rules[position] = changed_rule(rules[position], change)
        return {"vjp": tuple(rules)}
    whole = op.vjp

    def changed(*args, **attributes):
        parts = list(whole(*args, **attributes))
        if position < len(parts) and parts[position] is not None:
            parts[position] = change(parts[position])
        return tuple(parts)

    return {"vjp": changed}


def has_rule(op, position):
    """Whether there is a rule for an argument at all."""
    rules = op.partials if isinstance(op.partials, tuple) else op.vjp
    return not isinstance(rules, tuple) or rules[position] not in (None, 0)


def matters(op, position):
    """Whether the gradient by an argument is anywhere other than 0."""
    for sample in samples(op, FLOAT64):
        args = sample.args
        if position >= len(args) or not isinstance(args[position], np.ndarray):
            continue
        if not ef.dtypes.is_inexact(args[position].dtype):
            continue
        before = sum(
            isinstance(x, np.ndarray) and ef.dtypes.is_inexact(x.dtype) for x in args[:position]
        )
        if gradients_at(op, args, sample, 1.0)[before].any():
            return True
    return False


def rule_bugs(op):
    """(description, op with a bug) for every bug of the gradient rules that we know to plant."""
    for position in range(len(op.data)):
        if has_rule(op, position) and matters(op, position):
            for name, change in CHANGES.items():
                changes = rule_changes(op, position, change)
                # A linear op is its own forward mode, so that only the reverse has the bug.
                yield f"{op.name}: by {op.data[position]}: {name}", planted(op, **changes)
    rules = op.partials if isinstance(op.partials, tuple) else op.vjp
    fact = "partials" if isinstance(op.partials, tuple) else "vjp"
    if isinstance(rules, tuple) and len(rules) == 2 and rules[0] != rules[1]:
        swapped = planted(op, **{fact: rules[::-1]})
        yield f"{op.name}: rules swapped", swapped
    for name in sorted(op.saves):
        yield f"{op.name}: {name} not saved", planted(op, saves=op.saves - {name})
