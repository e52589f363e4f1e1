"""Cases of eagerflow/ops/linear_algebra/einstein.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.linear_algebra.einstein import resolved
from tests.cases.linear_algebra.contraction import complex_sum
from tests.cases.samples import Cases, ErrorSample, Sample, make

_CALLS = (
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 2)),
    ("i,i->", (4,), (4,)),
    ("i,j->ji", (2,), (3,)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->i", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iji->j", (2, 3, 2)),
    ("iii->i", (2, 2, 2)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
    ("bij,jk->bik", (2, 2, 3), (3, 2)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 2)),
    ("...i,i->...", (2, 3), (3,)),
    ("i...->...", (2, 3)),
    ("...,...", (2, 1), (3,)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
    ("bhqd,bhkd->bhqk", (1, 2, 2, 3), (1, 2, 3, 3)),
    (",->", (), ()),
    ("ij,j->i", (0, 3), (3,)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ij,kj->", (2, 3), (2, 3)),
    ("ii,ij->j", (2, 2), (2, 3)),
    ("...i->i...", (2, 3, 4)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("->", ()),
)


def _samples(rng, dtype):
    found = [
        Sample(tuple(make(rng, dtype, shape) for shape in shapes), {"subscripts": text})
        for text, *shapes in _CALLS
    ]
    x = make(rng, dtype, (4, 6))
    found.append(Sample((x.T, x[:, ::-2]), {"subscripts": "ij,jk->ki"}))
    row = np.broadcast_to(x[0, :3], (4, 3))
    found.append(Sample((row, x[:, ::2]), {"subscripts": "ij,ij->i"}))
    return found


def _errors(rng):
    x = np.ones((2, 3))

    def refused(words, text, *args, error=ShapeError):
        return ErrorSample(args, {"subscripts": text}, error, words)

    return [
        refused("label 'j' has size 3 in operand 0 and 2 in operand 1", "ij,jk->ik", x, x),
        refused("describes 2 operands, 1 given", "ij,jk->ik", x),
        refused("label 'z' of the result", "ij->iz", x),
        refused("stands twice", "ij->ii", x),
        refused("names 3 axes of an operand that has 2", "ijk->i", x),
        refused("names 1 axes of an operand that has 2", "i->i", x),
        refused("'1' is not a label", "i1->i", x),
        refused("an axis of '...' has size 3", "...,...->...", x, np.ones(2)),
        refused("str", "i->i", "a string", error=DTypeError),
        ErrorSample((x, x), {}, DTypeError, "not a string"),
    ]


def _reference(*operands, subscripts):
    """The definition: a sum over all indices of the labels, one product at a time."""
    inputs, output, sizes = resolved(subscripts, tuple(x.shape for x in operands))
    summed = [c for c in sizes if c not in output]
    out = np.zeros([sizes[c] for c in output], np.result_type(*operands))
    for at in np.ndindex(*out.shape):
        terms = []
        for inner in np.ndindex(*(sizes[c] for c in summed)):
            index = dict(zip((*output, *summed), (*at, *inner), strict=True))
            factors = [
                x[tuple(index[c] if n > 1 else 0 for c, n in zip(labels, x.shape, strict=True))]
                for x, labels in zip(operands, inputs, strict=True)
            ]
            terms.append(math.prod(f.item() for f in factors))
        out[at] = complex_sum(terms) if out.dtype.kind == "c" else math.fsum(terms)
    return out


CASES = {
    "einsum": Cases(samples=_samples, errors=_errors, reference=_reference),
}
