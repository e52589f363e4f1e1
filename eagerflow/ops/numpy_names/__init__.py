"""NumPy functions that do more than ours of that name, or that have no equivalent here.

They have NumPy's names, arguments and defaults, and are only for ``np.f(tensor)``. Each module's
``FUNCTIONS`` lists its functions for ``numpy_calls.py``.
"""
