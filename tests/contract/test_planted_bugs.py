"""Every check finds a bug that is put in for it, and nearly all wrong gradient rules are found."""

import itertools

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import DTypeError, EagerflowError, ShapeError
from eagerflow.op import Cost, Into, Missing, Split, ops
from tests.cases.samples import ErrorSample, Sample
from tests.contract import fuzz_worker
from tests.contract.cases import SOAK, shipped
from tests.contract.checks import CHECKS
from tests.contract.planted import planted, rule_bugs
from tests.contract.test_fuzz import fuzzed
from tests.internals import array_of

RULE_BUGS = 300 if SOAK else 40
RULE_OPS = None if SOAK else 16
AT_LEAST = 0.95


def kernel(function):
    """A kernel of our own in place of NumPy's function."""
    return {"ufunc": None, "kernel": function}


def partials(*rules):
    """Other partial derivatives."""
    return {"partials": rules}


def vjp(*rules, **changes):
    """Rules in place of partial derivatives."""
    return {"partials": Missing("see vjp"), "vjp": rules, **changes}


def dead(position):
    """The right partial derivative of a product, which cannot be differentiated again."""
    return lambda y, *args: ef.stop_gradient(args[position])


def conjugate(position):
    """The partial derivative of a product for those who conjugate it themselves."""
    return lambda y, *args: ef.conj(args[position])


def coarse(position):
    """The right partial derivative of a product, by a sum that takes digits of small floats."""
    return lambda y, *args: (args[position] + 64) - 64


def mute(xp, x, /):
    """A kernel whose error does not say enough."""
    error = ShapeError("negative wants none of this")
    error.received = " "
    raise error


def few(rng, dtype):
    """One sample less than there must be."""
    return [Sample((np.ones(2),))] * 11


def in_place(xp, x, /):
    """A kernel that computes in place."""
    return xp.negative(x, out=x)


COUNTER = itertools.count(1)


def wavering(xp, x, /):
    """A kernel that never gives the same twice."""
    return -x * (1 + next(COUNTER) * 1e-6)


def wrong_in_float16(xp, x, /):
    """A kernel that is wrong for float16 alone."""
    return -x * 2 if x.dtype == np.float16 else -x


def refuses_names(x):
    """An infer that wants numbers."""
    if not all(isinstance(n, int) for n in x.shape):
        raise ShapeError("sizes must be integers")
    return x


def doubled(x):
    """An infer that is wrong for named sizes alone."""
    return x.like([n if isinstance(n, int) else 2 * n for n in x.shape])


def forgets_the_batch_axis(args, batched, size, axis, **attributes):
    """A batching rule of a reduction that does not count the batch axis."""
    whole = ef.sum(args[0], axis=axis, **attributes)
    return whole if whole.ndim and whole.shape[0] == size else ef.broadcast_to(whole, (size,))


def negates_in_flat_batches(args, batched, size):
    """A batching rule that knows one level only."""
    (x,) = args
    return -x if type(array_of(x)) is np.ndarray else x


def adds_first_axes(x, **attributes):
    """A split that adds what must be concatenated."""
    return [Split((0,), None, "add")] if x.ndim and x.shape[0] % 2 == 0 else []


def one_error(args, error, words):
    """Three times the same error sample."""
    return lambda rng: [ErrorSample(args, {}, error, words)] * 3


def in_columns(xp, x, /):
    """Minus x, with the first axis closest in memory."""
    return xp.asfortranarray(-x)


ROW = (np.ones(3),)
TEXT = ("a string",)
PLANTED = [
    ("facts", "multiply", {"partials": ops["multiply"].partials[:1]}, "1 partials for the 2"),
    ("facts", "multiply", {"jvp": Missing("forgotten for now")}, "no forward mode"),
    ("facts", "multiply", {"saves": frozenset({"z"})}, "neither arguments nor 'y'"),
    ("facts", "negative", {"onnx": Missing("none")}, "without a reason"),
    ("enough_samples", "negative", {"samples": few}, "11 samples, at least 12"),
    ("effects", "reshape", {"aliases": False}, "shares memory, though"),
    ("effects", "flip", {"views": "all"}, "shows others"),
    ("effects", "eye", {"fills": True}, "several numbers"),
    ("memory_order", "negative", {"ufunc": None, "kernel": in_columns}, "not row-major"),
    (
        "memory_order",
        "matmul",
        {"into": lambda x, y: Into(lambda x, y, out: out.fill(7), None)},
        "other bits",
    ),
    (
        "parts_written",
        "index_set",
        {"writes": lambda *specs, index: lambda *arrays: ([], [])},
        "another result",
    ),
    ("parts_written", "index_set", {"writes": lambda *specs, index: None}, "no sample"),
    ("refusals", "take", {"fails": False}, "does not say so"),
    ("refusals", "negative", {"fails": True}, "never fails"),
    ("errors", "negative", {"errors": one_error(ROW, DTypeError, "str")}, "was not refused"),
    ("errors", "negative", {"errors": one_error(TEXT, ShapeError, "str")}, "raised DTypeError"),
    ("errors", "negative", {"errors": one_error(TEXT, DTypeError, "other")}, "lacks 'other'"),
    ("errors", "negative", {"errors": lambda rng: []}, "0 error samples"),
    (
        "errors",
        "negative",
        {"errors": one_error(ROW, ShapeError, "none")} | kernel(mute),
        "names no argument",
    ),
    ("attributes", "sum", {"attributes": {**ops["sum"].attributes, "axis": [0]}}, "changes when"),
    ("cost", "negative", {"cost": lambda x: Cost(-1, 0)}, "the cost is"),
    ("cost", "negative", {"cost": lambda x: None}, "the cost is None"),
    ("reference", "negative", {"ufunc": "positive"}, "the result: .* instead of"),
    ("reference", "negative", kernel(lambda xp, x, /: -x * 1.0001), "the result: .* instead of"),
    ("accuracy", "negative", kernel(lambda xp, x, /: -x * (1 + 1e-6)), "units in the last place"),
    ("small_floats", "negative", kernel(wrong_in_float16), "the result: .* instead of"),
    ("infer", "negative", {"infer": lambda x: x.like(dtype="float16")}, "infer says"),
    ("infer", "negative", {"infer": lambda x: x.like((*x.shape, 1))}, "infer says"),
    ("symbolic", "negative", {"infer": refuses_names}, "sizes must be integers"),
    ("symbolic", "negative", {"infer": doubled}, r"with {'n5': 5} is .*10,.* not .*5,"),
    ("inputs_untouched", "negative", kernel(in_place), "the kernel changed an argument"),
    ("forms_of_call", "sum", {"direct": lambda xp: lambda x, **more: xp.add.reduce(x)}, "a second"),
    ("recording", "negative", kernel(wavering), "other bits"),
    ("scalar_rule", "negative", {"scalar": lambda s, x: s.multiply(x, -1.001)}, "the rule: .*"),
    ("scalar_rule", "negative", {"scalar": "multiply"}, "takes other operands"),
    ("gradient", "multiply", partials(lambda y, a, b: b, lambda y, a, b: a * 1.01), "reverse"),
    ("gradient", "multiply", partials(lambda y, a, b: b, None), r"args\[1\].*reverse derivative"),
    ("gradient", "negative", vjp(lambda g, y, x: g, jvp="linear"), "reverse derivative"),
    ("gradient", "multiply", {"jvp": lambda tangents, y, a, b: y}, "forward derivative"),
    ("second_order", "multiply", partials(dead(1), dead(0)), "second derivative"),
    ("complex_gradient", "conj", vjp(lambda g, y, x: g), "imaginary part"),
    ("complex_gradient", "multiply", partials(conjugate(1), conjugate(0)), "imaginary part"),
    (
        "complex_step",
        "multiply",
        partials(lambda y, a, b: b * (1 + 1e-8), lambda y, a, b: a),
        "rtol=1e-10",
    ),
    ("zero_cotangents", "negative", vjp(lambda g, y, x: 1 - g), "zero output gradients give"),
    ("small_gradients", "multiply", partials(coarse(1), coarse(0)), "the gradient: "),
    ("batch", "sum", {"batch": forgets_the_batch_axis}, "batched arguments"),
    ("batch", "negative", {"batch": lambda args, batched, size: args[0]}, "batched arguments"),
    ("batch", "tril", {"infer": lambda x, **_: x}, "takes what is refused"),
    ("nested_batch", "negative", {"batch": negates_in_flat_batches}, "two levels"),
    ("split", "sum", {"split": lambda x, **more: [Split((0,), None, "add")]}, "not exist"),
    ("split", "sum", {"split": adds_first_axes}, "Split.*shape|Split.*instead of"),
    ("split", "negative", {"split": adds_first_axes}, "Split.*shape"),
    ("split", "negative", {"split": lambda x: []}, "no sample can be cut"),
]


@pytest.mark.parametrize(
    ("check", "name", "changes", "words"),
    PLANTED,
    ids=[f"{check}-{name}-{i}" for i, (check, name, *_) in enumerate(PLANTED)],
)
def test_planted_bug_is_found(check, name, changes, words):
    with pytest.raises((AssertionError, EagerflowError), match=f"(?s){words}"):
        CHECKS[check](planted(ops[name], **changes))


def test_there_is_a_planted_bug_for_every_check():
    assert {check for check, *_ in PLANTED} == set(CHECKS)


def test_copies_without_a_bug_pass():
    for check, name in sorted({(check, name) for check, name, *_ in PLANTED}):
        if check not in ("enough_samples", "errors"):  # of what the copied op itself says
            CHECKS[check](planted(ops[name]))


def finds(bug):
    """Whether the checks of gradients find a bug in a rule."""
    for check in ("gradient", "second_order", "complex_gradient"):
        if CHECKS[check].excuse(bug) is None:
            try:
                CHECKS[check](bug)
            except Exception:
                return True
    return False


def healthy(op):
    """Whether a differentiable op passes, so that a change is what makes it fail."""
    return CHECKS["gradient"].excuse(op) is None and not finds(op)


def test_wrong_gradient_rules_are_found(capsys):
    rng = np.random.default_rng(0)
    every = sorted(shipped(), key=lambda op: op.name)
    mixed = (every[i] for i in rng.permutation(len(every)))
    differentiable = list(itertools.islice(filter(healthy, mixed), RULE_OPS))
    bugs = [list(rule_bugs(op)) for op in differentiable]
    shuffled = [[own[i] for i in rng.permutation(len(own))] for own in bugs]
    # Some of each op, in turns, until there are enough.
    turns = itertools.zip_longest(*shuffled)
    chosen = [bug for turn in turns for bug in turn if bug is not None][:RULE_BUGS]
    missed = [text for text, bug in chosen if not finds(bug)]
    caught = len(chosen) - len(missed)
    with capsys.disabled():
        print(
            f"\n{caught} of {len(chosen)} bugs planted in the gradient rules of "
            f"{len(differentiable)} ops found; missed: {missed}"
        )
    assert len(chosen) >= 20
    assert caught >= AT_LEAST * len(chosen), missed


def test_fuzzer_counts_calls():
    found = fuzz_worker.fuzz(planted(ops["negative"]), 40, 0)
    assert found["succeeded"] + found["refused"] + len(found["broken"]) == 40


def test_fuzzer_finds_a_foreign_error(monkeypatch):
    op = planted(ops["negative"])
    monkeypatch.setattr(op, "call", lambda *args, **named: {}["planted"])
    found = fuzz_worker.fuzz(op, 40, 0)
    assert len(found["broken"]) == 40
    assert "KeyError: 'planted'" in found["broken"][0]["error"]


@pytest.mark.parametrize("what", ["killed", "hangs", "memory"])
def test_fuzzer_finds_a_dead_process(what):
    found, death = fuzzed([what], calls=3, module="tests.contract.doomed_worker")
    assert found == []
    assert {"killed": "-9", "hangs": "-14", "memory": "MemoryError"}[what] in death
