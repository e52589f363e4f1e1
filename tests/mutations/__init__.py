"""Mutation testing: which planted bugs the tests detect.

``reach`` records the tests that execute each line of the package, ``mutants`` changes one
expression or statement of it, and ``python -m tests.mutations`` runs the tests that reach the
change. It needs Python 3.12 or newer.
"""
