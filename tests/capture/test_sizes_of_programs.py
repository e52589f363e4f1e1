"""Random programs on inputs of many sizes: captured, op by op and with plans, beside eager code."""

import os
import random

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.plan.replay import CALLS_BEFORE_PLAN
from tests.sampling import day

PROGRAMS = 2_000 if os.environ.get("EAGERFLOW_SOAK") == "1" else 60
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 12, 16]
COUNT = ef.Variable(np.zeros(4, "float32"))


def rows(x):
    return x.shape[0]


def counted(x, y):
    COUNT.assign_add(x.sum(axis=0) / (rows(x) + 1))
    return x + COUNT.value


# Each takes two tensors with four columns and gives one.
PIECES = [
    counted,
    lambda x, y: x * rows(x) + rows(y),
    lambda x, y: x / (rows(x) + 2),
    lambda x, y: x[: rows(x) // 2],
    lambda x, y: x[rows(x) // 2 :],
    lambda x, y: x[:5],
    lambda x, y: x[-3:],
    lambda x, y: x[1:],
    lambda x, y: x[::2],
    lambda x, y: x[::-1],
    lambda x, y: x[: min(rows(x), rows(y))],
    lambda x, y: x[: max(rows(x) - 2, 1)],
    lambda x, y: x if rows(x) > rows(y) else x * -1.0,
    lambda x, y: x * 2.0 if rows(x) == rows(y) else x + 1.0,
    lambda x, y: x if 2 < rows(x) <= 7 else ef.tanh(x),
    lambda x, y: ef.concat([x, y], axis=0),
    lambda x, y: ef.concat([x, ef.ones((rows(y), 4))], axis=0),
    lambda x, y: x + y.mean(axis=0),
    lambda x, y: ef.softmax(x @ y.mT, axis=-1) @ y,
    lambda x, y: x.cumsum(axis=0),
    lambda x, y: ef.pad(x, ((1, 0), (0, 0))),
    lambda x, y: ef.pad(x, ((0, 0), (1, 1)), mode="edge")[:, 1:-1],
    lambda x, y: x.reshape(-1).reshape(rows(x), 4),
    lambda x, y: x.reshape(rows(x) * 2, 2).reshape(-1, 4),
    lambda x, y: x * ef.arange(rows(x))[:, None],
    lambda x, y: ef.sort(x, axis=0),
    lambda x, y: ef.take(x, ef.argsort(x[:, 0]), axis=0),
    lambda x, y: ef.where(x > 0, x, x * 0.5),
    lambda x, y: ef.vmap(lambda row: row * row.sum())(x),
    lambda x, y: ef.scan(lambda c, row: (c + row, c - row), ef.zeros(4), x)[1],
    lambda x, y: ef.cond(x.sum() > 0.0, lambda: x * 2.0, lambda: x - rows(x)),
    lambda x, y: ef.fori_loop(0, 2, lambda i, v: v * 0.5 + rows(v), x),
    lambda x, y: ef.einsum("ij,jk->ik", x, ef.eye(4)),
    lambda x, y: ef.tile(x, (2, 1)),
    lambda x, y: ef.broadcast_to(x.sum(axis=0), (rows(y), 4)),
    lambda x, y: ef.grad(lambda v: (v**2).sum() / (rows(v) + 1))(x),
    lambda x, y: ef.split(x, [1], axis=0)[-1],
    lambda x, y: ef.stack([x, x + 1.0]).sum(axis=0),
    lambda x, y: x * float(len(f"{x.ndim}")),
    lambda x, y: sum((x[i] for i in range(min(rows(x), 3))), start=ef.zeros(4)) + x,
]


def program_of(choices):
    def program(x, y):
        for piece, swapped in choices:
            found = piece(y, x) if swapped else piece(x, y)
            x, y = (x, found) if swapped else (found, y)
        return x, y, (x.sum() + y.sum()) * 1.0

    return program


def outcome(f, args):
    COUNT.assign(np.zeros(4, "float32"))
    try:
        found = [np.asarray(value) for value in f(*args)]
    except (ef.errors.EagerflowError, ValueError, ArithmeticError) as error:
        return type(error).__name__
    return [*found, COUNT.numpy()]


def close(one, other, exact):
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return all(
        a.shape == b.shape
        and (
            np.array_equal(a, b, equal_nan=True)
            if exact
            else np.allclose(a, b, 1e-4, 1e-4 * max(1.0, np.abs(b).max(initial=0)), equal_nan=True)
        )
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_random_programs(number):
    choose = random.Random(f"{day()} {number}")
    choices = [(choose.choice(PIECES), choose.random() < 0.3) for _ in range(choose.randint(2, 6))]
    program, rng = program_of(choices), np.random.default_rng(number)
    # Labels of arguments are a_0 and a_0, as those of a[0] and a_0.
    nested = lambda a, a_0: program(a[0], a_0)
    ways = {numerics: ef.function(nested, numerics=numerics) for numerics in ("fast", "exact")}
    sizes = [(choose.choice(SIZES), choose.choice(SIZES)) for _ in range(10)]
    sizes += [choose.choice(sizes)] * (CALLS_BEFORE_PLAN + 2)
    held = []
    for n, m in sizes:
        args = [ef.tensor(rng.normal(size=(k, 4)).astype("float32")) for k in (n, m)]
        wanted = outcome(program, args)
        for numerics, captured in ways.items():
            found = outcome(captured, [args[:1], args[1]])
            assert close(found, wanted, numerics == "exact"), (number, numerics, n, m)
            held.append((found, wanted, numerics))
    for found, wanted, numerics in held:  # nothing was written over
        assert close(found, wanted, numerics == "exact")


@pytest.mark.parametrize(
    ("module", "name", "fault"),
    [
        ("free_sizes", "FreeSizes.hold", lambda self, sizes: True),  # answers are forgotten
        ("free_sizes", "FreeSizes.note", lambda self, what: None),  # texts and keys are names
        ("varying", "MIN_SIZE", -9),
    ],
)
def test_planted_faults_are_found(module, name, fault, monkeypatch):
    monkeypatch.setattr(f"eagerflow.capture.{module}.{name}", fault)
    found = []
    for choices in (PIECES[12:15], PIECES[7:8], [lambda x, y: x * len(f"{rows(x)}")]):
        program = program_of([(piece, False) for piece in choices])
        captured = ef.function(program)
        for n in (5, 7, 3, 12, 1, 16, 2, 0):
            args = [ef.tensor(np.ones((k, 4), "float32")) for k in (n, 5)]
            found.append(close(outcome(captured, args), outcome(program, args), False))
    assert not all(found)
