"""Each op and each composed function once: values, gradient, capture, and how it refuses.

The contract in ``tests/contract`` asks for more, of all dtypes and samples.
"""

import itertools

import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError
from eagerflow.op import Missing
from tests.cases import cases_of
from tests.contract import cases, checks, derivatives
from tests.contract.composed import ALL, Composed
from tests.contract.values import bound, expected


def module_of(op):
    return op.call.__module__.removeprefix("eagerflow.")


OPS = sorted([*cases.shipped(), *ALL], key=module_of)
BY_MODULE = {module: list(ops) for module, ops in itertools.groupby(OPS, module_of)}
in_modules = pytest.mark.parametrize("module", BY_MODULE)


@in_modules
def test_values(module):
    """The results are those of the reference, where there is one."""
    for op in BY_MODULE[module]:
        for sample in cases.spread(cases.samples(op, cases.main_dtype(op)), 3):
            with cases.about(op, sample):
                actual = cases.run(op, sample)
                if not isinstance(cases_of(op).reference, Missing):
                    wanted = expected(op, *bound(op, sample))
                    rtol = max(cases.tolerance(y.dtype) for y in actual)
                    cases.check_all_close(actual, wanted, rtol, "the result")


@in_modules
def test_captured_values(module):
    """A captured function gives what the eager call does."""
    for op in BY_MODULE[module]:
        for sample in cases.samples(op, cases.main_dtype(op))[:1]:
            f, xs = cases.on_arrays(op, sample)
            with cases.about(op, sample):
                try:
                    actual = cases.results(ef.function(f)(*map(ef.asarray, xs)))
                except CaptureError:  # shapes that follow from values
                    continue
                wanted = cases.run(op, sample)
                rtol = max(cases.tolerance(y.dtype) for y in wanted) * 100
                cases.check_all_close(actual, wanted, rtol, "captured")


@in_modules
def test_gradients(module):
    """Gradients, in reverse and forward mode, are those of central differences."""
    for op in BY_MODULE[module]:
        if derivatives.not_differentiable(op) is None and cases.dtypes_of(op, (cases.FLOAT64,)):
            chosen = sorted(derivatives.cases(op, cases.FLOAT64, 2), key=derivatives.elements)
            small = next((x for x in chosen if derivatives.elements(x) > 3), chosen[-1])
            derivatives.check_samples(op, [small], order=1)


@in_modules
def test_refusals(module):
    """What must be refused raises a typed error that names the op."""
    for op in BY_MODULE[module]:
        for sample in cases_of(op).errors(cases.seeded(op)):
            if not isinstance(op, Composed):
                sample = checks.completed(op, sample)
            with cases.about(op, sample):
                checks.check_refused(op, sample)
