"""Ops along axes: reductions, running sums, softmax, sorting."""
