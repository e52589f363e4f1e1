"""The ops, by subject. A module's ``__all__`` is what users see of it as ``ef.<name>``."""

from __future__ import annotations

import sys

from eagerflow.ops import other_names
from eagerflow.ops.activation import *
from eagerflow.ops.arithmetic import *
from eagerflow.ops.attention import *
from eagerflow.ops.batch_normalization import *
from eagerflow.ops.bitwise import *
from eagerflow.ops.cast import *
from eagerflow.ops.comparison import *
from eagerflow.ops.complexes import *
from eagerflow.ops.contraction import *
from eagerflow.ops.convolution import *
from eagerflow.ops.creation import *
from eagerflow.ops.decompositions import *
from eagerflow.ops.diagonals import *
from eagerflow.ops.differences import *
from eagerflow.ops.einstein import *
from eagerflow.ops.exponential import *
from eagerflow.ops.gathering import *
from eagerflow.ops.gaussian_units import *
from eagerflow.ops.indexing import *
from eagerflow.ops.inspection import *
from eagerflow.ops.joining import *
from eagerflow.ops.losses import *
from eagerflow.ops.matrices import *
from eagerflow.ops.methods import *
from eagerflow.ops.normalization import *
from eagerflow.ops.norms import *
from eagerflow.ops.numpy_calls import *
from eagerflow.ops.optimizer_updates import *
from eagerflow.ops.padding import *
from eagerflow.ops.pooling import *
from eagerflow.ops.powers import *
from eagerflow.ops.ranges import *
from eagerflow.ops.reduction import *
from eagerflow.ops.regularization import *
from eagerflow.ops.repeating import *
from eagerflow.ops.rounding import *
from eagerflow.ops.scan import *
from eagerflow.ops.scattering import *
from eagerflow.ops.selection import *
from eagerflow.ops.shape import *
from eagerflow.ops.sigmoids import *
from eagerflow.ops.singular_values import *
from eagerflow.ops.softmax import *
from eagerflow.ops.sorting import *
from eagerflow.ops.special import *
from eagerflow.ops.statistics import *
from eagerflow.ops.systems import *
from eagerflow.ops.trigonometric import *
from eagerflow.ops.unique import *
from eagerflow.ops.updating import *

# Of all modules below, those names that were taken in above.
__all__ = sorted(
    {
        name
        for path, module in sys.modules.items()
        if path.startswith(f"{__name__}.")
        for name in getattr(module, "__all__", ())
        if globals().get(name) is getattr(module, name)
    }
)

other_names.explain_methods(__all__)
