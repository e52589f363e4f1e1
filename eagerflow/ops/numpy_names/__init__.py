"""Functions of NumPy's that mean more than ours of that name, or that have none here.

They have NumPy's names, arguments and defaults, and serve ``np.f(tensor)`` alone. Each module's
``FUNCTIONS`` tells which are in it, as ``numpy_calls.py`` looks them up.
"""
