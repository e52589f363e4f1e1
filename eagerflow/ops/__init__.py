"""The ops, by subject. A module's ``__all__`` is what users see of it as ``ef.<name>``."""

from __future__ import annotations

from eagerflow.ops import arithmetic, cast, complexes, contraction, creation, einstein, optimizer_updates, reduction, regularization, scan, shape, statistics
from eagerflow.ops.arithmetic import *
from eagerflow.ops.cast import *
from eagerflow.ops.complexes import *
from eagerflow.ops.contraction import *
from eagerflow.ops.creation import *
from eagerflow.ops.einstein import *
from eagerflow.ops.optimizer_updates import *
from eagerflow.ops.reduction import *
from eagerflow.ops.regularization import *
from eagerflow.ops.scan import *
from eagerflow.ops.shape import *
from eagerflow.ops.statistics import *

_MODULES = (arithmetic, cast, complexes, contraction, creation, einstein, optimizer_updates, reduction, regularization, scan, shape, statistics)

__all__ = sorted(name for module in _MODULES for name in module.__all__)
