"""Functions that NumPy lacks, as they stand in the programs that are written: NumPy alone.

Each is there once, is read by people, and calls others of this package by their names.
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
