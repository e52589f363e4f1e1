"""The pages of the documentation that are made from the package itself, as a Sphinx extension.

They are written into ``docs/generated`` when a build begins: the reference of ops and of all other
public names, the executed tutorials, the tables of the benchmarks. Nothing of them is written by
hand, so nothing of them can be out of date.
"""
