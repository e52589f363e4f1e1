"""The ops, by subject. A module's ``__all__`` is public as ``ef.<name>``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from eagerflow.ops import other_names
from eagerflow.ops.creation.cast import *
from eagerflow.ops.creation.filled import *
from eagerflow.ops.creation.ranges import *
from eagerflow.ops.elementwise.activation import *
from eagerflow.ops.elementwise.arithmetic import *
from eagerflow.ops.elementwise.bitwise import *
from eagerflow.ops.elementwise.comparison import *
from eagerflow.ops.elementwise.complexes import *
from eagerflow.ops.elementwise.exponential import *
from eagerflow.ops.elementwise.powers import *
from eagerflow.ops.elementwise.rounding import *
from eagerflow.ops.elementwise.selection import *
from eagerflow.ops.elementwise.special import *
from eagerflow.ops.elementwise.trigonometric import *
from eagerflow.ops.indexing.gathering import *
from eagerflow.ops.indexing.indexing import *
from eagerflow.ops.indexing.scattering import *
from eagerflow.ops.indexing.updating import *
from eagerflow.ops.inspection import *
from eagerflow.ops.late import TOP as LATE
from eagerflow.ops.late import load
from eagerflow.ops.linear_algebra.contraction import *
from eagerflow.ops.linear_algebra.decompositions import *
from eagerflow.ops.linear_algebra.einstein import *
from eagerflow.ops.linear_algebra.matrices import *
from eagerflow.ops.linear_algebra.systems import *
from eagerflow.ops.methods import *
from eagerflow.ops.numpy_calls import *
from eagerflow.ops.reductions.cumulative import *
from eagerflow.ops.reductions.norms import *
from eagerflow.ops.reductions.softmax import *
from eagerflow.ops.reductions.sorting import *
from eagerflow.ops.reductions.statistics import *
from eagerflow.ops.reductions.sums import *
from eagerflow.ops.shapes.diagonals import *
from eagerflow.ops.shapes.joining import *
from eagerflow.ops.shapes.padding import *
from eagerflow.ops.shapes.repeating import *
from eagerflow.ops.shapes.reshaping import *

# Of all modules below, those names that were taken in above.
__all__ = sorted(
    {
        name
        for path, module in sys.modules.items()
        if path.startswith(f"{__name__}.")
        for name in getattr(module, "__all__", ())
        if name in globals() and globals()[name] is vars(module).get(name)
    }
)

# These are imported when one of their names is first accessed: see late.py.
if TYPE_CHECKING:
    from eagerflow.ops.creation.bits import *
    from eagerflow.ops.elementwise.binary_parts import *
    from eagerflow.ops.elementwise.divisors import *
    from eagerflow.ops.elementwise.numbers_over_nan import *
    from eagerflow.ops.images.cells import *
    from eagerflow.ops.images.colors import *
    from eagerflow.ops.images.coordinates import *
    from eagerflow.ops.images.filters import *
    from eagerflow.ops.images.interpolation import *
    from eagerflow.ops.images.patches import *
    from eagerflow.ops.images.pixels import *
    from eagerflow.ops.images.pools import *
    from eagerflow.ops.images.warping import *
    from eagerflow.ops.indexing.combining import *
    from eagerflow.ops.indexing.segments import *
    from eagerflow.ops.indexing.slices import *
    from eagerflow.ops.linear_algebra.integer_products import *
    from eagerflow.ops.nn.activations import *
    from eagerflow.ops.nn.attention import *
    from eagerflow.ops.nn.batch_normalization import *
    from eagerflow.ops.nn.convolution import *
    from eagerflow.ops.nn.cross_entropies import *
    from eagerflow.ops.nn.ctc import *
    from eagerflow.ops.nn.ctc_decoding import *
    from eagerflow.ops.nn.four_bits import *
    from eagerflow.ops.nn.integer_convolution import *
    from eagerflow.ops.nn.losses import *
    from eagerflow.ops.nn.margin_losses import *
    from eagerflow.ops.nn.normalization import *
    from eagerflow.ops.nn.optimizer_updates import *
    from eagerflow.ops.nn.pooling import *
    from eagerflow.ops.nn.quantization import *
    from eagerflow.ops.nn.recurrent import *
    from eagerflow.ops.nn.regression_losses import *
    from eagerflow.ops.nn.regularization import *
    from eagerflow.ops.nn.resizing import *
    from eagerflow.ops.nn.similarity import *
    from eagerflow.ops.reductions.associative import *
    from eagerflow.ops.reductions.running_extremes import *
    from eagerflow.ops.reductions.unique import *
    from eagerflow.ops.special.bessel import *
    from eagerflow.ops.special.gamma import *
    from eagerflow.ops.special.incomplete_beta import *
    from eagerflow.ops.special.incomplete_gamma import *
    from eagerflow.ops.special.integrals import *
    from eagerflow.ops.special.normal import *
    from eagerflow.ops.special.polynomials import *


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(load(LATE[name]), name)
    return found


other_names.explain_methods([*__all__, *LATE])
