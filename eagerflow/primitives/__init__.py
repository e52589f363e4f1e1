"""Kernels on arrays that are algorithms of their own: convolution, pooling, normalization."""
