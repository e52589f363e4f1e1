"""What names of NumPy, PyTorch, TensorFlow, Keras and JAX are called here."""

_FUNCTIONS = """
abs_ absolute fabs: ef.abs(x)
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d: ef.adaptive_avg_pool(x, size)
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d: ef.adaptive_max_pool(x, size)
add_n: sum([x, y, z]), or ef.sum(ef.stack(tensors), axis=0)
addcdiv: x + value * y / z
addcmul: x + value * y * z
addmm addmv baddbmm addbmm: x + y @ z
addr: x + ef.outer(y, z)
adjoint: ef.conj(ef.matrix_transpose(x))
all_close: ef.allclose(x, y)
amax reduce_max: ef.max(x, axis=...)
amin reduce_min: ef.min(x, axis=...)
aminmax: ef.min(x), ef.max(x)
apply_along_axis apply_over_axes: ef.vmap(f), or np.apply_along_axis outside of captured code
arccos: ef.acos(x)
arccosh: ef.acosh(x)
arcsin: ef.asin(x)
arcsinh: ef.asinh(x)
arctan: ef.atan(x)
arctan2: ef.atan2(y, x)
arctanh: ef.atanh(x)
argpartition partition: ef.argsort(x), ef.sort(x), or ef.top_k(x, k)
around rint: ef.round(x)
array constant convert_to_tensor from_numpy: ef.tensor(values), or ef.asarray(array)
array_equiv: ef.array_equal(x, ef.broadcast_to(y, x.shape))
asanyarray ascontiguousarray asfortranarray: ef.asarray(array)
average_pool: ef.avg_pool(x, window)
avg_pool1d avg_pool2d avg_pool3d: ef.avg_pool(x, window)
bartlett bartlett_window: ef.signal.bartlett(length), or np.bartlett
batch_matmul bmm mm mv: ef.matmul(x, y), or x @ y
batch_normalization: ef.batch_norm(x, scale, offset)
bernoulli: ef.random.bernoulli(...)
bessel_i0 modified_bessel_i0: ef.i0(x)
bessel_i0e: ef.i0e(x)
bessel_i1 modified_bessel_i1: ef.i1(x)
bessel_i1e: ef.i1e(x)
bessel_j0: ef.j0(x)
bessel_j1: ef.j1(x)
bessel_y0: ef.y0(x)
bessel_y1: ef.y1(x)
bilinear: ef.einsum("bi,oij,bj->bo", x, weight, y)
bitcast bitcast_convert_type: ef.view(x, dtype)
bitwise_not invert: ef.bitwise_invert(x)
blackman blackman_window: ef.signal.blackman(length)
boolean_mask: ef.masked_select(x, mask), or x[mask]
broadcast_tensors: ef.broadcast_arrays(*tensors)
bucketize: ef.searchsorted(boundaries, x)
cartesian_prod: ef.stack(ef.meshgrid(*tensors, indexing="ij"), axis=-1)
cast: ef.astype(x, dtype)
cat concatenate concat_ hconcat: ef.concat(tensors, axis=0)
categorical_crossentropy binary_crossentropy sparse_categorical_crossentropy: ef.nn.losses
cholesky_inverse cholesky_solve: ef.linalg.solve(x, y)
choose: ef.select(conditions, choices), or ef.take_along_axis(x, indices)
chunk: ef.split(x, sections, axis=0)
clamp clip_by_value: ef.clip(x, low, high)
clamp_max: ef.minimum(x, high)
clamp_min: ef.maximum(x, low)
clip_by_norm clip_grad_norm_ clip_grad_value_: ef.clip_by_global_norm(gradients, limit), or \
clipnorm=... of an optimizer
clone copy deepcopy array_copy: x itself: tensors do not change; ef.tensor(x) copies
closure_convert linearize linear_transpose: ef.vjp(f, x), ef.jvp(f, (x,), (v,))
conj_ conjugate: ef.conj(x)
conv1d conv2d conv3d convolution: ef.conv(x, w, ...)
conv2d_transpose conv_transpose2d: ef.conv_transpose(x, w, ...)
conv_transpose1d conv_transpose3d: ef.conv_transpose(x, w, ...)
convert_to_numpy: x.numpy()
cumprod: ef.cumulative_prod(x, axis=...), or x.cumprod()
cumsum: ef.cumulative_sum(x, axis=...), or x.cumsum()
cumulative_logsumexp: ef.logcumsumexp(x, axis=...)
cumulative_trapezoid: ef.cumulative_sum of trapezoids, or scipy.integrate
custom_jvp custom_vjp: ef.custom_gradient(f)
degrees: ef.rad2deg(x)
delete: x[ef.concat([before, after])], or np.delete outside of captured code
depthwise_conv: ef.conv(x, w, groups=channels)
detach no_gradient: ef.stop_gradient(x)
device_get: x.numpy()
device_put: ef.to_device(x, device), or x.to(device)
diag_part: ef.diagonal(x)
div true_divide truediv realdiv: ef.divide(x, y), or x / y
divide_no_nan: ef.where(y == 0, 0, x / y)
divmod: x // y, x % y
dynamic_slice dynamic_update_slice slice_update scatter_update: x[i : i + n], x.at[i].set(values)
eigvals eig: ef.linalg.eig(x), ef.linalg.eigvals(x)
embedding: ef.embedding_lookup(table, indices), or ef.nn.Embedding(count, width)
eq: ef.equal(x, y), or x == y
expand broadcast: ef.broadcast_to(x, shape)
expit: ef.sigmoid(x)
feature_alpha_dropout alpha_dropout: ef.nn.AlphaDropout(rate)
fft2d: ef.fft.fft2(x)
fill: ef.full(shape, value)
fill_diagonal: x.at[indices].set(values) with ef.diag_indices(n)
fix: ef.trunc(x)
flatten ravel: ef.reshape(x, (-1,)), or x.flatten()
float_power: ef.power(x.astype("float64"), y)
floordiv: ef.floor_divide(x, y), or x // y
floormod mod: ef.remainder(x, y), or x % y
foldl foldr reduce accumulate: ef.scan(...)
frac: x - ef.trunc(x)
ge: ef.greater_equal(x, y), or x >= y
get_item: x[index]
get_printoptions printoptions: ef.set_printoptions(precision=...)
gt: ef.greater(x, y), or x > y
gumbel_softmax: ef.softmax((logits + ef.random.gumbel(shape)) / temperature)
hamming: ef.signal.hamming(length)
hamming_window: ef.signal.hamming(length)
hann_window hanning: ef.signal.hann(length)
hardshrink: ef.hard_shrink(x)
hardsigmoid: ef.hard_sigmoid(x)
hardswish hard_swish: ef.hard_silu(x)
hardtanh: ef.hard_tanh(x)
histc: ef.histogram(x, bins)
identity: ef.eye(n)
if_else: ef.cond(...)
ifft2d: ef.fft.ifft2(x)
igamma: ef.gammainc(a, x)
igammac: ef.gammaincc(a, x)
in_top_k: ef.any(ef.top_k(x, k)[1] == target[:, None], axis=-1)
index_fill: x.at[index].set(value)
index_select: ef.take(x, indices, axis=...)
insert: ef.concat([x[:i], values, x[i:]])
instance_norm: ef.group_norm(x, groups=channels)
inverse: ef.linalg.inv(x)
inverse_stft: ef.signal.istft(x, ...)
irfft rfft ifft2 fft2 fftn ifftn ifft fftshift rfftfreq fftfreq: ef.fft.fft(x), ef.fft.rfft(x)
is_complex: ef.isdtype(x.dtype, "complex floating")
is_finite: ef.isfinite(x)
is_floating_point: ef.isdtype(x.dtype, "real floating")
is_inf: ef.isinf(x)
is_nan: ef.isnan(x)
is_signed issubdtype: ef.isdtype(x.dtype, kind)
is_tensor is_tensor_like: isinstance(x, ef.Tensor)
isneginf: x == -ef.inf
isposinf: x == ef.inf
isreal iscomplex iscomplexobj isrealobj: ef.isdtype(x.dtype, "complex floating")
isscalar: x.ndim == 0
kaiser: ef.signal.kaiser(length, beta)
kaiser_window: ef.signal.kaiser(length, beta)
kthvalue: ef.sort(x)[..., k - 1]
l2_normalize normalize: x / ef.linalg.vector_norm(x, axis=-1, keepdims=True)
layer_normalization: ef.layer_norm(x, scale, offset)
le: ef.less_equal(x, y), or x <= y
left_shift: ef.bitwise_left_shift(x, y), or x << y
legendre_p: ef.eval_legendre(x, n)
lerp: x + weight * (y - x)
lexsort: ef.argsort of each key in turn, from the last
linear: x @ w + b, or ef.nn.Dense(units)
ln: ef.log(x)
log_softmax_v2: ef.log_softmax(x)
logdet: ef.linalg.slogdet(x)
logical: ef.logical_and(x, y)
logmeanexp: ef.logsumexp(x) - math.log(x.size)
logsigmoid log_expit: ef.log_sigmoid(x)
lp_pool1d lp_pool2d lp_pool3d: ef.lp_pool(x, p, window)
lpmv lpmn assoc_legendre: ef.assoc_legendre_p(x, n, m)
lstm_cell gru_cell: ef.nn.LSTMCell(units), ef.nn.GRUCell(units)
lstsq: ef.linalg.lstsq(x, y)
lt: ef.less(x, y), or x < y
map_fn vectorized_map vectorize: ef.vmap(f), or ef.map(...)
masked_fill: ef.where(mask, value, x)
masked_scatter putmask place piecewise: ef.where(mask, value, x)
mat matrix asmatrix: ef.tensor(values)
matrix_exp expm: scipy.linalg.expm(x.numpy())
max_pool1d max_pool2d max_pool3d: ef.max_pool(x, window)
max_pool_with_argmax max_pool2d_with_indices max_pool1d_with_indices max_pool3d_with_indices: \
ef.max_pool_with_indices(x, window)
max_unpool1d max_unpool2d max_unpool3d: ef.max_unpool(x, indices, ...)
modified_bessel_k0: ef.k0(x)
modified_bessel_k1: ef.k1(x)
moments std_mean var_mean: ef.mean(x, axis=...), ef.var(x, axis=...)
movedim: ef.moveaxis(x, source, destination)
msort: ef.sort(x, axis=0)
mul: ef.multiply(x, y), or x * y
multi_dot: ef.linalg.multi_dot(tensors)
multi_hot: ef.max(ef.one_hot(x, count), axis=-2)
multinomial: ef.random.categorical(...)
mvlgamma: a sum of ef.lgamma(x)
narrow slice: x[start:stop]
ndim rank: x.ndim
ne: ef.not_equal(x, y), or x != y
neg: ef.negative(x), or -x
normal randn standard_normal random_normal: ef.random.normal(shape)
nuclear_norm frobenius_norm: ef.linalg.matrix_norm(x, ord=...)
packbits unpackbits: ef.pack_int4, or np.packbits
pdist: ef.cdist(x, x)
permute: ef.permute_dims(x, axes)
pinverse: ef.linalg.pinv(x)
poisson: ef.random.poisson(rate)
print_: print(x); in captured code its spec is known
promote_types: ef.result_type(a, b)
put put_along_axis scatter_nd tensor_scatter_nd_update index_update: x.at[index].set(values)
radians: ef.deg2rad(x)
rand random_uniform: ef.random.uniform(shape)
rand_like randn_like randint_like: ef.random.normal(x.shape), ef.random.uniform(x.shape)
randint random_integers: ef.random.integers(low, high, shape)
randperm shuffle random_shuffle: ef.random.permutation(...)
range: ef.arange(start, stop, step)
real_if_close: ef.real(x)
rearrange: x.reshape(shape), x.permute_dims(axes), or einops.rearrange(x, pattern)
reduce_all: ef.all(x, axis=...)
reduce_any: ef.any(x, axis=...)
reduce_logsumexp: ef.logsumexp(x, axis=...)
reduce_mean: ef.mean(x, axis=...)
reduce_prod: ef.prod(x, axis=...)
reduce_std: ef.std(x, axis=...)
reduce_sum: ef.sum(x, axis=...)
reduce_variance: ef.var(x, axis=...)
relu_: ef.relu(x)
remat ad_checkpoint: ef.checkpoint(f)
renorm: x / norm
repeat_interleave: ef.repeat(x, repeats, axis=...)
reshard: x.to(device)
reverse flipped: ef.flip(x, axis=...)
right_shift: ef.bitwise_right_shift(x, y), or x >> y
rms_normalization: ef.rms_norm(x, scale)
rnn_tanh rnn_relu: ef.simple_rnn(...), or ef.nn.SimpleRNN(units)
rollaxis: ef.moveaxis(x, source, destination)
roots poly polyadd polyder polydiv polyfit polyint polymul polysub: np.roots(x), np.polyfit(x, y, \
degree) ...: NumPy's functions take tensors
row_stack: ef.vstack(tensors)
rsub: y - x
saturate_cast: ef.clip(x, low, high).astype(dtype)
scalar_tensor: ef.tensor(number)
scaled_dot_product_attention: ef.dot_product_attention(q, k, v)
scaled_modified_bessel_k0: ef.k0e(x)
scaled_modified_bessel_k1: ef.k1e(x)
scatter_add index_put unsorted_segment_sum: x.at[index].add(values)
segment_reduce: ef.segment_sum(x, ids, count)
select_scatter slice_scatter diagonal_scatter index_copy: x.at[index].set(values)
separable_conv: ef.nn.SeparableConv2D(filters, size)
sgn: ef.sign(x)
shape_of shape size numel: x.shape, x.size
sigmoid_cross_entropy_with_logits: ef.sigmoid_cross_entropy(logits, labels)
soft_sign: ef.softsign(x)
softmax_cross_entropy_with_logits: ef.softmax_cross_entropy(logits, probabilities), \
or ef.sparse_softmax_cross_entropy(logits, labels)
softshrink: ef.soft_shrink(x)
solve_triangular: ef.linalg.solve_triangular(a, b)
sparse_softmax_cross_entropy_with_logits: ef.sparse_softmax_cross_entropy(logits, labels)
sph_harm: ef.sph_harm_y(theta, phi, n, m)
split_with_sizes: ef.split(x, sections, axis=0)
standardize: (x - ef.mean(x)) / ef.std(x)
stft istft: ef.signal.stft(x, ...), ef.signal.istft(x, ...)
sub: ef.subtract(x, y), or x - y
swapdims: ef.swapaxes(x, 0, 1)
swish: ef.silu(x)
switch_case: ef.switch(...)
t transpose: ef.permute_dims(x, axes), or x.T
take_along_dim: ef.take_along_axis(x, indices, axis=...)
tanhshrink: ef.tanh_shrink(x)
tensor_split: ef.array_split(x, sections, axis=0)
to_numpy asnumpy: x.numpy()
topk: ef.top_k(x, k)
triangular_solve: ef.linalg.solve_triangular(a, b)
tril_indices_from: ef.tril_indices(x.shape[0])
trim_zeros unwrap sort_complex spacing: NumPy's function of that name, on x.numpy()
triu_indices_from: ef.triu_indices(x.shape[0])
unbind unpack: ef.unstack(x, axis=0)
unique_consecutive: x[ef.concat([first, x[1:] != x[:-1]])]
unsqueeze: ef.expand_dims(x, axis)
upsample upsample_nearest upsample_bilinear: ef.resize(x, size)
vecmat matvec: ef.matmul(x, y), or x @ y
view_as_complex: ef.complex(x[..., 0], x[..., 1])
view_as_real: ef.stack([ef.real(x), ef.imag(x)], axis=-1)
while_: ef.while_loop(...)
zeros_: ef.zeros(shape)
"""
"""Functions, also as methods of tensors."""

_PACKAGE = """
activations: ef.nn.activations
amp autocast mixed_precision: ef.nn.set_dtype_policy("mixed_float16"), or "mixed_bfloat16"
applications hub: ef.nn.networks
autograd: ef.GradientTape, ef.grad(f), ef.custom_gradient(f)
backend: ef.devices()
bool_: ef.bool
byte: ef.uint8
callbacks: ef.nn.callbacks
cdouble: ef.complex128
cfloat: ef.complex64
clear_session reset_default_graph: nothing: no state grows; del model frees its memory
compat v1: ef.capture.Session for graphs and feeds
compile jit pmap tf_function: ef.function(f)
complex_: ef.complex128
constraints: ef.nn.constraints
cuda: ef.devices(), ef.device("gpu:0"), x.to("gpu:0")
data datasets DataLoader grain: ef.nn.Loader(data, batch_size)
debug: print(x), ef.debug_nans(True)
debug_infs set_anomaly_enabled: ef.debug_nans(True)
default_backend: ef.devices()
default_device set_default_device get_default_device: with ef.device("cpu:0"):
default_rng Generator PRNGKey manual_seed set_seed set_random_seed: ef.random.seed(0), \
ef.random.Generator
Dense Linear: ef.nn.Dense(units)
device_count list_devices local_devices: ef.devices()
disable_jit run_functions_eagerly config: f.python calls a captured function's Python code
distributed distribution sharding Mesh make_mesh pjit shard_map: ef.cluster, or \
ef.capture.partition(graph, devices)
double: ef.float64
dtype Dtype: ef.as_dtype("float32")
dtype_policies: ef.nn.DTypePolicy(name)
Embedding: ef.nn.Embedding(count, width)
enable_x64: dtype="float64" of each call
errstate seterr geterr: ef.debug_nans(True)
eval_shape ShapeDtypeStruct: ef.capture.trace(f, *specs), ef.TensorSpec(shape, dtype)
experimental: the feature itself: it is in ef, ef.nn or ef.capture
export: ef.capture.export_onnx(graph, file), or model.export(file)
float: ef.float32
float_: ef.float64
FloatTensor LongTensor IntTensor BoolTensor: ef.tensor(values)
from_array frombuffer fromiter: ef.tensor(np.frombuffer(...)), through NumPy
fromfile fromstring loadtxt genfromtxt memmap: ef.tensor(np.loadtxt(file)), through NumPy
fromfunction: ef.vmap(f), of ef.meshgrid
functional_call functorch func stateless_call stack_module_state: ef.nn.functional_call(model, \
values, x), with ef.grad and ef.vmap
get_default_dtype set_default_dtype set_default_tensor_type: dtype=... of each call: Python floats \
become float32
gradients backward: ef.grad(f), or tape.gradient(loss, variables) of ef.GradientTape()
half: ef.float16
image io vision: ef.resize(x, size), ef.nn.Resizing(height, width), ef.nn.CenterCrop
index_exp s_ r_ c_ mgrid ogrid ix_: ef.meshgrid(*tensors), ef.concat, and Python's slices
init_scope name_scope variable_scope: ef.capture.scope(name)
initializers: ef.nn.initializers
Input InputSpec KerasTensor: ef.nn.Input(shape)
int: ef.int32
int_ long: ef.int64
jacfwd jacrev: ef.jacobian(f)
keras layers: ef.nn
lax: ef.cond, ef.scan, ef.while_loop, ef.fori_loop, ef.conv, and the other functions of ef
Layer: ef.nn.Layer
load: ef.nn.load_model(file), ef.capture.load(file) for graphs, or np.load
losses: ef.nn.losses
make_graph make_jaxpr: ef.capture.trace(f, *specs)
math functional F: ef itself: ef.relu(x), ef.softmax(x)
metrics: ef.nn.metrics
Model: ef.nn.Model
models: ef.nn.Model, ef.nn.Sequential, ef.nn.load_model(file)
Module: ef.nn.Module, or ef.nn.Layer
named_scope named_call: ef.capture.scope(name)
ndarray DeviceArray Array EagerTensor: ef.Tensor
nditer ndenumerate ndindex: Python's loops, or np.ndenumerate(x.numpy())
no_grad inference_mode enable_grad set_grad_enabled: nothing: without ef.GradientTape() nothing \
is recorded; ef.stop_gradient(x)
optim: ef.nn.optimizers
Optimizer Adam SGD AdamW: ef.nn.optimizers.Adam(rate)
optimizers optimizer: ef.nn.optimizers
parallel pmean psum: ef.cluster
Parameter ParameterList get_variable: ef.Variable(value)
placeholder: ef.TensorSpec(shape, dtype)
profiler: ef.profile()
py_function pure_callback numpy_function: x.numpy() outside of captured code
quantization quantizers: ef.capture.quantize(graph, examples)
register_op register_library custom_op: ef.custom_gradient(f)
regularizers: ef.nn.regularizers
save: model.save(file), graph.save(file) of a traced graph, or np.save
saved_model saving: ef.capture.load(file), graph.save(file), model.save(file)
savez savetxt savez_compressed: np.savez(file, x.numpy())
seed: ef.random.seed(0)
Sequential: ef.nn.Sequential(layers)
set_num_threads set_num_interop_threads get_num_threads: ef.set_threads(count)
set_flush_denormal set_float32_matmul_precision use_deterministic_algorithms: nothing: results are \
deterministic
set_rng_state get_rng_state initial_seed: ef.random.seed(0), ef.random.Generator
short: ef.int16
single: ef.float32
special: ef.erf, ef.lgamma, ef.digamma and others, in ef itself
tree_map tree_util: Python's own loops over lists and dicts; ef.grad takes nests of tensors
typing: ef.Tensor, ef.TensorSpec
utils: ef.one_hot(classes, count), ef.clip_by_global_norm(gradients, limit), ef.random.seed(0), \
ef.nn.plot_model(model), ef.nn.Loader(data)
xla tpu mps: ef.devices()
"""

_TENSORS = """
add_ sub_ mul_ div_ zero_ fill_ copy_ clamp_ set_ put fill itemset resize partition: y = \
x.at[index].set(values): tensors do not change; an ef.Variable does
as_numpy asnumpy to_numpy cpu: x.numpy(), x.to("cpu:0")
grad requires_grad requires_grad_ retain_grad is_leaf grad_fn register_hook retains_grad: \
ef.grad(f), or tape.gradient(y, x) of ef.GradientTape()
abs_ ceil_ clip_ cos_ exp_ floor_ log_ neg_ pow_ relu_ round_ sigmoid_ sin_ sqrt_ square_ tanh_ \
addcdiv_ addcmul_ lerp_ squeeze_ transpose_ t_ swapaxes_ logical_and_ logical_or_ logical_not_: \
the name without "_": tensors do not change, y = f(x)
normal_ uniform_ random_ bernoulli_ exponential_ log_normal_ cauchy_: ef.random.normal(shape), and \
variable.assign(value)
apply_ map_: ef.vmap(f), or ops of the whole tensor
bfloat16: x.astype("bfloat16")
char: x.astype("int8")
short: x.astype("int16")
byte: x.astype("uint8")
index_copy_ index_fill_ index_put_ masked_scatter_ put_ scatter_reduce_ fill_diagonal_: y = \
x.at[index].set(values), or .add, .min, .max
get_device is_cpu is_mps is_xpu: x.device
layout storage_offset storage_type is_pinned pin_memory share_memory_ record_stream: nothing: \
memory is the library's
mH H: x.mT, ef.conj(x.mT)
ndimension: x.ndim
new new_empty new_tensor: ef.empty(shape, x.dtype), ef.tensor(values)
resize_ resize_as_: x.reshape(shape)
select narrow: x[:, i]
sum_to_size: x.sum(axis=...)
to_dense to_sparse coalesce is_sparse: x itself: tensors are dense
unflatten: x.reshape(shape)
assign assign_add assign_sub: a method of ef.Variable; w += 1 makes a tensor of it, \
variable.assign_add(1) changes it
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
backend: ef itself: ef.exp(x), ef.mean(x); nothing has to be cleared between models
AdaptiveAvgPool1d AdaptiveAvgPool3d: ef.nn.AdaptiveAveragePooling1D(size), or 3D
AdaptiveAvgPool2d: ef.nn.AdaptiveAveragePooling2D(size)
AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d: ef.nn.AdaptiveMaxPooling2D(size), 1D or 3D
AvgPool1d: ef.nn.AveragePooling1D(size)
AvgPool2d AveragePooling: ef.nn.AveragePooling2D(size)
AvgPool3d: ef.nn.AveragePooling3D(size)
BatchNorm BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm2d: \
ef.nn.BatchNormalization()
BCELoss BCEWithLogitsLoss: ef.nn.losses.BinaryCrossentropy(from_logits=True)
Buffer register_buffer: self.add_weight(shape, trainable=False) in build of an ef.nn.Layer
CELU Hardshrink Hardsigmoid Hardswish Hardtanh LogSigmoid LogSoftmax Mish ReLU6 RReLU SELU Softmin \
Softplus Softshrink Softsign Tanhshrink Threshold GELU Tanh Sigmoid SiLU Swish: \
ef.nn.Activation(name), or the function in ef
CTCLoss: ef.nn.losses.CTC(), or ef.ctc_loss
ConstantPad1d ConstantPad2d CircularPad2d ReflectionPad1d ReflectionPad2d ReplicationPad2d: \
ef.pad(x, widths, mode), in an ef.nn.Lambda
Conv Conv2d LazyConv2d: ef.nn.Conv2D(filters, size)
Conv1d LazyConv1d: ef.nn.Conv1D(filters, size)
Conv3d: ef.nn.Conv3D(filters, size)
ConvTranspose ConvTranspose2d: ef.nn.Conv2DTranspose(filters, size, strides)
ConvTranspose1d ConvTranspose3d: ef.nn.Conv1DTranspose(filters, size), or 3D
CosineEmbeddingLoss: ef.cosine_embedding_loss(x, y, target)
CosineSimilarity: ef.cosine_similarity(x, y), or ef.nn.losses.CosineSimilarity()
CrossEntropyLoss NLLLoss: ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
DataLoader TensorDataset Dataset: ef.nn.Loader(data, batch_size)
DataParallel parallel DistributedDataParallel: ef.cluster.DataParallel(cluster)
Dropout1d Dropout2d Dropout3d: ef.nn.SpatialDropout1D(rate), 2D or 3D
EmbeddingBag: ef.embedding_bag(table, indices)
Embed: ef.nn.Embedding(count, width)
GaussianNLLLoss: ef.gaussian_nll_loss(x, target, variance)
GLU: ef.glu(x), in an ef.nn.Lambda
GroupNorm InstanceNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d: \
ef.nn.GroupNormalization(groups)
HingeEmbeddingLoss: ef.hinge_embedding_loss(x, target)
HuberLoss SmoothL1Loss: ef.nn.losses.Huber(delta)
KLDivLoss: ef.nn.losses.KLDivergence()
L1Loss: ef.nn.losses.MeanAbsoluteError()
LayerNorm: ef.nn.LayerNormalization()
LazyLinear Linear DenseGeneral: ef.nn.Dense(units)
LocalResponseNorm: ef.nn.LocalResponseNormalization()
LPPool1d LPPool2d LPPool3d: ef.lp_pool(x, p, window)
MarginRankingLoss: ef.margin_ranking_loss(x, y, target)
MaxPool1d: ef.nn.MaxPooling1D(size)
MaxPool2d MaxPool: ef.nn.MaxPooling2D(size)
MaxPool3d: ef.nn.MaxPooling3D(size)
MaxUnpool1d MaxUnpool2d MaxUnpool3d: ef.max_unpool(x, indices, ...)
ModuleList ModuleDict ParameterList ParameterDict: a Python list or dict of layers as an attribute \
of the model
MultiheadAttention: ef.nn.MultiHeadAttention(heads, width)
MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss SoftMarginLoss: \
ef.multi_margin_loss(x, target), and its neighbours in ef
MSELoss: ef.nn.losses.MeanSquaredError()
PairwiseDistance: ef.pairwise_distance(x, y)
Parameter: self.add_weight(shape, ...) in build of an ef.nn.Layer
PixelShuffle: ef.pixel_shuffle(x, factor)
PixelUnshuffle: ef.pixel_unshuffle(x, factor)
PoissonNLLLoss: ef.nn.losses.Poisson(), or ef.poisson_nll_loss
RMSNorm: ef.nn.RMSNormalization()
RNNCell: ef.nn.SimpleRNNCell(units)
RNNBase: ef.nn.RNN(cell)
TransformerEncoder TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer Transformer: \
ef.nn.MultiHeadAttention and ef.nn.LayerNormalization in a model: ef.nn.networks.GPT shows one
TripletMarginLoss: ef.triplet_margin_loss(anchor, positive, negative)
Unflatten: ef.nn.Reshape(shape)
Unfold Fold: ef.unfold(x, size), ef.fold(x, ...)
Upsample UpsamplingNearest2d UpsamplingBilinear2d: ef.nn.UpSampling2D(factor)
ZeroPad1d ZeroPad2d ZeroPad3d: ef.nn.ZeroPadding2D(padding), 1D or 3D
clip_grad_norm_ clip_grad_value_: ef.clip_by_global_norm(gradients, limit)
compact nowrap: def call(self, inputs) of an ef.nn.Layer
utils: ef.one_hot(classes, count), ef.clip_by_global_norm(gradients, limit), ef.random.seed(0), \
ef.nn.plot_model(model), ef.nn.Loader(data)
functional F: ef itself: ef.relu(x), ef.softmax(x)
load: ef.nn.load_model(file)
save: model.save(file)
init: ef.nn.initializers
models: ef.nn.Model, ef.nn.Sequential, ef.nn.load_model(file)
RandomBrightness RandomContrast RandomCrop RandomFlip RandomRotation RandomTranslation RandomZoom \
RandAugment: map= of ef.nn.Loader(data, map=f), with ef.random and ef.flip, ef.crop, \
ef.affine_transform
JaxLayer FlaxLayer TorchModuleWrapper: ef.nn.from_torch(model, state)
MelSpectrogram STFTSpectrogram: ef.signal.stft(x, ...), in an ef.nn.Lambda
deserialize serialize: ef.nn.model_from_config(config), layer.get_config()
"""

_MODULE = """
parameters: model.trainable_weights, or model.weights: each has a name
named_parameters: model.named_weights()
buffers named_buffers: model.non_trainable_weights
state_dict: model.named_weights(), model.get_weights(), or model.save_weights(file)
load_state_dict: model.set_weights(values), model.load_weights(file), or ef.nn.from_torch(model, \
state)
train eval: the argument training of a call, as in model(x, training=True); fit and predict set it
to cuda cpu: with ef.device("gpu:0"): model = ..., as weights are made on the current device
half float double bfloat16: Layer(..., dtype="float16"), or ef.nn.set_dtype_policy("mixed_float16")
type: model.dtype
forward: model.call: a subclass defines def call(self, inputs), and model(x) calls it
apply: for part in model.walk():
backward: tape.gradient(loss, model.trainable_weights) of ef.GradientTape()
zero_grad: nothing: tape.gradient returns new gradients each time
step: optimizer.apply(gradients, model.trainable_weights)
requires_grad_ requires_grad: model.trainable = True or False
modules named_modules: model.walk()
children named_children: model.walk(), or model.layers of an ef.nn.Model
add_module register_module get_submodule: an attribute: self.name = layer
register_buffer register_parameter: self.add_weight(shape, ...) in build of an ef.nn.Layer
add_variable: self.add_weight(shape, ...)
get_parameter get_buffer: model.named_weights()[name]
share_memory to_empty: nothing: memory is the library's
init init_with_output setup: model.build(input_shape), or the first call
param parameter variable: self.add_weight(shape, ...)
lr: model.optimizer.learning_rate
save_pretrained: model.save(file)
from_pretrained: ef.nn.load_model(file)
input_spec: ef.nn.Input(shape)
stateless_call stateless_apply functional_call: ef.nn.functional_call(model, values, x)
register_forward_hook: layer.add_hook(after=f), with f(layer, args, outputs)
register_forward_pre_hook: layer.add_hook(before=f), with f(layer, args)
register_backward_hook register_full_backward_hook: layer.add_hook(after=f), where f returns the \
outputs through an ef.custom_gradient
add_metric: metrics= of model.compile
"""

_OPTIMIZER = """
step update_step: optimizer.apply(gradients, variables)
zero_grad: nothing: tape.gradient returns new gradients each time
backward: tape.gradient(loss, variables) of ef.GradientTape()
param_groups add_param_group: optimizer.add_group(layer, multiplier=0.1, weight_decay=0.0)
state state_dict get_state: optimizer.variables, or ef.nn.Checkpoint(folder).save(model)
load_state_dict set_weights set_state load_own_variables: ef.nn.Checkpoint(folder).restore(model)
lr rate: optimizer.learning_rate
init: optimizer.build(variables)
defaults: optimizer.get_config()
add_variable assign: optimizer.build(variables)
compute_gradients: tape.gradient(loss, variables) of ef.GradientTape()
unscale_ scale: optimizer.scale_loss(loss)
"""

_SCHEDULE = """
step: nothing: the optimizer counts its steps
get_last_lr: schedule(step), or optimizer.learning_rate
state_dict load_state_dict: schedule.get_config(): the optimizer has the state
"""

_METRIC = """
update: metric.update_state(y_true, y_pred)
compute: metric.result()
reset reset_states: metric.reset_state()
"""

_OPTIMIZERS = """
ASGD NAdam RAdam Rprop SparseAdam: ef.nn.optimizers.Nadam(rate), or Adam, Adagrad
adamw rmsprop: ef.nn.optimizers.AdamW(rate)
lr_scheduler learning_rate_schedule CosineAnnealingLR StepLR LambdaLR: ef.nn.schedules, as in \
Adam(ef.nn.schedules.CosineDecay(0.1, steps))
swa_utils: ef.nn.callbacks.SwapEMAWeights(), with use_ema=True
apply_updates chain: optimizer.apply(gradients, variables)
clip_by_global_norm: ef.clip_by_global_norm(gradients, limit)
MultiOptimizer multi_transform: optimizer.add_group(layer, multiplier=0.1), or one optimizer for \
each part
deserialize serialize: ef.nn.optimizers.get(config), optimizer.get_config()
legacy experimental: ef.nn.optimizers itself
"""

_LOSSES = """
MSE MSELoss: ef.nn.losses.MeanSquaredError()
MAE L1Loss: ef.nn.losses.MeanAbsoluteError()
MAPE: ef.nn.losses.MeanAbsolutePercentageError()
MSLE: ef.nn.losses.MeanSquaredLogarithmicError()
KLD KLDivLoss: ef.nn.losses.KLDivergence()
mse: ef.nn.losses.mean_squared_error(y_true, y_pred)
mae: ef.nn.losses.mean_absolute_error(y_true, y_pred)
mape: ef.nn.losses.mean_absolute_percentage_error(y_true, y_pred)
msle: ef.nn.losses.mean_squared_logarithmic_error(y_true, y_pred)
kld: ef.nn.losses.kl_divergence(y_true, y_pred)
BCE BCELoss BCEWithLogitsLoss: ef.nn.losses.BinaryCrossentropy(from_logits=True)
CrossEntropy CrossEntropyLoss NLLLoss: \
ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
CTCLoss: ef.nn.losses.CTC()
HuberLoss SmoothL1Loss: ef.nn.losses.Huber(delta)
Reduction: reduction="sum_over_batch_size" of each loss
softmax_cross_entropy sigmoid_cross_entropy: ef.softmax_cross_entropy(logits, probabilities)
deserialize serialize: ef.nn.losses.get(config), loss.get_config()
"""

_METRICS = """
MSE: ef.nn.metrics.MeanSquaredError()
MAE: ef.nn.metrics.MeanAbsoluteError()
ROCAUC: ef.nn.metrics.AUC()
F1: ef.nn.metrics.F1Score()
Average: ef.nn.metrics.Mean()
deserialize serialize: ef.nn.metrics.get(config), metric.get_config()
"""

_CALLBACKS = """
ProgbarLogger TQDM: verbose=1 of model.fit
RemoteMonitor WandbCallback: ef.nn.callbacks.LambdaCallback(on_epoch_end=f)
OrbaxCheckpoint Checkpoint: ef.nn.callbacks.ModelCheckpoint(file)
EarlyStop: ef.nn.callbacks.EarlyStopping()
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

_PLACE = """
apply: x.at[index].set(f(x[index]))
divide div: x.at[index].multiply(1 / value)
mul: x.at[index].multiply(value)
power: x.at[index].set(x[index] ** value)
put update assign: x.at[index].set(value)
sub subtract: x.at[index].add(-value)
"""

_AT = """
set: x.at[index].set(value)
add: x.at[index].add(value)
get: x[index]
multiply mul: x.at[index].multiply(value)
min: x.at[index].min(value)
max: x.at[index].max(value)
"""

TABLES = {
    "At": _AT,
    "Module": _MODULE,
    "Metric": _METRIC,
    "Optimizer": _OPTIMIZER,
    "Place": _PLACE,
    "Schedule": _SCHEDULE,
    "Tensor": _TENSORS,
    "eagerflow": _FUNCTIONS + _PACKAGE,
    "functions": _FUNCTIONS,
    "eagerflow.nn": _NETWORKS,
    "eagerflow.nn.callbacks": _CALLBACKS,
    "eagerflow.nn.losses": _LOSSES,
    "eagerflow.nn.metrics": _METRICS,
    "eagerflow.nn.optimizers": _OPTIMIZERS,
    "eagerflow.ops.linalg": _LINALG,
    "eagerflow.ops.random": _RANDOM,
}
"""Lines of names and their equivalent here, by module or class."""
