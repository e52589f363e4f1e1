"""The contract of composed functions, checked from their facts as that of ops is.

A new function is tested without a line of test code. ``EAGERFLOW_SOAK=1`` checks all samples
instead of a few.
"""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dtypes import FLOATS
from eagerflow.errors import CaptureError, DTypeError, EagerflowError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed, compositions
from tests.cases import Cases, cases_of, of_tests
from tests.cases.samples import reals
from tests.contract import checks, derivatives, passes, values
from tests.contract.cases import (
    COMPLEX128,
    FLOAT64,
    SMALL,
    about,
    arrays_of,
    as_tensors,
    check_all_close,
    dtypes_of,
    main_dtype,
    on_arrays,
    results,
    run,
    samples,
    spread,
    tolerance,
)
from tests.contract.composed import ALL, Composed
from tests.contract.registry import NotApplicable

LEAST_SAMPLES = {True: 6, False: 3}  # with a gradient, and without


def facts(op):
    """There are samples and a docstring; what is missing has a reason."""
    assert op.call.__doc__, "no docstring"
    stated = {name: getattr(op, name) for name in ("gradient", "small", "sizes", "batch")}
    for name, fact in (stated | cases_of(op)._asdict()).items():
        assert not isinstance(fact, Missing) or len(fact.reason.split()) > 1, f"{name}: no reason"
    count, least = len(samples(op, main_dtype(op))), LEAST_SAMPLES[op.differentiable]
    assert count >= least, f"{count} samples, at least {least}"


def errors(op):
    """What must be refused is, and says so in this function's name."""
    for sample in cases_of(op).errors(values.seeded(op)):
        with about(op, sample):
            checks.check_refused(op, sample)


def reference(op):
    """The result is that of an independent reference, in every dtype family."""
    for dtype in dtypes_of(op) or [main_dtype(op)]:
        for sample in samples(op, dtype):
            with about(op, sample):
                actual = run(op, sample)
                wanted = values.expected(op, *values.bound(op, sample))
                rtol = max(tolerance(y.dtype) for y in actual)
                check_all_close(actual, wanted, rtol, "the result")


def captured(op):
    """A graph gives what the eager call does, with sizes that are known and that are not."""
    succeeded = refused = 0
    for sample in spread(samples(op, main_dtype(op)), 3):
        with about(op, sample):
            wanted = run(op, sample)
            rtol = max(tolerance(y.dtype) for y in wanted) * 100
            check_all_close(traced(op, sample, free=False), wanted, rtol, "captured")
            try:
                actual = traced(op, sample, free=True)
            except EagerflowError as error:
                succeeded += isinstance(error, CaptureError)
                refused += 1
                continue
            check_all_close(actual, wanted, rtol, "captured with free sizes")
            succeeded += 1
    assert succeeded or op.sizes, (
        f"{refused} samples with free sizes were refused, without a reason"
    )


def traced(op, sample, free):
    """The results of a graph of the function of a sample's arrays."""
    f, arrays = on_arrays(op, sample)
    shapes = [tuple(f"n{n}" if free and n > 1 else n for n in x.shape) for x in arrays]
    specs = [ef.TensorSpec(s, x.dtype) for s, x in zip(shapes, arrays, strict=True)]
    return results(ef.capture.trace(f, *specs)(*map(ef.asarray, arrays)))


def gradient(op):
    """The whole Jacobian, in both modes, is that of central differences; twice for one sample."""
    chosen = derivatives.cases(op, FLOAT64, 3)
    derivatives.check_samples(op, chosen, order=1)
    several = [s for s in sorted(chosen, key=derivatives.elements) if derivatives.elements(s) > 1]
    derivatives.check_samples(op, several[:1], order=2)


def complex_gradient(op):
    """So is that of complex values."""
    derivatives.check_samples(op, derivatives.cases(op, COMPLEX128, 2)[:1], order=1)


def batch(op):
    """vmap computes what a loop over the examples does, whichever arguments are batched."""
    for group in spread(passes.variants(op, passes.EXAMPLES), 3):
        for where in passes.batches(group[0]):
            with about(op, group[0]):
                passes.check_batch(op, group, where)


def inputs_untouched(op):
    """Arguments stay as they are, and a tape changes no bit."""
    for sample in spread(samples(op, main_dtype(op)), 4):
        with about(op, sample):
            args = as_tensors(sample)
            before = [np.asarray(x).tobytes() for x in args if isinstance(x, ef.Tensor)]
            out = results(op.call(*args, **sample.attributes))
            after = [np.asarray(x).tobytes() for x in args if isinstance(x, ef.Tensor)]
            assert before == after, "an argument has changed"
            if not any(isinstance(x, list | tuple) for x in sample.args):
                values.check_same_bits(values.recorded(op, sample), out, "under a tape")


def no_arrays(op):
    """An excuse: no argument is an array."""
    found = [x for s in samples(op, main_dtype(op)) for x in arrays_of(s)]
    return None if found else "no argument is an array"


EXCUSES = {
    reference: lambda op: getattr(cases_of(op).reference, "reason", None),
    gradient: lambda op: derivatives.not_differentiable(op) or derivatives.takes(FLOAT64)(op),
    complex_gradient: (
        lambda op: derivatives.not_differentiable(op) or derivatives.takes(COMPLEX128)(op)
    ),
    batch: lambda op: no_arrays(op) or getattr(op.batch, "reason", None),
    values.small_floats.run: (
        lambda op: op.small.reason if op.small else no_arrays(op) or no_small(op)
    ),
}


def no_small(op):
    """An excuse: no 16-bit floats are taken."""
    return None if dtypes_of(op, SMALL) else "takes no 16-bit floats"


CHECKS = [facts, errors, captured, inputs_untouched, *EXCUSES]
CASES = [
    (check, op)
    for op in ALL
    for check in CHECKS
    if check not in EXCUSES or EXCUSES[check](op) is None
]
STEPS = {
    "batch": 2,
    "captured": 4,
    "complex_gradient": 2,
    "gradient": 4,
    "inputs_untouched": 3,
    "small_floats": 3,
}
"""Of slow checks each day every n-th function: see ``tests/sampling.py``."""


def case(check, op):
    name = check.__name__
    return pytest.param(
        check,
        op,
        id=f"{name}-{op.call.__module__.split('.')[-1]}.{op.name}",
        marks=pytest.mark.sampled(STEPS.get(name, 1)),
    )


@pytest.mark.parametrize(("check", "op"), [case(check, op) for check, op in CASES])
def test_contract(check, op):
    try:
        check(op)
    except NotApplicable as reason:
        pytest.skip(f"{check.__name__} of {op.name}: {reason}")


# Checks can fail ----------------------------------------------------------------------------------


def doubled(function, **facts):
    """A composed function that is to give twice its argument, and is not kept."""
    call = composed(**{"dtypes": FLOATS} | facts)(function)
    op = Composed(compositions.pop())
    of_tests[op] = Cases(reals(), lambda rng: [], lambda x: x * 2)
    return call, op


def twice(x, /):
    """Twice x."""
    return ef.multiply(x, 2)


def cut(x, /):
    """Without a gradient."""
    return ef.multiply(ef.stop_gradient(x), 2)


def half_cut(x, /):
    """With half of the gradient."""
    return ef.add(x, ef.stop_gradient(x))


def tripled(x, /):
    """Three times x."""
    return ef.multiply(x, 3)


def looking(x, /):
    """With a branch on a value."""
    return ef.multiply(x, 2) if x.size == 0 or float(ef.sum(ef.abs(x))) >= 0 else x


def on_the_host(x, /):
    """Not through ops."""
    return ef.asarray(np.asarray(x) * np.asarray(2, x.dtype))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_checks_pass_a_correct_op(check):
    _, op = doubled(twice)
    if check not in EXCUSES or EXCUSES[check](op) is None:
        check(op)


@pytest.mark.parametrize(
    ("function", "check"),
    [
        (cut, gradient),
        (half_cut, gradient),
        (tripled, reference),
        (looking, captured),
        (looking, batch),
        (on_the_host, captured),
        (on_the_host, gradient),
    ],
    ids=lambda given: given.__name__,
)
def test_checks_detect_a_wrong_op(function, check):
    _, op = doubled(function)
    with pytest.raises((AssertionError, EagerflowError)):
        check(op)


def test_errors_tell_the_function_and_its_arguments():
    def summed(x, /, *, axis=-1):
        """Twice a sum."""
        return ef.multiply(ef.sum(x, axis=axis), 2)

    call, _ = doubled(summed)
    cases = [
        (([1.0],), {"axis": 3}, "summed: axis: axis 3 does not exist"),
        ((), {}, "summed: x: this argument is missing"),
        (([1.0], 0, 0), {}, "2 arguments at most, 3 given"),
        (([1.0],), {"out": 1}, "summed: out"),
        (([1.0],), {"x": 1}, "summed: x: this argument was given twice"),
        (("a",), {}, "summed: "),
    ]
    for args, named, words in cases:
        with pytest.raises(EagerflowError, match=words):
            call(*args, **named)
    assert call(x=[1.0, 2.0]) == 6.0
    assert call(ef.tensor([1.0, 2.0]), 0) == 6.0


def test_errors_of_python_and_numpy_become_typed():
    def powered(x, /, *, n=1.0, rows=()):
        """A tensor times what Python makes of its attributes."""
        return ef.multiply(x, np.asarray(rows, "float64").sum() + float(10**n))

    call, _ = doubled(powered)
    x = ef.tensor([1.0])
    with pytest.raises(ShapeError, match="powered: ") as found:
        call(x, rows=[[1], [1, 2]])
    assert isinstance(found.value.__cause__, ValueError)
    with pytest.raises(DTypeError, match="powered: "):
        call(x, n=400)


def test_numbers_of_a_trace_fit_their_type_hints():
    def scaled(x, /, *, by: float = 1.0, times: int = 1):
        """A tensor times two numbers."""
        return ef.multiply(ef.multiply(x, by), times)

    scaled.__annotations__ = {"by": "float", "times": "int"}
    call, _ = doubled(scaled)
    captured = ef.function(lambda x, by, times: call(x, by=by, times=times))
    assert captured(ef.tensor([1.0]), 0.5, 3).tolist() == [1.5]
    with pytest.raises(EagerflowError, match="expected: an integer"):
        captured(ef.tensor([1.0]), 0.5, 1.5)
