"""Keras, if it is there, is imported after our hook; without it there is nothing to test."""

import importlib.util

collect_ignore_glob = []
if importlib.util.find_spec("keras") is None:
    collect_ignore_glob.append("test_*.py")
else:
    import eagerflow.keras  # noqa: F401
