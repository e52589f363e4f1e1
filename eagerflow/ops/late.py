"""Ops and functions that are imported when one of their names is first accessed.

Only some programs use them; importing all of them would slow down every start. Each table has
modules of ``eagerflow.ops``, and their public names.
"""

from __future__ import annotations

import importlib
from typing import Any

from eagerflow.op import ops as registry

_TOP = {
    "creation.bits": "complex polar view",
    "creation.spaced": "geomspace logspace",
    "elementwise.binary_parts": "cbrt frexp ldexp",
    "elementwise.closeness": "allclose array_equal isclose",
    "elementwise.divisors": "fmod gcd lcm",
    "elementwise.formulas": (
        "bitwise_count deg2rad heaviside logaddexp2 logit modf nan_to_num rad2deg sinc xlog1py "
        "xlogy"
    ),
    "elementwise.numbers_over_nan": "fmax fmin",
    "images.cells": "adaptive_avg_pool adaptive_max_pool",
    "images.colors": "hsv_to_rgb rgb_to_grayscale rgb_to_hsv",
    "images.coordinates": "affine_grid grid_sample map_coordinates",
    "images.filters": "gaussian_blur local_response_norm sobel_edges",
    "images.interpolation": "interpolate scale_and_translate",
    "images.patches": "extract_patches fold unfold",
    "images.pixels": "depth_to_space pixel_shuffle pixel_unshuffle space_to_depth",
    "images.pools": "lp_pool max_pool_with_indices max_unpool",
    "images.warping": "affine_transform crop_and_resize homography perspective_transform",
    "indexing.combining": "embedding_bag index_reduce scatter_reduce segment_mean",
    "indexing.flat_places": (
        "argwhere compress extract flatnonzero ravel_multi_index select unravel_index"
    ),
    "indexing.segments": "segment_max segment_min segment_prod segment_sum",
    "indexing.slices": "IndexedSlices",
    "linear_algebra.integer_products": "integer_matmul",
    "linear_algebra.products": "cdist dot inner kron polyval vander vdot",
    "nn.activations": (
        "celu glu hard_shrink hard_tanh prelu soft_shrink softmin sparse_plus sparse_sigmoid "
        "sparsemax squareplus tanh_shrink threshold"
    ),
    "nn.attention": "dot_product_attention",
    "nn.batch_normalization": "batch_norm",
    "nn.convolution": "conv conv_filter_gradient conv_input_gradient conv_transpose",
    "nn.cross_entropies": (
        "binary_cross_entropy binary_cross_entropy_with_logits cross_entropy nll_loss "
        "sigmoid_focal_loss"
    ),
    "nn.ctc": "ctc_loss",
    "nn.ctc_decoding": "ctc_beam_search_decode ctc_greedy_decode",
    "nn.four_bits": "pack_int4 unpack_int4",
    "nn.integer_convolution": "integer_conv",
    "nn.losses": "sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy",
    "nn.margin_losses": (
        "hinge_embedding_loss hinge_loss margin_ranking_loss multi_margin_loss "
        "multilabel_margin_loss multilabel_soft_margin_loss soft_margin_loss"
    ),
    "nn.normalization": "group_norm layer_norm rms_norm",
    "nn.optimizer_updates": "adam_update momentum_update",
    "nn.pooling": "avg_pool avg_pool_gradient max_pool max_pool_gather max_pool_gradient",
    "nn.quantization": "dequantize dynamic_quantize quantize",
    "nn.recurrent": "gru lstm simple_rnn",
    "nn.regression_losses": (
        "gaussian_nll_loss huber_loss kl_div l1_loss mse_loss poisson_nll_loss smooth_l1_loss"
    ),
    "nn.regularization": "dropout",
    "nn.resizing": "resize resize_gradient",
    "nn.similarity": (
        "cosine_embedding_loss cosine_similarity pairwise_distance triplet_margin_loss"
    ),
    "reductions.associative": "associative_scan",
    "reductions.histograms": (
        "bincount digitize histogram histogram2d histogram_bin_edges histogramdd"
    ),
    "reductions.moments": "average corrcoef cov ptp",
    "reductions.neighbours": "convolve correlate ediff1d gradient interp trapezoid",
    "reductions.over_nan": (
        "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum "
        "nanvar"
    ),
    "reductions.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "reductions.running_extremes": "cummax cummin logcumsumexp",
    "reductions.sets": "intersect1d isin setdiff1d setxor1d union1d",
    "reductions.unique": "unique unique_all unique_counts unique_inverse unique_values",
    "shapes.diagonal_matrices": (
        "block_diag diag_embed diag_indices diagflat tril_indices triu_indices"
    ),
    "shapes.stacking": (
        "append array_split atleast_1d atleast_2d atleast_3d block column_stack dsplit dstack "
        "hsplit hstack vsplit vstack"
    ),
    "shapes.turning": "fliplr flipud rot90",
    "special.bessel": "i0 i0e i1 i1e j0 j1 k0 k0e k1 k1e spherical_jn y0 y1",
    "special.gamma": "beta betaln gamma",
    "special.harmonics": "assoc_legendre_p sph_harm_y",
    "special.incomplete_beta": "betainc",
    "special.incomplete_gamma": "gammainc gammaincc",
    "special.integrals": "exp1 expi zeta",
    "special.normal": "entr erfcinv erfcx log_ndtr ndtr ndtri rel_entr",
    "special.polynomials": (
        "eval_chebyt eval_chebyu eval_gegenbauer eval_genlaguerre eval_hermite eval_hermitenorm "
        "eval_jacobi eval_laguerre eval_legendre"
    ),
}
_LINALG: dict[str, str] = {
    "linear_algebra.eigenvalues": "eig eigvals",
    "linear_algebra.elimination": "lu lu_factor lu_solve",
    "linear_algebra.exponentials": "expm",
    "linear_algebra.least_squares": "cond lstsq multi_dot tensorinv tensorsolve",
    "linear_algebra.matrix_functions": "logm sqrtm",
    "linear_algebra.triangles": "cholesky_inverse cholesky_solve solve_triangular",
}
_RANDOM = {
    "distributions": (
        "beta binomial cauchy chi_square dirichlet gamma geometric gumbel laplace logistic "
        "lognormal multinomial poisson randint shuffle student_t von_mises"
    ),
}
_UNNAMED = (
    "communication.order",
    "communication.replicas",
    "fft",
    "indexing.shards",
    "nn.adaptive_updates",
    "nn.mean_differences",
    "nn.weight_products",
    "signal",
)


def _by_name(table: dict[str, str]) -> dict[str, str]:
    return {name: module for module, names in table.items() for name in names.split()}


TOP = _by_name(_TOP)
"""Public names of ``ef``, and their modules."""
LINALG = _by_name(_LINALG)
"""Public names of ``ef.linalg``, and their modules."""
RANDOM = _by_name(_RANDOM)
"""Public names of ``ef.random``, and their modules."""


def load(module: str) -> Any:
    """A module of ops, which registers its own."""
    return importlib.import_module(f"{__package__}.{module}")


def load_all() -> None:
    """Load all modules of ops."""
    for module in (*_TOP, *_LINALG, *_RANDOM, *_UNNAMED):
        load(module)


def _find(name: str | None) -> bool:
    """Load the module of a public name, or all of them; whether some may be left."""
    if name in TOP:
        load(TOP[name])
        return True
    load_all()
    return False


registry.late = _find
