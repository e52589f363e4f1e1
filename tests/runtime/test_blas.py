"""The kernels of NumPy's BLAS: newer ones where OpenBLAS chose old ones, else its own choice."""

import os
import subprocess
import sys

import pytest

from eagerflow.runtime import blas

# In a process of its own: OpenBLAS is led to take old kernels, and then asked to change them.
CHANGE = """
import os, sys
import numpy as np
import eagerflow
from eagerflow.runtime import blas

a, b = np.random.default_rng(0).standard_normal((2, 200, 200))
library = blas.openblas()
os.environ["OPENBLAS_CORETYPE"] = "Haswell"
library.gotoblas_dynamic_quit()
library.gotoblas_dynamic_init()
del os.environ["OPENBLAS_CORETYPE"]
old, product = blas.kernels(), a @ b
{before}
changed = blas.choose_kernels()
np.testing.assert_allclose(a @ b, product, rtol=1e-12, atol=1e-12)
print(old, changed, blas.kernels(), os.environ.get("OPENBLAS_CORETYPE"))
"""


def needs_kernels():
    if not hasattr(blas.openblas(), "gotoblas_dynamic_init"):
        pytest.skip("no OpenBLAS that has several kernels")
    if not blas.has_avx512():
        pytest.skip("the processor has no AVX-512")


def run(before="", **environment):
    """What a process prints that has come to old kernels."""
    needs_kernels()
    own = {k: v for k, v in os.environ.items() if k != blas.CORE_TYPE}
    done = subprocess.run(
        [sys.executable, "-c", CHANGE.format(before=before)],
        env=own | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_older_kernels_give_way():
    assert run() == ["Haswell", "True", "SkylakeX", "None"]


def test_core_type_set_by_the_user_is_kept():
    found = run("os.environ['OPENBLAS_CORETYPE'] = 'Haswell'")
    assert found == ["Haswell", "False", "Haswell", "Haswell"]


def test_a_variable_keeps_the_kernels():
    assert run(EAGERFLOW_BLAS_KERNELS="0") == ["Haswell", "False", "Haswell", "None"]


def test_nothing_changes_while_other_threads_may_multiply():
    start = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert run(start) == ["Haswell", "False", "Haswell", "None"]


def test_unexpected_core_type_is_reset():
    asked = "blas.AVX512_KERNELS = 'Nehalem'; blas.kernels = lambda: 'Haswell'"
    assert run(asked)[1:3] == ["False", "Haswell"]


def test_kernels_have_a_name_where_there_is_an_openblas():
    assert bool(blas.kernels()) == (blas.openblas() is not None)


def test_importing_chooses():
    needs_kernels()
    program = "import eagerflow; from eagerflow.runtime import blas; print(blas.kernels())"
    own = {k: v for k, v in os.environ.items() if k != blas.CORE_TYPE}
    done = subprocess.run(
        [sys.executable, "-c", program], env=own, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() not in blas.OLDER_KERNELS
