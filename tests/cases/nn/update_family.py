"""Cases of eagerflow/ops/nn/update_family.py."""

import numpy as np

from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.op import ops
from eagerflow.ops.family import op_of
from eagerflow.ops.nn.update_family import updated
from tests.cases import cases_of
from tests.cases.samples import Cases, ErrorSample, Sample, make

_NUMBERS = {"learning_rate": 0.1, "step": 3.0, "product": 0.4}
"""The arguments that are one number for all elements."""


def of_step(function, one, *options):
    """Cases of an optimizer's step, which is ``one`` of Python numbers.

    ``options`` are the attributes of its samples.
    """
    op = op_of(function)
    arrays = [name for name in op.data if name not in _NUMBERS]
    numbers = [name for name in op.data if name in _NUMBERS]
    return Cases(
        samples=_samples(len(arrays), numbers, options),
        errors=lambda rng: _errors(rng, len(arrays), len(numbers), arrays[0]),
        reference=_row_by_row(one, len(arrays), op.outputs),
    )


def _row_by_row(one, arrays, results):
    def reference(*given, **attributes):
        numbers = [n.item() for n in given[arrays:]]
        columns = [a.ravel().tolist() for a in given[:arrays]]
        rows = [one(*row, *numbers, **attributes) for row in zip(*columns, strict=True)]
        found = zip(*rows, strict=True) if rows else [()] * results
        return tuple(np.array(x, given[0].dtype).reshape(given[0].shape) for x in found)

    return reference


def _errors(rng, arrays, numbers, first):
    x = rng.standard_normal((2, 3))
    rest = (x,) * (arrays - 1) + (0.1,) * numbers
    words = f"not that of the {first}"
    return [
        ErrorSample((x, x[0], *rest[1:]), {}, ShapeError, words),
        ErrorSample((x, x.T, *rest[1:]), {}, ShapeError, words),
        ErrorSample((x * 1j, *rest), {}, DTypeError, "is not taken"),
    ]


def _samples(arrays, names, options):
    shapes = ((), (1,), (5,), (0,), (2, 3), (3, 1, 4), (1 << 14 | 3,))

    def samples(rng, dtype):
        numbers = tuple(np.asarray(_NUMBERS[name], dtype) for name in names)
        found = []
        for i, shape in enumerate(shapes):
            values = [make(rng, dtype, shape, 0.5, 2) for _ in range(arrays)]
            found.append(Sample((*values, *numbers), options[i % len(options)]))
        base = [make(rng, dtype, (6, 4), 0.5, 2) for _ in range(arrays)]
        for cut in (lambda x: x.T, lambda x: x[::2, ::-1], lambda x: np.broadcast_to(x[0], (3, 4))):
            found += [Sample((*[cut(x) for x in base], *numbers), more) for more in options]
        return found

    return samples


def _joined_reference(*args, update, options):
    op, attributes, groups = updated(args, update, options)
    one = cases_of(op).reference
    return tuple(y for group in groups for y in one(*group, **attributes))


def _joined_samples(rng, dtype):
    found = []
    for name, shapes, more in (
        ("adam_update", ((3,),), {}),
        ("adam_update", ((2, 3), (), (0,), (4, 1)), {"beta_1": 0.5, "epsilon": 1e-3}),
        ("momentum_update", ((5,), (5,)), {"weight_decay": 0.01, "nesterov": True}),
    ):
        attributes = {"update": name, "options": tuple(more.items())}
        numbers = [np.asarray(_NUMBERS[n], dtype) for n in ops[name].data if n in _NUMBERS]
        width = len(ops[name].data) - len(numbers)
        arrays = [make(rng, dtype, shape, 0.5, 2) for shape in shapes for _ in range(width)]
        found.append(Sample((*numbers, *arrays), attributes))
        base = [make(rng, dtype, (6, 4), 0.5, 2) for _ in range(width)]
        views = [*(x.T for x in base), *(x[::2, ::-1] for x in base)]
        found.append(Sample((*numbers, *views), attributes))
    return found


def _joined_errors(rng):
    x = rng.standard_normal((2, 3))
    adam = {"update": "adam_update", "options": ()}
    return [
        ErrorSample((0.1, 1.0, x, x, x), adam, ShapeError, "3 arrays given"),
        ErrorSample((0.1, 1.0, x, x, x, x[0]), adam, ShapeError, "not that of the parameter"),
        ErrorSample((0.1, 1.0, x * 1j, x, x, x), adam, DTypeError, "is not taken"),
        ErrorSample((0.1, x, x), {"update": "add"}, ArgumentError, "not an optimizer's step"),
        ErrorSample((0.1, x, x), adam | {"options": (("rho", 1),)}, ArgumentError, "not options"),
    ]


CASES = {
    "joined_update": Cases(
        samples=_joined_samples, errors=_joined_errors, reference=_joined_reference
    ),
}
