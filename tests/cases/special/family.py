"""Cases that several special functions share."""

from eagerflow.errors import DTypeError
from tests.cases.samples import ErrorSample


def order_errors(rng, **attributes):
    """Orders that are refused."""
    x = rng.random(3)
    return [
        ErrorSample((x,), {"n": n} | attributes, DTypeError, "is not an order")
        for n in (-1, 1.5, 1_000_000)
    ]
