"""The error function and its complement."""

from __future__ import annotations

from typing import Any

__all__ = ["BOUNDS", "erf"]

BOUNDS: dict[str, tuple[float, float]] = {"erf": (2.0, 2.0)}
"""The largest errors in units in the last place, in float32 and in float64."""

# Up to ERF_BORDER, erf(x) = x + x P(x²); from there to ERF_END, erf(x) = 1 - Q(x) to the power
# 2^ERF_SQUARINGS; beyond, the nearest number is 1.
_ERF_BORDER = {"float32": 1.2, "float64": 1.5}
_ERF_END = {"float32": 3.93, "float64": 5.93}
_ERF_SQUARINGS = {"float32": 2, "float64": 3}
_ERF_NEAR = {
    "float32": (
        0.12837917, -0.37612632, 0.11283706, -0.02686192, 0.0052128965, -0.00083833816,
        0.000106316336, -8.070104e-06,
    ),
    "float64": (
        0.1283791670955126, -0.3761263890318399, 0.112837916709628, -0.02686617064610296,
        0.005223977631904159, -0.0008548327282829917, 0.00012055339787465915,
        -1.4925772892036601e-05, 1.6463672916180252e-06, -1.638005856333467e-07,
        1.4900350885763277e-08, -1.2724309906308123e-09, 1.0813791224744071e-10,
        -9.584054516708905e-12, 7.695498580408242e-13, -3.592350221013688e-14,
    ),
}  # fmt: skip
_ERF_FAR = {
    "float32": (
        1.0063958, -0.3122647, -0.05774583, -0.055538658, 0.06877531, -0.023032418,
        0.003371892, -0.00018921995,
    ),
    "float64": (
        0.9999978620130165, -0.1410318173966203, -0.06968356178895499, -0.001976404988431403,
        0.006424749440863412, 0.00036103577219807025, -0.0006505970283625789,
        0.00016971343731244336, -3.91859719998085e-05, 1.0113612085180973e-05,
        -1.9192958110041426e-06, 2.087478532057937e-07, -8.734385113724575e-09,
        -5.521943697414153e-10, 7.931859256050634e-11, -2.710847733835938e-12,
    ),
}  # fmt: skip


def erf(s: Any, x: Any) -> Any:
    """The error function, at most 2 units in the last place off.

    Near 0 it is x + x P(x²). Farther out it is 1 - Q(|x|)^4 (in float64 ^8): that root of
    erfc is so even a function that a polynomial of the same degree as P fits it, and both
    share their instructions. The form 1 - Q^16 is in Abramowitz and Stegun, 7.1.28, for 1 / Q;
    the coefficients are minimax fits of our own.
    """
    kind = x.dtype
    size = s.abs(x)
    far = s.greater(size, _ERF_BORDER[kind])
    end = _ERF_END[kind]
    variable = s.select(far, s.select(s.greater(size, end), end, size), s.multiply(x, x))
    value: Any = None
    for near_term, far_term in zip(
        reversed(_ERF_NEAR[kind]), reversed(_ERF_FAR[kind]), strict=True
    ):
        term = s.select(far, s.constant(far_term, kind), s.constant(near_term, kind))
        value = term if value is None else s.fma(value, variable, term)
    root = value
    for _ in range(_ERF_SQUARINGS[kind] - 1):
        root = s.multiply(root, root)
    outside = s.copysign(s.fma(s.negative(root), root, 1.0), x)
    return s.select(far, outside, s.fma(x, value, x))
