"""Functions that are neither ops nor composed: what they cannot take, they refuse in our words.

Contract tests try this of ops and of composed functions; these have no facts to be tried from.
"""

import numpy as np
import pytest

import eagerflow as ef

X = np.arange(12.0).reshape(3, 4)
V = X[0]
BAD = [None, -7, 1.5, "x", float("nan"), True, (), [], (1, -1), object(), 1j, {"a": 1}, b"b"]
BAD += [slice(0, 1), len, np.float64(0.5), np.int64(1), np.array(1.0), np.array(["a"])]
BAD += [np.zeros((0, 3)), np.array([np.nan]), [1, [2, 3]], np.datetime64("2020-01-01"), ef.ones(2)]
CALLS = {
    "array_split": ((X, 2), {"axis": 0}),
    "block": (([X, X],), {}),
    "column_stack": (([V, V],), {}),
    "diag_indices": ((3,), {"ndim": 2}),
    "dropout": ((X, 0.5), {"noise_shape": None, "generator": None}),
    "dsplit": ((X[..., None], 1), {}),
    "dstack": (([V, V],), {}),
    "geomspace": ((1.0, 8.0), {"num": 3, "endpoint": True}),
    "gradient": ((X, 1.0), {"axis": 0, "edge_order": 1}),
    "histogram2d": ((V, V), {"bins": 2, "range": None, "density": False, "weights": None}),
    "histogramdd": ((X,), {"bins": 2, "range": None, "density": False, "weights": None}),
    "hstack": (([V, V],), {}),
    "logspace": ((0.0, 1.0), {"num": 3, "endpoint": True, "base": 10.0}),
    "meshgrid": ((V, V), {"indexing": "xy", "sparse": False}),
    "pad": ((X, 1), {"mode": "constant", "constant_values": 0}),
    "select": (([V > 1], [V]), {"default": 0}),
    "split": ((X, 3), {"axis": 0}),
    "tensordot": ((X, X), {"axes": 2}),
    "tril_indices": ((3,), {"k": 0, "m": None}),
    "triu_indices": ((3,), {"k": 0, "m": None}),
    "unique": ((V,), {"axis": None, "return_counts": False}),
    "vstack": (([V, V],), {}),
    "linalg.multi_dot": (([X, X.T],), {}),
    "random.geometric": ((0.5,), {"shape": (2,)}),
    "random.student_t": ((2.0,), {"shape": (2,)}),
    "signal.hann": ((4,), {"sym": True}),
    "signal.kaiser": ((4, 2.0), {"sym": True}),
}


def named(name):
    home, _, last = name.rpartition(".")
    return getattr(getattr(ef, home) if home else ef, last)


def leaks(function, args, more):
    """Which bad arguments raise an error that is not one of ours."""
    found = []
    changed = [((*args[:i], bad, *args[i + 1 :]), more) for i in range(len(args)) for bad in BAD]
    changed += [(args, more | {key: bad}) for key in more for bad in BAD]
    for given, named in changed:
        try:
            function(*given, **named)
        except ef.errors.EagerflowError:
            pass
        except Exception as error:
            found.append(f"{given} {named}: {error!r}")
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")  # NumPy's
@pytest.mark.parametrize("name", CALLS)
def test_bad_arguments_raise_errors_of_ours(name):
    args, more = CALLS[name]
    named(name)(*args, **more)
    assert leaks(named(name), args, more) == []


def test_errors_of_others_would_be_found():
    assert len(leaks(lambda x: len(x), ([1],), {})) > 5
