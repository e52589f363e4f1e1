"""Each op and each composed function once: values, gradient, capture, and how it refuses.

The contract in ``tests/contract`` asks for more, of all dtypes and samples.
"""

import itertools

import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError
from eagerflow.op import Missing
from tests.contract import checks, derivatives
from tests.contract.cases import (
    FLOAT64,
    about,
    check_all_close,
    dtypes_of,
    main_dtype,
    on_arrays,
    results,
    run,
    samples,
    seeded,
    shipped,
    spread,
    tolerance,
)
from tests.contract.composed import ALL, Composed
from tests.contract.values import bound, expected


def module_of(op):
    return op.call.__module__.removeprefix("eagerflow.")


BY_MODULE = {
    module: list(ops)
    for module, ops in itertools.groupby(sorted([*shipped(), *ALL], key=module_of), module_of)
}
in_modules = pytest.mark.parametrize("module", BY_MODULE)


@in_modules
def test_values(module):
    """The results are those of the reference, where there is one."""
    for op in BY_MODULE[module]:
        for sample in spread(samples(op, main_dtype(op)), 3):
            with about(op, sample):
                actual = run(op, sample)
                if not isinstance(op.reference, Missing):
                    wanted = expected(op, *bound(op, sample))
                    rtol = max(tolerance(y.dtype) for y in actual)
                    check_all_close(actual, wanted, rtol, "the result")


@in_modules
def test_captured_values(module):
    """A captured function gives what the eager call does."""
    for op in BY_MODULE[module]:
        for sample in samples(op, main_dtype(op))[:1]:
            f, xs = on_arrays(op, sample)
            with about(op, sample):
                try:
                    actual = results(ef.function(f)(*map(ef.asarray, xs)))
                except CaptureError:  # shapes that follow from values
                    continue
                wanted = run(op, sample)
                rtol = max(tolerance(y.dtype) for y in wanted) * 100
                check_all_close(actual, wanted, rtol, "captured")


@in_modules
def test_gradients(module):
    """Gradients, in reverse and forward mode, are those of central differences."""
    for op in BY_MODULE[module]:
        if derivatives.not_differentiable(op) is None and dtypes_of(op, (FLOAT64,)):
            chosen = sorted(derivatives.cases(op, FLOAT64, 2), key=derivatives.elements)
            derivatives.check_samples(op, chosen[-1:], order=1)


@in_modules
def test_refusals(module):
    """What must be refused raises a typed error that names the op."""
    for op in BY_MODULE[module]:
        for sample in op.errors(seeded(op)):
            if not isinstance(op, Composed):
                sample = checks.completed(op, sample)
            with about(op, sample):
                checks.check_refused(op, sample)
