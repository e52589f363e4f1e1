"""Names from NumPy, PyTorch, TensorFlow and JAX, and their equivalents here.

The AttributeErrors of the package's modules and of tensors use these tables; a test resolves every
suggested name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from eagerflow.ops.late import load
from eagerflow.tensor import Operators

__all__ = ["explain_methods", "members", "table"]

_MODULES = """
abs_ absolute fabs: ef.abs(x)
add_n: sum([x, y, z]), or ef.sum(ef.stack(tensors), axis=0)
all_close: ef.allclose(x, y)
amax reduce_max: ef.max(x, axis=...)
amin reduce_min: ef.min(x, axis=...)
arccos: ef.acos(x)
arccosh: ef.acosh(x)
arcsin: ef.asin(x)
arcsinh: ef.asinh(x)
arctan: ef.atan(x)
arctan2: ef.atan2(y, x)
arctanh: ef.atanh(x)
array constant convert_to_tensor from_numpy: ef.tensor(values), or ef.asarray(array)
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d: ef.adaptive_avg_pool(x, size)
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d: ef.adaptive_max_pool(x, size)
avg_pool1d avg_pool2d avg_pool3d: ef.avg_pool(x, window)
batch_normalization: ef.batch_norm(x, scale, offset)
bessel_i0 modified_bessel_i0: ef.i0(x)
bessel_i0e: ef.i0e(x)
bessel_i1 modified_bessel_i1: ef.i1(x)
bessel_i1e: ef.i1e(x)
bessel_j0: ef.j0(x)
bessel_j1: ef.j1(x)
bessel_y0: ef.y0(x)
bessel_y1: ef.y1(x)
bitcast bitcast_convert_type: ef.view(x, dtype)
cumulative_logsumexp: ef.logcumsumexp(x, axis=...)
fft2d: ef.fft.fft2(x)
hamming_window: ef.signal.hamming(length)
hann_window hanning: ef.signal.hann(length)
hardshrink: ef.hard_shrink(x)
hardsigmoid: ef.hard_sigmoid(x)
hardswish hard_swish: ef.hard_silu(x)
hardtanh: ef.hard_tanh(x)
ifft2d: ef.fft.ifft2(x)
igamma: ef.gammainc(a, x)
igammac: ef.gammaincc(a, x)
inverse_stft: ef.signal.istft(x, ...)
is_finite: ef.isfinite(x)
is_inf: ef.isinf(x)
is_nan: ef.isnan(x)
kaiser_window: ef.signal.kaiser(length, beta)
layer_normalization: ef.layer_norm(x, scale, offset)
logsigmoid: ef.log_sigmoid(x)
lp_pool1d lp_pool2d lp_pool3d: ef.lp_pool(x, p, window)
max_pool1d max_pool2d max_pool3d: ef.max_pool(x, window)
max_pool_with_argmax max_pool2d_with_indices: ef.max_pool_with_indices(x, window)
max_unpool1d max_unpool2d max_unpool3d: ef.max_unpool(x, indices, ...)
modified_bessel_k0: ef.k0(x)
modified_bessel_k1: ef.k1(x)
reduce_mean: ef.mean(x, axis=...)
batch_matmul bmm mm mv: ef.matmul(x, y), or x @ y
bernoulli: ef.random.bernoulli(...)
bitwise_not invert: ef.bitwise_invert(x)
bool_: ef.bool
boolean_mask: ef.masked_select(x, mask), or x[mask]
byte: ef.uint8
cat concatenate concat_ hconcat: ef.concat(tensors, axis=0)
cast: ef.astype(x, dtype)
cdouble: ef.complex128
cfloat: ef.complex64
chunk: ef.split(x, sections, axis=0)
clamp clip_by_value: ef.clip(x, low, high)
clip_by_norm clip_by_global_norm: ef.nn.optimizers.SGD(rate, clipnorm=..., global_clipnorm=...)
clone copy deepcopy array_copy: x itself: tensors do not change; ef.tensor(x) copies
compat v1: ef.capture.Session for graphs and feeds
compile jit pmap tf_function: ef.function(f)
complex_: ef.complex128
conj_ conjugate: ef.conj(x)
conv1d conv2d conv3d convolution: ef.conv(x, w, ...)
conv2d_transpose conv_transpose2d: ef.conv_transpose(x, w, ...)
cumprod: ef.cumulative_prod(x, axis=...), or x.cumprod()
cumsum: ef.cumulative_sum(x, axis=...), or x.cumsum()
default_rng Generator PRNGKey manual_seed set_seed set_random_seed: ef.random.seed(0), \
ef.random.Generator
degrees: ef.rad2deg(x)
detach no_gradient: ef.stop_gradient(x)
device_count list_devices local_devices: ef.devices()
device_get: x.numpy()
device_put: ef.to_device(x, device), or x.to(device)
diag_part: ef.diagonal(x)
div true_divide truediv realdiv: ef.divide(x, y), or x / y
double: ef.float64
eigvals eig: ef.linalg.eig(x), ef.linalg.eigvals(x)
eq: ef.equal(x, y), or x == y
expand broadcast: ef.broadcast_to(x, shape)
expit: ef.sigmoid(x)
fill: ef.full(shape, value)
fix: ef.trunc(x)
flatten ravel: ef.reshape(x, (-1,)), or x.flatten()
float_: ef.float64
floordiv: ef.floor_divide(x, y), or x // y
floormod mod: ef.remainder(x, y), or x % y
foldl foldr reduce accumulate: ef.scan(...)
from_array frombuffer fromiter: ef.tensor(np.frombuffer(...)), through NumPy
ge: ef.greater_equal(x, y), or x >= y
get_default_dtype set_default_dtype: dtype=... of each call: Python floats become float32
gradients backward: ef.grad(f), or tape.gradient(loss, variables) of ef.GradientTape()
gt: ef.greater(x, y), or x > y
half: ef.float16
identity: ef.eye(n)
if_else: ef.cond(...)
index_select: ef.take(x, indices, axis=...)
init_scope name_scope variable_scope: ef.capture.scope(name)
int_ long: ef.int64
is_tensor is_tensor_like: isinstance(x, ef.Tensor)
isneginf: x == -ef.inf
isposinf: x == ef.inf
isreal iscomplex iscomplexobj isrealobj: ef.isdtype(x.dtype, "complex floating")
jacfwd jacrev: ef.jacobian(f)
keras layers: ef.nn
l2_normalize normalize: x / ef.linalg.vector_norm(x, axis=-1, keepdims=True)
le: ef.less_equal(x, y), or x <= y
legendre_p: ef.eval_legendre(x, n)
ln: ef.log(x)
load: ef.capture.load(file), or np.load
log_softmax_v2: ef.log_softmax(x)
logical: ef.logical_and(x, y)
lpmv lpmn assoc_legendre: ef.assoc_legendre_p(x, n, m)
lstsq: ef.linalg.lstsq(x, y)
lt: ef.less(x, y), or x < y
make_graph make_jaxpr: ef.capture.trace(f, *specs)
map_fn vectorized_map vectorize: ef.vmap(f), or ef.map(...)
masked_fill: ef.where(mask, value, x)
mat matrix asmatrix: ef.tensor(values)
mul: ef.multiply(x, y), or x * y
multinomial: ef.random.categorical(...)
multi_dot: ef.linalg.multi_dot(tensors)
ndarray DeviceArray Array EagerTensor: ef.Tensor
ndim rank: x.ndim
ne: ef.not_equal(x, y), or x != y
neg: ef.negative(x), or -x
no_grad inference_mode enable_grad set_grad_enabled: nothing: without ef.GradientTape() nothing \
is recorded; ef.stop_gradient(x)
normal randn standard_normal random_normal: ef.random.normal(shape)
math functional F: ef itself: ef.relu(x), ef.softmax(x)
optim: ef.nn.optimizers
permute: ef.permute_dims(x, axes)
placeholder: ef.TensorSpec(shape, dtype)
print_: print(x); in captured code its spec is known
promote_types: ef.result_type(a, b)
put put_along_axis scatter_nd tensor_scatter_nd_update index_update: x.at[index].set(values)
py_function pure_callback numpy_function: x.numpy() outside of captured code
rand random_uniform: ef.random.uniform(shape)
randint random_integers: ef.random.integers(low, high, shape)
randperm shuffle random_shuffle: ef.random.permutation(...)
range: ef.arange(start, stop, step)
reduce_all: ef.all(x, axis=...)
reduce_any: ef.any(x, axis=...)
reduce_logsumexp: ef.logsumexp(x, axis=...)
reduce_prod: ef.prod(x, axis=...)
reduce_std: ef.std(x, axis=...)
reduce_sum: ef.sum(x, axis=...)
reduce_variance: ef.var(x, axis=...)
relu_: ef.relu(x)
remat: ef.checkpoint(f)
repeat_interleave: ef.repeat(x, repeats, axis=...)
reverse flipped: ef.flip(x, axis=...)
roots poly polyadd polyder polydiv polyfit polyint polymul polysub: np.roots(x), np.polyfit(x, y, \
degree) ...: NumPy's functions take tensors
row_stack: ef.vstack(tensors)
save: graph.save(file) of a traced graph, or np.save
scaled_dot_product_attention: ef.dot_product_attention(q, k, v)
scaled_modified_bessel_k0: ef.k0e(x)
scaled_modified_bessel_k1: ef.k1e(x)
scatter_add index_put unsorted_segment_sum: x.at[index].add(values)
seed: ef.random.seed(0)
shape_of shape size numel: x.shape, x.size
short: ef.int16
sigmoid_cross_entropy_with_logits: ef.sigmoid_cross_entropy(logits, labels)
single: ef.float32
softmax_cross_entropy_with_logits: ef.softmax_cross_entropy(logits, probabilities), \
or ef.sparse_softmax_cross_entropy(logits, labels)
softshrink: ef.soft_shrink(x)
sparse_softmax_cross_entropy_with_logits: ef.sparse_softmax_cross_entropy(logits, labels)
sph_harm: ef.sph_harm_y(theta, phi, n, m)
special: ef.erf, ef.lgamma, ef.digamma and others, in ef itself
sub: ef.subtract(x, y), or x - y
swish: ef.silu(x)
switch_case: ef.switch(...)
t transpose: ef.permute_dims(x, axes), or x.T
take_along_dim: ef.take_along_axis(x, indices, axis=...)
tanhshrink: ef.tanh_shrink(x)
tensor_split: ef.array_split(x, sections, axis=0)
to_numpy asnumpy: x.numpy()
topk: ef.top_k(x, k)
tree_map tree_util: Python's own loops over lists and dicts; ef.grad takes nests of tensors
triangular_solve: ef.linalg.solve_triangular(a, b)
unbind unpack: ef.unstack(x, axis=0)
unsqueeze: ef.expand_dims(x, axis)
while_: ef.while_loop(...)
zeros_: ef.zeros(shape)
"""

_TENSORS = """
add_ sub_ mul_ div_ zero_ fill_ copy_ clamp_ set_ put fill itemset resize partition: y = \
x.at[index].set(values): tensors do not change; an ef.Variable does
as_numpy asnumpy to_numpy cpu: x.numpy(), x.to("cpu:0")
backward grad requires_grad requires_grad_ retain_grad is_leaf grad_fn: ef.grad(f), or \
tape.gradient(y, x) of ef.GradientTape()
base ctypes data flags strides data_ptr storage stride untyped_storage tobytes tofile \
tostring: x.numpy() and NumPy's attribute of that name
block_until_ready: nothing: x.numpy() waits where it must
bool: x.astype("bool")
byteswap newbyteorder: x.numpy(), and NumPy's method of that name
clone detach detach_: x itself: tensors do not change; ef.stop_gradient(x) for the gradient
contiguous is_contiguous: x itself: tensors are laid out by the library
cuda: x.to("gpu:0")
dim: x.ndim
double: x.astype("float64")
element_size: x.itemsize
expand expand_as: ef.broadcast_to(x, shape)
flat: x.flatten()
float: x.astype("float32")
get_shape: x.shape
half: x.astype("float16")
int: x.astype("int32")
is_cuda: x.device
itertuples: iter(x)
long: x.astype("int64")
masked_fill masked_fill_: ef.where(mask, value, x)
nelement numel: x.size
new_ones new_zeros new_full: ef.zeros(shape, x.dtype), ef.ones, ef.full
permute: x.permute_dims(axes)
ptp: x.max() - x.min()
reshape_as view_as: x.reshape(y.shape)
scatter_ scatter_add_ index_add_: x.at[index].add(values)
set_shape: x.reshape(shape)
t: x.T
type type_as: x.astype(dtype)
unsqueeze unsqueeze_: ef.expand_dims(x, axis)
value: x itself
"""

_NETWORKS = """
AdaptiveAvgPool1d: ef.nn.AdaptiveAveragePooling1D(size)
AdaptiveAvgPool2d: ef.nn.AdaptiveAveragePooling2D(size)
AdaptiveMaxPool2d: ef.nn.AdaptiveMaxPooling2D(size)
AvgPool1d: ef.nn.AveragePooling1D(size)
AvgPool2d AveragePooling: ef.nn.AveragePooling2D(size)
AvgPool3d: ef.nn.AveragePooling3D(size)
BatchNorm BatchNorm1d BatchNorm2d: ef.nn.BatchNormalization()
BCELoss BCEWithLogitsLoss: ef.nn.losses.BinaryCrossentropy(from_logits=True)
Conv Conv2d: ef.nn.Conv2D(filters, size)
Conv1d: ef.nn.Conv1D(filters, size)
Conv3d: ef.nn.Conv3D(filters, size)
ConvTranspose2d: ef.nn.Conv2DTranspose(filters, size, strides)
CrossEntropyLoss: ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
Dropout1d Dropout2d Dropout3d: ef.nn.SpatialDropout1D(rate), 2D or 3D
GELU Tanh Sigmoid SiLU: ef.nn.Activation(name)
LayerNorm: ef.nn.LayerNormalization()
Linear: ef.nn.Dense(units)
MaxPool1d: ef.nn.MaxPooling1D(size)
MaxPool2d MaxPool: ef.nn.MaxPooling2D(size)
MaxPool3d: ef.nn.MaxPooling3D(size)
ModuleList ModuleDict ParameterList: a Python list or dict of layers as an attribute of the model
MSELoss: ef.nn.losses.MeanSquaredError()
Parameter: self.add_weight(shape, ...) in build of an ef.nn.Layer
Upsample UpsamplingNearest2d: ef.nn.UpSampling2D(factor)
ZeroPad2d: ef.nn.ZeroPadding2D(padding)
utils: ef.one_hot(classes, count), ef.random.seed(0), ef.nn.plot_model(model), ef.nn.Loader(data)
functional: ef itself: ef.relu(x), ef.softmax(x)
init: ef.nn.initializers
"""

_RANDOM = """
key RandomState new_key fold_in: ef.random.Generator(seed)
chisquare: ef.random.chi_square(df)
get_state set_state: ef.random.Generator(seed), which is a value
multivariate_normal: ef.random.normal(shape) @ ef.cholesky(covariance).mT
random random_sample: ef.random.uniform(shape)
standard_cauchy: ef.random.cauchy(shape)
standard_exponential: ef.random.exponential(shape)
standard_gamma: ef.random.gamma(alpha)
standard_t t: ef.random.student_t(df)
vonmises: ef.random.von_mises(mean, concentration)
"""

_LINALG = """
inverse: ef.linalg.inv(x)
"""


def _read(text: str) -> dict[str, str]:
    lines = (line.partition(": ") for line in text.replace("\\\n", "").strip().splitlines())
    return {name: answer for names, _, answer in lines for name in names.split()}


_TEXTS = {
    "Tensor": _TENSORS,
    "eagerflow": _MODULES,
    "eagerflow.nn": _NETWORKS,
    "eagerflow.ops.linalg": _LINALG,
    "eagerflow.ops.random": _RANDOM,
}


@cache
def table(where: str) -> dict[str, str]:
    """The equivalents of names in a module or class; ``where`` is "Tensor" or a module's name."""
    return _read(_TEXTS.get(where, ""))


def _absent(obj: Any, name: str, what: str, answer: str | None) -> AttributeError:
    """The AttributeError of a name that ``obj`` does not have; Python adds names that are alike."""
    told = f"; here it is {answer}" if answer else ""
    return AttributeError(f"{what} has no attribute {name!r}{told}", name=name, obj=obj)


def members(
    where: str, names: Sequence[str], late: Mapping[str, str] = {}
) -> tuple[Callable[[str], Any], Callable[[], Any]]:
    """``__getattr__`` and ``__dir__`` of a module that shows its public names alone.

    ``late`` names are imported from their modules on first access.
    """

    def missing(name: str) -> Any:
        if name in late:
            found = getattr(load(late[name]), name)
            setattr(sys.modules[where], name, found)
            return found
        shown = f"module {where.replace('.ops', '')!r}"
        answer = table(where).get(name, table("eagerflow").get(name))
        raise _absent(sys.modules[where], name, shown, answer)

    return missing, lambda: list(names)


class _OtherName:
    """A missing attribute that raises; ``__getattr__`` would slow down all other attributes."""

    __slots__ = ("_answer", "_name")

    def __init__(self, name: str, answer: str) -> None:
        self._name = name
        self._answer = answer

    def __get__(self, obj: Any, cls: type) -> Any:
        raise _absent(cls if obj is None else obj, self._name, cls.__name__, self._answer)


def explain_methods(functions: Sequence[str]) -> None:
    """Add hints for missing attributes of tensors: names of other libraries, and functions."""
    answers = table("eagerflow") | {name: f"ef.{name}(x, ...)" for name in functions}
    for name, answer in (answers | table("Tensor")).items():
        if name not in vars(Operators):
            setattr(Operators, name, _OtherName(name, answer))
            Operators._unlisted.add(name)
