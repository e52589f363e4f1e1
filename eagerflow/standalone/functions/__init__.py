"""Functions that NumPy lacks, copied into exported programs; they use only NumPy.

Each is copied once, written for human readers, and calls others of this package by name.
"""

from eagerflow.codegen.numpy import matrices as factorizations
from eagerflow.codegen.numpy import matrix_functions, rejection
from eagerflow.standalone.functions import (
    attention,
    elements,
    images,
    indexing,
    matrices,
    random_numbers,
    recurrence,
    recurrent,
    weights,
)

MODULES = (
    factorizations,
    matrix_functions,
    rejection,
    attention,
    elements,
    images,
    indexing,
    matrices,
    random_numbers,
    recurrence,
    recurrent,
    weights,
)
