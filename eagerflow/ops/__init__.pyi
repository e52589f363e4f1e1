# Written by tests/structure/stubs.py: do not edit.

from typing import Any

from eagerflow.ops.creation.bits import complex, polar
from eagerflow.ops.creation.filled import empty, empty_like, from_dlpack, full, full_like
from eagerflow.ops.creation.spaced import geomspace, logspace
from eagerflow.ops.elementwise.closeness import allclose, array_equal, isclose
from eagerflow.ops.elementwise.formulas import (
    bitwise_count,
    deg2rad,
    heaviside,
    logaddexp2,
    logit,
    modf,
    nan_to_num,
    rad2deg,
    sinc,
    xlog1py,
    xlogy,
)
from eagerflow.ops.images.cells import adaptive_avg_pool, adaptive_max_pool
from eagerflow.ops.images.colors import hsv_to_rgb, rgb_to_grayscale, rgb_to_hsv
from eagerflow.ops.images.coordinates import affine_grid, grid_sample, map_coordinates
from eagerflow.ops.images.filters import gaussian_blur, local_response_norm, sobel_edges
from eagerflow.ops.images.interpolation import interpolate, scale_and_translate
from eagerflow.ops.images.patches import extract_patches, fold, unfold
from eagerflow.ops.images.pixels import (
    depth_to_space,
    pixel_shuffle,
    pixel_unshuffle,
    space_to_depth,
)
from eagerflow.ops.images.pools import lp_pool, max_pool_with_indices, max_unpool
from eagerflow.ops.images.warping import (
    affine_transform,
    crop_and_resize,
    homography,
    perspective_transform,
)
from eagerflow.ops.indexing.combining import (
    embedding_bag,
    index_reduce,
    scatter_reduce,
    segment_mean,
)
from eagerflow.ops.indexing.flat_places import (
    argwhere,
    compress,
    extract,
    flatnonzero,
    ravel_multi_index,
    select,
    unravel_index,
)
from eagerflow.ops.indexing.scattering import embedding_lookup, gather_nd, masked_select
from eagerflow.ops.indexing.slices import IndexedSlices
from eagerflow.ops.inspection import (
    __array_namespace_info__,
    can_cast,
    finfo,
    iinfo,
    isdtype,
    result_type,
)
from eagerflow.ops.linear_algebra.contraction import outer, tensordot
from eagerflow.ops.linear_algebra.decompositions import EighResult, QRResult, SVDResult
from eagerflow.ops.linear_algebra.matrices import cross, matrix_power, matrix_rank, trace
from eagerflow.ops.linear_algebra.products import cdist, dot, inner, kron, polyval, vander, vdot
from eagerflow.ops.linear_algebra.systems import SlogdetResult
from eagerflow.ops.nn.activations import (
    celu,
    glu,
    hard_shrink,
    hard_tanh,
    prelu,
    soft_shrink,
    softmin,
    sparse_plus,
    sparse_sigmoid,
    sparsemax,
    squareplus,
    tanh_shrink,
    threshold,
)
from eagerflow.ops.nn.attention import dot_product_attention
from eagerflow.ops.nn.batch_normalization import batch_norm
from eagerflow.ops.nn.convolution import conv_transpose
from eagerflow.ops.nn.cross_entropies import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    nll_loss,
    sigmoid_focal_loss,
)
from eagerflow.ops.nn.ctc import ctc_loss
from eagerflow.ops.nn.ctc_decoding import ctc_beam_search_decode, ctc_greedy_decode
from eagerflow.ops.nn.margin_losses import (
    hinge_embedding_loss,
    hinge_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
)
from eagerflow.ops.nn.normalization import group_norm
from eagerflow.ops.nn.quantization import dynamic_quantize
from eagerflow.ops.nn.regression_losses import (
    gaussian_nll_loss,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
)
from eagerflow.ops.nn.regularization import dropout
from eagerflow.ops.nn.similarity import (
    cosine_embedding_loss,
    cosine_similarity,
    pairwise_distance,
    triplet_margin_loss,
)
from eagerflow.ops.reductions.associative import associative_scan
from eagerflow.ops.reductions.cumulative import diff
from eagerflow.ops.reductions.histograms import (
    bincount,
    digitize,
    histogram,
    histogram2d,
    histogram_bin_edges,
    histogramdd,
)
from eagerflow.ops.reductions.moments import average, corrcoef, cov, ptp
from eagerflow.ops.reductions.neighbours import (
    convolve,
    correlate,
    ediff1d,
    gradient,
    interp,
    trapezoid,
)
from eagerflow.ops.reductions.norms import matrix_norm, norm
from eagerflow.ops.reductions.over_nan import (
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
from eagerflow.ops.reductions.quantiles import (
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from eagerflow.ops.reductions.sets import intersect1d, isin, setdiff1d, setxor1d, union1d
from eagerflow.ops.reductions.sorting import top_k
from eagerflow.ops.reductions.unique import (
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from eagerflow.ops.shapes.diagonal_matrices import (
    block_diag,
    diag_embed,
    diag_indices,
    diagflat,
    tril_indices,
    triu_indices,
)
from eagerflow.ops.shapes.diagonals import diag, diagonal, tri
from eagerflow.ops.shapes.padding import pad
from eagerflow.ops.shapes.repeating import meshgrid
from eagerflow.ops.shapes.reshaping import (
    broadcast_arrays,
    broadcast_shapes,
    matrix_transpose,
    moveaxis,
    swapaxes,
)
from eagerflow.ops.shapes.stacking import (
    append,
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block,
    column_stack,
    dsplit,
    dstack,
    hsplit,
    hstack,
    vsplit,
    vstack,
)
from eagerflow.ops.shapes.turning import fliplr, flipud, rot90
from eagerflow.ops.special.harmonics import assoc_legendre_p, sph_harm_y
from eagerflow.ops.special.integrals import zeta
from eagerflow.ops.special.polynomials import eval_chebyu, eval_laguerre, eval_legendre
from eagerflow.tensor import Tensor

__all__ = [
    "IndexedSlices",
    "__array_namespace_info__",
    "abs",
    "acos",
    "acosh",
    "adam_update",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "add",
    "affine_grid",
    "affine_transform",
    "all",
    "allclose",
    "angle",
    "any",
    "append",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "array_equal",
    "array_split",
    "asin",
    "asinh",
    "assoc_legendre_p",
    "associative_scan",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "average",
    "avg_pool",
    "avg_pool_gradient",
    "batch_norm",
    "beta",
    "betainc",
    "betaln",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "bincount",
    "bitwise_and",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "block",
    "block_diag",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "can_cast",
    "cbrt",
    "cdist",
    "ceil",
    "celu",
    "cholesky",
    "clip",
    "column_stack",
    "complex",
    "compress",
    "concat",
    "conj",
    "conv",
    "conv_filter_gradient",
    "conv_input_gradient",
    "conv_transpose",
    "convolve",
    "copysign",
    "corrcoef",
    "correlate",
    "cos",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "count_nonzero",
    "cov",
    "crop",
    "crop_and_resize",
    "cross",
    "cross_entropy",
    "ctc_beam_search_decode",
    "ctc_greedy_decode",
    "ctc_loss",
    "cummax",
    "cummin",
    "cumulative_prod",
    "cumulative_sum",
    "deg2rad",
    "depth_to_space",
    "dequantize",
    "det",
    "diag",
    "diag_embed",
    "diag_indices",
    "diagflat",
    "diagonal",
    "diff",
    "digamma",
    "digitize",
    "divide",
    "dot",
    "dot_product_attention",
    "dropout",
    "dsplit",
    "dstack",
    "dynamic_quantize",
    "ediff1d",
    "eigh",
    "eigvalsh",
    "einsum",
    "elu",
    "embedding_bag",
    "embedding_lookup",
    "empty",
    "empty_like",
    "entr",
    "equal",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "eval_chebyt",
    "eval_chebyu",
    "eval_gegenbauer",
    "eval_genlaguerre",
    "eval_hermite",
    "eval_hermitenorm",
    "eval_jacobi",
    "eval_laguerre",
    "eval_legendre",
    "exp",
    "exp1",
    "exp2",
    "expand_dims",
    "expi",
    "expm1",
    "extract",
    "extract_patches",
    "eye",
    "finfo",
    "flatnonzero",
    "flip",
    "fliplr",
    "flipud",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "fold",
    "frexp",
    "from_dlpack",
    "full",
    "full_like",
    "gamma",
    "gammainc",
    "gammaincc",
    "gather",
    "gather_nd",
    "gaussian_blur",
    "gaussian_nll_loss",
    "gcd",
    "gelu",
    "geomspace",
    "getitem",
    "glu",
    "gradient",
    "greater",
    "greater_equal",
    "grid_sample",
    "group_norm",
    "gru",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "heaviside",
    "hinge_embedding_loss",
    "hinge_loss",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "histogramdd",
    "homography",
    "hsplit",
    "hstack",
    "hsv_to_rgb",
    "huber_loss",
    "hypot",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iinfo",
    "imag",
    "index_add",
    "index_max",
    "index_min",
    "index_multiply",
    "index_reduce",
    "index_scatter",
    "index_set",
    "inner",
    "integer_conv",
    "integer_matmul",
    "interp",
    "interpolate",
    "intersect1d",
    "inv",
    "isclose",
    "isdtype",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "j0",
    "j1",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kl_div",
    "kron",
    "l1_loss",
    "layer_norm",
    "lcm",
    "ldexp",
    "leaky_relu",
    "less",
    "less_equal",
    "lgamma",
    "linear_recurrence",
    "linspace",
    "local_response_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_ndtr",
    "log_sigmoid",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logspace",
    "logsumexp",
    "lp_pool",
    "lstm",
    "map_coordinates",
    "margin_ranking_loss",
    "masked_select",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "max",
    "max_pool",
    "max_pool_gather",
    "max_pool_gradient",
    "max_pool_with_indices",
    "max_unpool",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimum",
    "mish",
    "modf",
    "momentum_update",
    "moveaxis",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "multiply",
    "multiply_no_nan",
    "nan_to_num",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
    "ndtr",
    "ndtri",
    "negative",
    "nextafter",
    "nll_loss",
    "nonzero",
    "norm",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "outer",
    "pack_int4",
    "pad",
    "pairwise_distance",
    "percentile",
    "permute_dims",
    "perspective_transform",
    "pinv",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "polar",
    "polygamma",
    "polyval",
    "positive",
    "pow",
    "power",
    "prelu",
    "prod",
    "ptp",
    "qr",
    "quantile",
    "quantize",
    "rad2deg",
    "ravel_multi_index",
    "real",
    "reciprocal",
    "rel_entr",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "reshape",
    "resize",
    "resize_gradient",
    "result_type",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "rms_norm",
    "roll",
    "rot90",
    "round",
    "rsqrt",
    "scale_and_translate",
    "scatter",
    "scatter_reduce",
    "searchsorted",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "select",
    "selu",
    "setdiff1d",
    "setxor1d",
    "sigmoid",
    "sigmoid_cross_entropy",
    "sigmoid_focal_loss",
    "sign",
    "signbit",
    "silu",
    "simple_rnn",
    "sin",
    "sinc",
    "sinh",
    "slogdet",
    "smooth_l1_loss",
    "sobel_edges",
    "soft_margin_loss",
    "soft_shrink",
    "softmax",
    "softmax_cross_entropy",
    "softmin",
    "softplus",
    "softsign",
    "solve",
    "sort",
    "space_to_depth",
    "sparse_plus",
    "sparse_sigmoid",
    "sparse_softmax_cross_entropy",
    "sparsemax",
    "sph_harm_y",
    "spherical_jn",
    "split",
    "sqrt",
    "square",
    "squareplus",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "subtract",
    "sum",
    "svd",
    "svdvals",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tanh_shrink",
    "tensordot",
    "threshold",
    "tile",
    "to_device",
    "top_k",
    "trace",
    "trapezoid",
    "tri",
    "tril",
    "tril_indices",
    "triplet_margin_loss",
    "triu",
    "triu_indices",
    "trunc",
    "unfold",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unpack_int4",
    "unravel_index",
    "unstack",
    "vander",
    "var",
    "vdot",
    "vecdot",
    "vector_norm",
    "view",
    "vsplit",
    "vstack",
    "where",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "zeros",
    "zeros_like",
    "zeta",
]

LATE: dict[str, str]

def abs(x: Any, /) -> Tensor: ...
def acos(x: Any, /) -> Tensor: ...
def acosh(x: Any, /) -> Tensor: ...
def adam_update(
    parameter: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    learning_rate: Any,
    step: Any,
    /,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-07,
    weight_decay: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]: ...
def add(x1: Any, x2: Any, /) -> Tensor: ...
def all(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def angle(x: Any, /) -> Tensor: ...
def any(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Any = None,
) -> Tensor: ...
def argmax(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def argmin(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def argsort(x: Any, /, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor: ...
def asin(x: Any, /) -> Tensor: ...
def asinh(x: Any, /) -> Tensor: ...
def astype(x: Any, /, dtype: Any, *, copy: Any = True, device: Any = None) -> Tensor: ...
def atan(x: Any, /) -> Tensor: ...
def atan2(x1: Any, x2: Any, /) -> Tensor: ...
def atanh(x: Any, /) -> Tensor: ...
def avg_pool(
    x: Any,
    /,
    window: Any,
    strides: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor: ...
def avg_pool_gradient(
    g: Any,
    /,
    size: Any,
    window: Any,
    strides: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor: ...
def beta(a: Any, b: Any, /) -> Tensor: ...
def betainc(a: Any, b: Any, x: Any, /) -> Tensor: ...
def betaln(a: Any, b: Any, /) -> Tensor: ...
def bitwise_and(x1: Any, x2: Any, /) -> Tensor: ...
def bitwise_invert(x: Any, /) -> Tensor: ...
def bitwise_left_shift(x1: Any, x2: Any, /) -> Tensor: ...
def bitwise_or(x1: Any, x2: Any, /) -> Tensor: ...
def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor: ...
def bitwise_xor(x1: Any, x2: Any, /) -> Tensor: ...
def broadcast_to(x: Any, /, shape: Any) -> Tensor: ...
def cbrt(x: Any, /) -> Tensor: ...
def ceil(x: Any, /) -> Tensor: ...
def cholesky(x: Any, /, upper: bool = False) -> Tensor: ...
def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor: ...
def concat(arrays: Any, /, axis: Any = 0) -> Tensor: ...
def conj(x: Any, /) -> Tensor: ...
def conv(
    x: Any,
    w: Any,
    /,
    strides: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor: ...
def conv_filter_gradient(
    x: Any,
    g: Any,
    /,
    size: Any,
    strides: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor: ...
def conv_input_gradient(
    g: Any,
    w: Any,
    /,
    size: Any,
    strides: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor: ...
def copysign(x1: Any, x2: Any, /) -> Tensor: ...
def cos(x: Any, /) -> Tensor: ...
def cosh(x: Any, /) -> Tensor: ...
def count_nonzero(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def crop(x: Any, /, crop_width: Any) -> Tensor: ...
def cummax(x: Any, /, axis: Any = None, reverse: bool = False) -> Tensor: ...
def cummin(x: Any, /, axis: Any = None, reverse: bool = False) -> Tensor: ...
def cumulative_prod(
    x: Any,
    /,
    axis: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
    dtype: Any = None,
) -> Tensor: ...
def cumulative_sum(
    x: Any,
    /,
    axis: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
    dtype: Any = None,
) -> Tensor: ...
def dequantize(x: Any, scale: Any, /, zero_point: Any = None) -> Tensor: ...
def det(x: Any, /) -> Tensor: ...
def digamma(x: Any, /) -> Tensor: ...
def divide(x1: Any, x2: Any, /) -> Tensor: ...
def eigh(x: Any, /) -> EighResult: ...
def eigvalsh(x: Any, /) -> Tensor: ...
def einsum(*operands: Any, subscripts: str = ...) -> Tensor: ...
def elu(x: Any, /, alpha: float = 1.0) -> Tensor: ...
def entr(x: Any, /) -> Tensor: ...
def equal(x1: Any, x2: Any, /) -> Tensor: ...
def erf(x: Any, /) -> Tensor: ...
def erfc(x: Any, /) -> Tensor: ...
def erfcinv(x: Any, /) -> Tensor: ...
def erfcx(x: Any, /) -> Tensor: ...
def erfinv(x: Any, /) -> Tensor: ...
def eval_chebyt(x: Any, /, n: int) -> Tensor: ...
def eval_gegenbauer(x: Any, /, n: int, alpha: float) -> Tensor: ...
def eval_genlaguerre(x: Any, /, n: int, alpha: float) -> Tensor: ...
def eval_hermite(x: Any, /, n: int) -> Tensor: ...
def eval_hermitenorm(x: Any, /, n: int) -> Tensor: ...
def eval_jacobi(x: Any, /, n: int, alpha: float, beta: float) -> Tensor: ...
def exp(x: Any, /) -> Tensor: ...
def exp1(x: Any, /) -> Tensor: ...
def exp2(x: Any, /) -> Tensor: ...
def expand_dims(x: Any, /, axis: Any = 0) -> Tensor: ...
def expi(x: Any, /) -> Tensor: ...
def expm1(x: Any, /) -> Tensor: ...
def eye(
    n_rows: Any,
    n_cols: Any = None,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> Tensor: ...
def flip(x: Any, /, axis: Any = None) -> Tensor: ...
def floor(x: Any, /) -> Tensor: ...
def floor_divide(x1: Any, x2: Any, /) -> Tensor: ...
def fmax(x1: Any, x2: Any, /) -> Tensor: ...
def fmin(x1: Any, x2: Any, /) -> Tensor: ...
def fmod(x1: Any, x2: Any, /) -> Tensor: ...
def frexp(x: Any, /) -> tuple[Tensor, Tensor]: ...
def gamma(x: Any, /) -> Tensor: ...
def gammainc(a: Any, x: Any, /) -> Tensor: ...
def gammaincc(a: Any, x: Any, /) -> Tensor: ...
def gather(x: Any, indices: Any, /, axis: Any = None, batch_dims: int = 0) -> Tensor: ...
def gcd(x1: Any, x2: Any, /) -> Tensor: ...
def gelu(x: Any, /, approximate: bool = True) -> Tensor: ...
def getitem(x: Any, /, *indices: Any, index: Any = ...) -> Tensor: ...
def greater(x1: Any, x2: Any, /) -> Tensor: ...
def greater_equal(x1: Any, x2: Any, /) -> Tensor: ...
def gru(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    /,
    bias: Any = None,
    h: Any = None,
    mask: Any = None,
    reverse: bool = False,
) -> Tensor: ...
def hard_sigmoid(x: Any, /) -> Tensor: ...
def hard_silu(x: Any, /) -> Tensor: ...
def hypot(x1: Any, x2: Any, /) -> Tensor: ...
def i0(x: Any, /) -> Tensor: ...
def i0e(x: Any, /) -> Tensor: ...
def i1(x: Any, /) -> Tensor: ...
def i1e(x: Any, /) -> Tensor: ...
def imag(x: Any, /) -> Tensor: ...
def index_add(x: Any, value: Any, /, *indices: Any, index: Any = ...) -> Tensor: ...
def index_max(x: Any, value: Any, /, *indices: Any, index: Any = ...) -> Tensor: ...
def index_min(x: Any, value: Any, /, *indices: Any, index: Any = ...) -> Tensor: ...
def index_multiply(x: Any, value: Any, /, *indices: Any, index: Any = ...) -> Tensor: ...
def index_scatter(updates: Any, /, *indices: Any, shape: Any = ..., index: Any = ...) -> Tensor: ...
def index_set(x: Any, value: Any, /, *indices: Any, index: Any = ...) -> Tensor: ...
def integer_conv(
    x: Any,
    w: Any,
    /,
    strides: Any = 1,
    padding: Any = "same",
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor: ...
def integer_matmul(x1: Any, x2: Any, /) -> Tensor: ...
def inv(x: Any, /) -> Tensor: ...
def isfinite(x: Any, /) -> Tensor: ...
def isinf(x: Any, /) -> Tensor: ...
def isnan(x: Any, /) -> Tensor: ...
def j0(x: Any, /) -> Tensor: ...
def j1(x: Any, /) -> Tensor: ...
def k0(x: Any, /) -> Tensor: ...
def k0e(x: Any, /) -> Tensor: ...
def k1(x: Any, /) -> Tensor: ...
def k1e(x: Any, /) -> Tensor: ...
def layer_norm(
    x: Any,
    /,
    scale: Any = None,
    offset: Any = None,
    axis: Any = -1,
    epsilon: float = 1e-05,
) -> Tensor: ...
def lcm(x1: Any, x2: Any, /) -> Tensor: ...
def ldexp(x1: Any, x2: Any, /) -> Tensor: ...
def leaky_relu(x: Any, /, negative_slope: float = 0.01) -> Tensor: ...
def less(x1: Any, x2: Any, /) -> Tensor: ...
def less_equal(x1: Any, x2: Any, /) -> Tensor: ...
def lgamma(x: Any, /) -> Tensor: ...
def linear_recurrence(a: Any, b: Any, /, axis: int = -1, reverse: bool = False) -> Tensor: ...
def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor: ...
def log(x: Any, /) -> Tensor: ...
def log10(x: Any, /) -> Tensor: ...
def log1p(x: Any, /) -> Tensor: ...
def log2(x: Any, /) -> Tensor: ...
def log_ndtr(x: Any, /) -> Tensor: ...
def log_sigmoid(x: Any, /) -> Tensor: ...
def log_softmax(x: Any, /, axis: int = -1) -> Tensor: ...
def logaddexp(x1: Any, x2: Any, /) -> Tensor: ...
def logcumsumexp(x: Any, /, axis: Any = None, reverse: bool = False) -> Tensor: ...
def logical_and(x1: Any, x2: Any, /) -> Tensor: ...
def logical_not(x: Any, /) -> Tensor: ...
def logical_or(x1: Any, x2: Any, /) -> Tensor: ...
def logical_xor(x1: Any, x2: Any, /) -> Tensor: ...
def logsumexp(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def lstm(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    /,
    bias: Any = None,
    h: Any = None,
    c: Any = None,
    mask: Any = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]: ...
def matmul(x1: Any, x2: Any, /) -> Tensor: ...
def max(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def max_pool(
    x: Any,
    /,
    window: Any,
    strides: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor: ...
def max_pool_gather(
    x: Any,
    t: Any,
    /,
    window: Any,
    strides: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor: ...
def max_pool_gradient(
    x: Any,
    g: Any,
    /,
    window: Any,
    strides: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor: ...
def maximum(x1: Any, x2: Any, /) -> Tensor: ...
def mean(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def min(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor: ...
def minimum(x1: Any, x2: Any, /) -> Tensor: ...
def mish(x: Any, /) -> Tensor: ...
def momentum_update(
    parameter: Any,
    gradient: Any,
    velocity: Any,
    learning_rate: Any,
    /,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> tuple[Tensor, Tensor]: ...
def multiply(x1: Any, x2: Any, /) -> Tensor: ...
def multiply_no_nan(x1: Any, x2: Any, /) -> Tensor: ...
def ndtr(x: Any, /) -> Tensor: ...
def ndtri(x: Any, /) -> Tensor: ...
def negative(x: Any, /) -> Tensor: ...
def nextafter(x1: Any, x2: Any, /) -> Tensor: ...
def nonzero(x: Any, /) -> tuple[Tensor, ...]: ...
def not_equal(x1: Any, x2: Any, /) -> Tensor: ...
def one_hot(x: Any, /, num_classes: Any, axis: int = -1, dtype: Any = None) -> Tensor: ...
def ones(shape: Any, dtype: Any = None, device: Any = None) -> Tensor: ...
def ones_like(x: Any, /, dtype: Any = None, *, device: Any = None) -> Tensor: ...
def pack_int4(x: Any, /, axis: int = -1) -> Tensor: ...
def permute_dims(x: Any, /, axes: Any = None) -> Tensor: ...
def pinv(x: Any, /, rtol: Any = None) -> Tensor: ...
def polygamma(x: Any, /, n: int) -> Tensor: ...
def positive(x: Any, /) -> Tensor: ...
def pow(x1: Any, x2: Any, /) -> Tensor: ...
def power(x1: Any, x2: Any, /) -> Tensor: ...
def prod(x: Any, /, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Tensor: ...
def qr(x: Any, /, mode: Any = "reduced") -> QRResult: ...
def quantize(x: Any, scale: Any, /, zero_point: Any = None, dtype: Any = None) -> Tensor: ...
def real(x: Any, /) -> Tensor: ...
def reciprocal(x: Any, /) -> Tensor: ...
def rel_entr(x1: Any, x2: Any, /) -> Tensor: ...
def relu(x: Any, /) -> Tensor: ...
def relu6(x: Any, /) -> Tensor: ...
def remainder(x1: Any, x2: Any, /) -> Tensor: ...
def repeat(x: Any, /, repeats: Any, axis: Any = None) -> Tensor: ...
def reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Tensor: ...
def resize(
    x: Any,
    /,
    size: Any,
    method: str = "bilinear",
    antialias: bool = False,
    coordinates: str = "half_pixel",
    a: float = -0.5,
    edge: bool = False,
    scale: Any = None,
) -> Tensor: ...
def resize_gradient(
    g: Any,
    /,
    size: Any,
    method: str = "bilinear",
    antialias: bool = False,
    coordinates: str = "half_pixel",
    a: float = -0.5,
    edge: bool = False,
    scale: Any = None,
) -> Tensor: ...
def rms_norm(x: Any, /, scale: Any = None, axis: Any = -1, epsilon: float = 1e-06) -> Tensor: ...
def roll(x: Any, /, shift: Any, axis: Any = None) -> Tensor: ...
def round(x: Any, /) -> Tensor: ...
def rsqrt(x: Any, /) -> Tensor: ...
def scatter(indices: Any, updates: Any, /, shape: Any) -> Tensor: ...
def searchsorted(x1: Any, x2: Any, /, sorter: Any = None, side: Any = "left") -> Tensor: ...
def segment_max(x: Any, segment_ids: Any, /, num_segments: Any = None) -> Tensor: ...
def segment_min(x: Any, segment_ids: Any, /, num_segments: Any = None) -> Tensor: ...
def segment_prod(x: Any, segment_ids: Any, /, num_segments: Any = None) -> Tensor: ...
def segment_sum(x: Any, segment_ids: Any, /, num_segments: Any = None) -> Tensor: ...
def selu(x: Any, /) -> Tensor: ...
def sigmoid(x: Any, /) -> Tensor: ...
def sigmoid_cross_entropy(logits: Any, labels: Any, /) -> Tensor: ...
def sign(x: Any, /) -> Tensor: ...
def signbit(x: Any, /) -> Tensor: ...
def silu(x: Any, /) -> Tensor: ...
def simple_rnn(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    /,
    bias: Any = None,
    h: Any = None,
    mask: Any = None,
    reverse: bool = False,
) -> Tensor: ...
def sin(x: Any, /) -> Tensor: ...
def sinh(x: Any, /) -> Tensor: ...
def slogdet(x: Any, /) -> SlogdetResult: ...
def softmax(x: Any, /, axis: int = -1) -> Tensor: ...
def softmax_cross_entropy(logits: Any, labels: Any, /, axis: int = -1) -> Tensor: ...
def softplus(x: Any, /) -> Tensor: ...
def softsign(x: Any, /) -> Tensor: ...
def solve(x1: Any, x2: Any, /) -> Tensor: ...
def sort(x: Any, /, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor: ...
def sparse_softmax_cross_entropy(logits: Any, labels: Any, /, axis: int = -1) -> Tensor: ...
def spherical_jn(x: Any, /, n: int) -> Tensor: ...
def split(x: Any, /, indices_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]: ...
def sqrt(x: Any, /) -> Tensor: ...
def square(x: Any, /) -> Tensor: ...
def squeeze(x: Any, /, axis: Any = None) -> Tensor: ...
def stack(arrays: Any, /, axis: int = 0) -> Tensor: ...
def std(x: Any, /, axis: Any = None, keepdims: bool = False, correction: float = 0.0) -> Tensor: ...
def stop_gradient(x: Any, /) -> Tensor: ...
def subtract(x1: Any, x2: Any, /) -> Tensor: ...
def sum(x: Any, /, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Tensor: ...
def svd(x: Any, /, full_matrices: bool = True) -> SVDResult: ...
def svdvals(x: Any, /) -> Tensor: ...
def take(x: Any, indices: Any, /, axis: Any = None) -> Tensor: ...
def take_along_axis(x: Any, indices: Any, /, axis: int = -1) -> Tensor: ...
def tan(x: Any, /) -> Tensor: ...
def tanh(x: Any, /) -> Tensor: ...
def tile(x: Any, /, repetitions: Any) -> Tensor: ...
def to_device(x: Any, /, device: str) -> Tensor: ...
def tril(x: Any, /, k: int = 0) -> Tensor: ...
def triu(x: Any, /, k: int = 0) -> Tensor: ...
def trunc(x: Any, /) -> Tensor: ...
def unpack_int4(x: Any, /, axis: int = -1) -> Tensor: ...
def unstack(x: Any, /, axis: int = 0) -> tuple[Tensor, ...]: ...
def var(x: Any, /, axis: Any = None, keepdims: bool = False, correction: float = 0.0) -> Tensor: ...
def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> Tensor: ...
def vector_norm(x: Any, /, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor: ...
def view(x: Any, /, dtype: Any) -> Tensor: ...
def where(condition: Any, x1: Any, x2: Any, /) -> Tensor: ...
def y0(x: Any, /) -> Tensor: ...
def y1(x: Any, /) -> Tensor: ...
def zeros(shape: Any, dtype: Any = None, device: Any = None) -> Tensor: ...
def zeros_like(x: Any, /, dtype: Any = None, *, device: Any = None) -> Tensor: ...
