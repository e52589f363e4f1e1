"""Tables of random programs: expressions, layers, updates, results and actions as text.

``{a}`` and ``{b}`` are floating-point values, ``{w}`` and ``{u}`` Variables, ``{x}`` and ``{y}``
axes, ``{d}`` is a small size, ``{n}`` a new number. ``$`` marks names of the program, which are
attributes of an object or globals of a module.
"""

from importlib.util import find_spec


def available(texts):
    """The statements for which all packages are installed."""
    missing = find_spec("torch") is None
    return [text for text in texts if not (missing and ("torch" in text or "TORCH" in text))]


def listed(text):
    """The expressions of a table, which are separated by bars and ends of lines."""
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


ELEMENTWISE = listed("""
ef.tanh({a}) | ef.sin({a}) | ef.cos({a} * 0.5) | ef.sigmoid({a}) | ef.exp(ef.tanh({a})) | -{a}
ef.gelu({a}) | ef.softplus({a}) | ef.silu({a}) | ef.erf({a}) | ef.square({a}) * 0.5 | ef.abs({a})
ef.sqrt(ef.abs({a}) + 0.5) | ef.log(ef.abs({a}) + 1.5) | 1.0 / (ef.abs({a}) + 1.0) | {a} ** 2
ef.log1p(ef.square({a})) | ef.atan({a}) | ef.expm1(ef.tanh({a})) | {a} * $rate | {a} * k
{a} + {b} | {a} - {b} | {a} * {b} | {a} / (ef.abs({b}) + 1.0) | {a} + {b} * $rate | 2 - {a}
ef.atan2({a}, ef.abs({b}) + 0.5) | ef.hypot({a}, {b} + 0.1) | ef.logaddexp({a}, {b}) | {a} - k
ef.relu({a}) | ef.maximum({a}, {b}) | ef.minimum({a}, 0.3) | ef.clip({a}, -0.5, 0.5)
ef.where({a} > {b}, {a}, {b} * 2.0) | ef.where({a} > 0, {a}, 0.0) | ef.elu({a}) | ef.selu({a})
ef.leaky_relu({a}) | ef.stop_gradient({a}) + {b} | {a} * {w} | {a} + {w} | {a} * {w} + {b} * {u}
ef.log_sigmoid({a}) | ef.softsign({a}) | ef.hard_sigmoid({a}) | ef.mish({a}) | ef.relu6({a} * 4.0)
{a} * $table["scale"] + $table["shift"] | ef.lerp({a}, {b}, 0.25) | ef.copysign({a}, {b} + 0.01)
{a}.astype(H).astype(F) | ({a}.astype(H) * 1.5).astype(F) | ef.reciprocal(ef.abs({a}) + 1.0)
""")

REDUCTIONS = listed("""
ef.sum({a}, axis={x}) * 0.1 | ef.mean({a}, axis={x}) | ef.mean({a}, axis={x}, keepdims=True)
ef.max({a}, axis={x}) | ef.min({a}, axis={x}) | ef.var({a}, axis={x}) | ef.std({a} + 0.5, axis={x})
ef.logsumexp({a}, axis={x}) | ef.sum({a} * {b}, axis={x}) * 0.1 | ef.prod(ef.cos({a}), axis={x})
ef.softmax({a}, axis={x}) | ef.log_softmax({a}, axis={x}) | ef.cumulative_sum({a}, axis={x}) * 0.1
ef.linalg.vector_norm({a} + 0.5, axis={x}) | ef.mean({a}) | ef.sum({a}) * 0.01 | ef.sum({a}, axis={xx}) * 0.1
ef.mean({a}, axis={xx}) | ef.layer_norm({a}) | ef.rms_norm({a}) | ef.max({a}, axis={xx})
ef.sum(ef.softmax({a}, axis={x}), axis={y}) * 0.1 | ef.mean({a} - ef.mean({a}, axis={x}, keepdims=True), axis={y})
ef.sum(ef.square({a}), axis={x}) * 0.1 | ef.mean({a} * {w}, axis={x}) | ef.var({a}, axis={xx})
""")

PAIRS = (
    "{r} = ef.mean({a}, axis={x})\n{s} = ef.mean({a}, axis={y})",
    "{r} = ef.sum({a} * {b}, axis={x}) * 0.1\n{s} = ef.max({a} * {b}, axis={y})",
    "{r} = ef.max({a}, axis={x})\n{s} = ef.sum(ef.tanh({a}), axis={xx}) * 0.1",
    "{s} = ef.softmax({a}, axis={x})\n{r} = ef.sum({s}, axis={y})",
    "{s} = {a} - ef.mean({a}, axis={x}, keepdims=True)\n{r} = ef.sum({s} * {s}, axis={y}) * 0.1",
    "{r} = ef.sum({a}, axis={x}) * 0.1\n{s} = ef.logsumexp({a}, axis={y})",
    "{r} = ef.var({a}, axis={x})\n{s} = ef.min({a}, axis={y})",
)

MOVES = listed("""
ef.reshape({a}, (-1,)) | ef.reshape({a}, ({a}.shape[0], -1)) | {a}.mT | ef.permute_dims({a})
ef.expand_dims({a}, axis=0) | ef.broadcast_to({a}, (2, *{a}.shape)) | ef.flip({a}, axis={x})
ef.roll({a}, 1, axis={x}) | ef.repeat({a}, 2, axis={x}) | ef.concat([{a}, {b}], axis={x})
ef.concat([{a}, {a} * 2.0, {b}], axis={x}) | ef.stack([{a}, {b}]) | ef.unstack({a}, axis={x})[0]
ef.pad({a}, 1) | ef.moveaxis({a}, 0, -1) | {a}[0] | {a}[..., -1] | {a}[::2] | {a}[1:] | {a}[::-1]
{a}[..., ::2] | {a}[..., 1:] | {a}[None] | {a}[[0, -1]] | {a}[..., ::-1] | {a}[:, ::-2]
ef.take({a}, ef.tensor([0, -1, 0]), axis={x}) | {a}.at[0].set(0.5) | {a}.at[..., 0].add({b}[..., 0])
{a}.at[::2].multiply($rate) | {a}.at[ef.tensor([0, 0, -1])].add(0.25) | ef.tril({a})
ef.segment_sum({a}, ef.arange({a}.shape[0]) % 2, 2) | ef.diff({a}, axis={x}) | ef.tile({a}, (2, 1))
ef.gather({a}, i % {a}.shape[0]) | ef.take_along_axis({a}, ef.argsort({a}, axis={x}), axis={x})
ef.sort({a}, axis={x}) | ef.view({a}, "int32").astype(F) * 1e-9 | ef.squeeze({a}[None], axis=0)
ef.split({a}, 1, axis={x})[0] | ef.segment_mean({a}, ef.arange({a}.shape[0]) % 3, 3)
{a}.at[0].max(0.1) | {a}[: max(1, {a}.shape[0] // 2)] | ef.top_k({a}, 1)[0]
""")

PRODUCTS = listed("""
ef.tanh({a} @ {b}) | ef.tanh({a} @ {w}) | ef.tanh({a} @ {b}.mT * 0.3) | ef.tanh({a}.mT @ {b} * 0.3)
ef.einsum("...i,...j->...ij", {a}, {b}) | ef.einsum("ij,kj->ik", {a}, {b}) * 0.1 | ({a} * {b}).sum()
ef.tensordot({a}, {w}, axes=1) * 0.1 | ef.matmul({a}, {b}.mT) * 0.1 | {a} @ {a}.mT * 0.1
ef.pairwise_distance({a}, {b}) | ef.cosine_similarity({a}, {b}) | ef.cdist({a}, {b})
ef.dot_product_attention({a}[None, None], {a}[None, None], {a}[None, None])[0, 0]
ef.dot_product_attention({a}, {a}, {a}, is_causal=True) | ef.max_pool({a}[None, :, :, None], 2)[0]
ef.avg_pool({a}[None, :, :, None], 2)[0, ..., 0] | ef.lp_pool({a}[None, :, :, None], 2, 2)[0]
ef.conv({a}[None, :, :, None], $kernel)[0] | ef.sum(ef.sum(ef.square({a}[..., None] - {a}[..., None, :]), axis=-1), axis=0) * 0.01
""")

CONTROL = listed("""
ef.cond(ef.sum({a}) > -1e6, lambda v: ef.tanh(v) * {w}, lambda v: v * {w}, {a})
ef.cond(ef.mean({w}) > 0, lambda: {a} * 2.0, lambda: {a} - 1.5)
ef.switch(ef.sum(i) % 3, [lambda v: v + 1.0, lambda v: ef.sin(v), lambda v: v * 0.5], {a} * 1.0)
ef.fori_loop(0, 3, lambda j, c: ef.tanh(c * 0.9 + {b}), {a} + {b})
ef.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, ef.sin(c[1]) * $rate), (ef.tensor(0), {a}))[1]
ef.scan(lambda c, r: (ef.tanh(c + r), c * r), {a}[0], {a})[0]
ef.scan(lambda c, r: (c * 0.5 + r, (c, r * 0.3)), {a}[0], {a})[1][1]
ef.scan(lambda c, r: (ef.tanh(c + r * {w}), ef.sum(c)), {a}[0], {a}, reverse=True)[1] * 0.1
ef.map(lambda r: ef.softmax(r) * 2.0, {a}) | ef.vmap(lambda r: ef.tanh(r) * ef.mean(r))({a})
ef.grad(lambda v: ef.sum(ef.tanh(v) * v))({a}) | ef.checkpoint(lambda v: ef.sin(ef.tanh(v)))({a})
ef.checkpoint(lambda v: v * {w} * ef.tanh({w}))({a}) | ef.checkpoint(lambda v: ef.tanh(v * {u}))({a})
ef.jvp(lambda v: ef.sin(v) * v, ({a},), ({a} * 0.5,))[1] | $inner({a}) | $inner({a} * $rate)
ef.grad(lambda v: ef.sum($inner(v)))({a}) | scaled({a}) | ef.grad(lambda v: ef.sum(scaled(v)))({a})
ef.vmap(ef.grad(lambda r: ef.sum(ef.square(r) * r)))({a}) | ef.dropout({a}, 0.3, generator=$keys)
$keys.normal({a}.shape, dtype="float32").astype(F) * 0.1 + {a}
ef.random.uniform({a}.shape, dtype="float32").astype(F) * 0.1 + {a}
""")

SCALED = (
    "@ef.custom_gradient\ndef scaled(v):\n"
    "    return ef.sin(v) * 0.5, lambda g: g * ef.cos(v) * 0.5",
    "@ef.custom_gradient\ndef scaled(v):\n    y = ef.exp(ef.tanh(v))\n"
    "    return y, lambda g: g * y * (1 - ef.tanh(v) ** 2)",
)
INNER = ("ef.tanh(v) * 0.5", "v * $w0.value.reshape(-1)[0]", "ef.softplus(v) * $rate")
"""Results of the captured function ``inner``."""

STATEMENTS = (ELEMENTWISE, REDUCTIONS, PAIRS, MOVES, PRODUCTS, CONTROL)
WEIGHTS = (
    (6, 3, 2, 3, 2, 2),
    (2, 5, 5, 2, 1, 1),
    (4, 2, 1, 2, 1, 4),
    (10, 2, 1, 1, 0, 0),
    (2, 1, 1, 6, 1, 1),
)
"""Relative frequencies of the kinds of statements, in one program each."""

RESULTS = listed("""
x | x[1:] | x.mT | x.reshape(-1) | $w0.value | $w0.value[0] | $w0.value.reshape(-1) | $w0 * 1.0 | i
$count.value | ef.view(x, 'uint8') | ef.view($w0, 'uint8') | ef.view(v0, 'uint8') | $w0.value.T
""")

INTEGERS = listed("""
ef.sum(i, axis={j}) | ef.max(i, axis={j}) | ef.cumulative_sum(i, axis={j}) | i + i | i * 3 - 1
ef.bitwise_count(i) | i // 3 | i % 5 | ef.flip(i, axis=0) | ef.concat([i, i], axis=0) | i < k | i >= k
i + k | i * k | i - k | ef.where(i > 2, i, 0) | ef.mean(i.astype(F), axis={j}) | ef.sort(i, axis={j})
ef.argmax(i, axis={j}) | i.astype("int64") ** 2 | ef.bitwise_xor(i, i + 1) | ef.one_hot(i % 4, 4)
ef.unique_counts(i)[1] | ef.prod(i % 3 + 1, axis={j}) | ef.any(i > 3, axis={j}) | ef.abs(i)
ef.left_shift(i, 1) | ef.sum(i > 2, axis={j}) | ef.mean(i, axis={j}) | i // k | i == k | i / 7
ef.pairwise_distance(i, ef.flip(i, axis=0)) | ef.var(i.astype(F)) | ef.minimum(i, k) | i & 7
ef.triplet_margin_loss(i, ef.flip(i, axis=0), i) | ef.lp_pool(i.reshape(1, -1, 1), 2, 2)
ef.sobel_edges(i.reshape(1, i.shape[0], -1, 1)) | k * i | i.T | ef.diff(i)
ef.clip(i, 3, 50) | ef.maximum(i, k) | i | -i | ~i | ef.sign(i) | ef.square(i) | ef.sqrt(ef.abs(i))
ef.avg_pool(i.reshape(1, -1, 1), 2) | ef.max_pool(i.reshape(1, -1, 1), 2) | ef.cdist(i, i) | k - i
ef.cosine_similarity(i, ef.flip(i, axis=0)) | ef.hypot(i, i) | ef.std(i) | ef.gcd(i, i + 1) | i % k
ef.cumulative_prod(i % 3 + 1, axis=-1) | ef.where(i > k, k, i) | i != k | ef.median(i) | k // 3 * i
ef.quantile(i, 0.5) | ef.tensordot(i, i.T, axes=1) | ef.round(i) | k % 5 + i | ef.full((2,), k)
ef.searchsorted(ef.sort(i.reshape(-1)), 3) | ef.view(i, "uint8") | ef.astype(i, "float64") * 0.5
""")
"""Expressions of the argument ``i`` and the Python number ``k``."""

LOSSES = (
    "ef.mean(ef.square({a}))",
    "ef.sum({a} * {w}) * 0.01",
    "ef.mean(ef.square({a} - {b}))",
    "ef.mean(ef.abs({a} * {w} - 0.3))",
    "-ef.mean(ef.log_softmax({a} * {w}, axis=-1)[..., 0])",
    "ef.mean(ef.logsumexp({a} + {w}, axis={x}))",
    "ef.mean(ef.max({a} * {w}, axis={x}))",
    "ef.nn.losses.mean_squared_error(ef.tanh({a}), {a} * {w}).mean()",
    "ef.mean({a} * {w} * {w})",
)

UPDATES = listed("""
{w}.assign(ef.tanh({w} + {m} * 0.1)) | {w}.assign_add({w} * 0.01) | {w}.assign_sub(0.05 * ef.tanh({w}))
{w}.assign({w}.at[0].add(0.125)) | {w}.assign({w} * 0.9 + 0.05) | {w}.assign({w}.value.at[::2].multiply(0.5))
{w}.assign(ef.flip({w}, axis=0)) | $count.assign_add(1) | {w}.assign(ef.where({w} > 0, {w} * 0.9, {w} + 0.1))
{w}.assign_add({w}[::-1] * 0.05) | {w}.assign(ef.sort({w}, axis=-1)) | $count.assign($count * 2 + ef.sum(i).astype("int64") % 3)
{w}.assign(ef.roll({w}, 1, axis=0)) | {w}.assign(ef.clip({w} + {m}, -1, 1)) | {w}.assign({w} * 2.0 % 1.0)
ef.cond({m} > -1e6, lambda: {w}.assign_add(0.05).value, lambda: {w} * 1.0)
ef.fori_loop(0, 2, lambda j, c: ({w}.assign(ef.cos({w} + c)), c * 0.5)[1], ef.zeros((), dtype=F))
""")

PAIRED_UPDATES = (
    "{w}.assign({u} * 0.5 + 0.1)",
    "{w}.assign({u})",
    "{w}.assign({u} * 2.0 % 1.0)\n{u}.assign({w} * 3.0 % 1.0)",
    "a, b = {w}.value, {u}.value\n{w}.assign(b)\n{u}.assign(a)",
    "{w}.assign_add({u} * 0.1)\n{u}.assign_sub({w} * 0.1)",
)
"""Updates of two Variables of one shape."""

OPTIMIZERS = (
    "SGD(0.05)",
    "SGD(0.05, momentum=0.9)",
    "SGD(0.05, momentum=0.9, nesterov=True)",
    "Adam(1e-2)",
    "Adam(1e-2, amsgrad=True)",
    "AdamW(1e-2)",
    "Adamax(1e-2)",
    "Nadam(1e-2)",
    "ScheduleFreeAdamW(1e-2)",
    "Adadelta(0.5)",
    "Adagrad(0.05)",
    "Ftrl(0.05)",
    "RMSprop(1e-2)",
    "RMSprop(1e-2, momentum=0.9, centered=True)",
    "Lion(1e-3)",
    "Adafactor(1e-2)",
    "Lamb(1e-2)",
    "Adam(1e-2, clipnorm=1.0)",
    "Adam(1e-2, ema_momentum=0.9, use_ema=True)",
    "SGD(ef.nn.schedules.ExponentialDecay(0.05, 3, 0.9))",
    "Muon(1e-2)",
    "Muon(1e-2, weight_decay=0.1, nesterov=False)",
    "LossScaleOptimizer(ef.nn.optimizers.SGD(0.05), initial_scale=16.0, dynamic_growth_steps=3)",
    "LossScaleOptimizer(ef.nn.optimizers.Adam(1e-2), initial_scale=16.0, dynamic_growth_steps=2)",
)

LAYERS = (
    "ef.nn.Sequential([ef.nn.Masking(), ef.nn.LSTM({d}, dtype=F)])",
    "ef.nn.Sequential([ef.nn.Dense({d}, dtype=F), ef.nn.BatchNormalization(dtype=F)])",
    "ef.nn.Sequential([ef.nn.Dense({d}, activation='tanh', dtype=F), ef.nn.Dense(2, dtype=F)])",
    "ef.nn.Dense({d}, dtype=F)",
    "ef.nn.Dense({d}, activation='relu', dtype=F)",
    "ef.nn.LayerNormalization(dtype=F)",
    "ef.nn.LayerNormalization(axis=1, dtype=F)",
    "ef.nn.RMSNormalization(dtype=F)",
    "ef.nn.BatchNormalization(dtype=F)",
    "ef.nn.GroupNormalization(1, dtype=F)",
    "ef.nn.PReLU(dtype=F)",
    "ef.nn.LSTM({d}, dtype=F)",
    "ef.nn.GRU({d}, return_sequences=True, dtype=F)",
    "ef.nn.SimpleRNN({d}, dtype=F)",
    "ef.nn.Conv1D({d}, 3, padding='same', dtype=F)",
    "ef.nn.MultiHeadAttention(2, {d}, dtype=F)",
    "ef.nn.Sequential([ef.nn.Dense({d}, dtype=F), ef.nn.LayerNormalization(dtype=F), ef.nn.Dense(3, dtype=F)])",
)

# Actions between two steps. Values that an action binds to a name must not change from then on.
READS = available(
    listed("""
h{n} = {w}.numpy() | h{n} = {w}.value | h{n} = {w}.current | h{n} = np.from_dlpack({w}.value)
h{n} = torch.from_dlpack({w}.value * 1.0) | h{n} = memoryview({w}.numpy()) | h{n} = copy.copy({w}.value)
h{n} = copy.deepcopy({w}.value) | h{n} = np.asarray({w}) | h{n} = {w}.value[1:] | h{n} = {w}[0]
h{n} = {w}.value.reshape(-1) | h{n} = {w}.numpy()[::2] | h{n} = {w}.value.T | h{n} = [*{w}.value][0]
h{n} = ef.asarray({w}) | h{n} = {w} * 1.0 | h{n} = ef.stop_gradient({w}.value) | h{n} = ({w}.value, 1)
h{n} = np.asarray({w}.value)[..., ::-1] | h{n} = {w}.numpy().reshape(-1).view() | h{n} = {w}.astype(F)
h{n} = ef.reshape({w}, (-1,)) | h{n} = ef.from_dlpack({w}.value)
str({w}) | float(ef.sum({w})) | {w}.numpy().sum() | gc.collect() | h{n} = [{w}.value, {u}.value]
h{n} = ef.expand_dims({w}.value, axis=0) | h{n} = ef.broadcast_to({w}.value, (2, *{w}.shape))
h{n} = ef.real({w}.value) | h{n} = ef.stack([{w}, {w}])[0] | h{n} = iter({w}.value)
""")
)

COPIES = listed("""
c{n} = copy.deepcopy({w}) | c{n} = copy.copy({w}.value) | c{n} = ef.Variable({w}) | c{n} = ef.Variable({w}.value)
c{n} = pickle.loads(pickle.dumps({w}, 5)) | c{n} = ef.Variable({w}.numpy()) | c{n} = ef.Variable({w}.current)
c{n} = copy.copy({w}) | c{n} = ef.Variable(np.asarray({w})) | c{n} = ef.Variable(h{n} := {w}.numpy())
c{n} = ef.Variable({w}); c{n}.assign_add(c{n} * 0.5) | c{n} = ef.Variable({w}); {w}.assign(c{n})
c{n} = ef.Variable({w} * 0.5); {w}.assign(c{n}.value) | c{n} = copy.deepcopy([{w}, {u}])
""")

FOREIGN = available(
    (
        "f{n} = torch.linspace(-1, 2, {w}.size, dtype=torch.float64).to(TORCH).reshape({w}.shape)\n"
        "{w}.assign(ef.from_dlpack(f{n}))",
        "f{n} = torch.linspace(-1, 2, {w}.size, dtype=torch.float64).to(TORCH).reshape({w}.shape)\n"
        "{w}.assign(f{n})",
        "f{n} = mapped({w}.numpy())\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = mapped({w}.numpy() * 0.5)\n{w}.assign(f{n})",
        "f{n} = bytearray({w}.numpy().tobytes())\n"
        "{w}.assign(ef.asarray(np.frombuffer(f{n}, {w}.dtype).reshape({w}.shape)))",
        "f{n} = in_shared_memory({w}.numpy())\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = in_ctypes({w}.numpy())\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = {w}.numpy().copy()\nf{n}.flags.writeable = False\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = {w}.numpy().copy()\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = {w}.numpy().copy()\n{w}.assign(f{n})",
        "f{n} = {w}.numpy() * 0.75\nc{n} = ef.Variable(ef.asarray(f{n}))\n{w}.assign(c{n})",
        "f{n} = unpickled_twice({w}.numpy())\n{w}.assign(ef.asarray(f{n}[0]))",
        "f{n} = unpickled_twice({w}.value)\n{w}.assign(f{n}[0])",
        "f{n} = {w}.numpy().astype({w}.dtype.newbyteorder())\n{w}.assign(f{n})",
        "f{n} = {w}.numpy()[::-1]\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = np.asfortranarray({w}.numpy() * 0.5)\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = np.stack([{w}.numpy()] * 2, axis=-1)[..., 1]\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = np.broadcast_to({w}.numpy().reshape(-1)[0], {w}.shape)\n{w}.assign(ef.asarray(f{n}))",
        "f{n} = {w}.numpy().copy()\n{w}.assign(ef.asarray(f{n}).at[0].add(0.5))",
        "f{n} = mapped({w}.numpy())\n{w}.assign(ef.asarray(f{n}).at[0].set(0.5))",
        "f{n} = torch.ones({w}.shape, dtype=TORCH)\n{w}.assign(ef.from_dlpack(f{n}).at[0].add(0.5))",
        "f{n} = ef.asarray(bytearray_array({w}.numpy()))\nh{n} = f{n}.at[0].set(0.25)\n{w}.assign(f{n})",
    )
)

SHARES = (
    "{w}.assign({u})",
    "{w}.assign({u}.value)",
    "a, b = {w}.value, {u}.value\n{w}.assign(b)\n{u}.assign(a)",
    "{w}.assign({u}); {u}.assign({w})",
    "{w}.assign({w})",
    "{w}.assign({w}.value)",
    "{w}.assign({w}.numpy())",
    "h{n} = {w}.value\n{w}.assign({w} * 0.5)\n{w}.assign(h{n})",
    "h{n} = {w}.value\n{w}.assign(h{n})\n{u}.assign(h{n})",
    "{w}.assign(ef.flip({u}, axis=0))",
    "{w}.assign({u}.value.reshape({w}.shape))",
)

CALLS = (
    "{r} = in_thread({f}, {args})",
    "{r} = beside_a_reader(lambda: {w}.value, {f}, {args})",
    "{r} = beside_a_reader(lambda: {w}.numpy(), {f}, {args})",
    "{r} = beside_a_reader(lambda: copy.deepcopy({w}).value, {f}, {args})",
    "{r} = with_signals(lambda: {w}.value, {f}, {args})",
    "{r} = with_signals(lambda: {w}.numpy(), {f}, {args})",
    "{r} = with_signals(lambda: $spare.assign($spare.value * 1.0).value, {f}, {args})",
    "{r} = with_signals(lambda: $spare.assign($w0.value).value, {f}, {args}); $spare.assign($w0)",
    "gc.collect()\n{r} = {f}({args})",
    "{r} = {f}({args})\n{r} = {f}({args})",
    "h{n} = {w}.numpy()\n{r} = {f}({args})\nh{n} = {w}.numpy()\n{r} = {f}({args})",
)

ARGUMENTS = available(
    (
        "x{n} = x0[: max(1, len(x0) // 2)]",
        "x{n} = np.asfortranarray(x0)",
        "x{n} = x0[::-1]",
        "x{n} = np.concatenate([x0, x0])",
        "x{n} = x0.astype(x0.dtype.newbyteorder())",
        "x{n} = ef.asarray(x0)",
        "x{n} = ef.tensor(x0)",
        "x{n} = np.stack([x0, x0], axis=-1)[..., 0]",
        "x{n} = x0.copy(); x{n}.flags.writeable = False",
        "x{n} = torch.from_numpy(x0.copy()) if F.startswith('float') else x0",
        "x{n} = mapped(x0)",
        "x{n} = x0.astype('float64')",
        "x{n} = x0[:0]",
        "x{n} = ef.asarray(x0)[::-1]",
        "x{n} = ef.asarray(x0).mT.mT",
    )
)

SETTINGS = (
    "ef.random.seed({n})",
    "$rate = {p}",
    "$table['scale'] = {p}",
    "$table = {{'scale': {p}, 'shift': 0.1}}",
    "gc.collect()",
    "$spare.assign($w0)",
    "$spare.assign($w0 * 0.5)",
    "$w0.assign($spare)",
)

INVALID = (
    "$step(x0, i0)",
    "$step('text', i0, 2)",
    "$step(x0, 'text', 2)",
    "$step(object(), i0, 2)",
    "$step(x0.astype('complex64'), i0, 2)",
    "$step(np.zeros((3, 3, 3, 3, 3), F), i0, 2)",
    "$step(x0[:0], i0, 2)",
    "$step(x0, i0 / 2, None)",
    "{w}.assign(np.zeros((9, 9, 9)))",
    "{w}.assign('text')",
    "{w}.assign(1j)",
    "{w}.assign_add(np.zeros((9, 9, 9)))",
    "ef.function(lambda v: v.at[10**9].set(1.0))({w}.value.reshape(-1))",
)
"""Statements most of which raise, and then change nothing."""

TAPES = (
    "with ef.GradientTape() as t{n}:\n    h{n} = ef.sum($inner({w}))\n"
    "g{n} = t{n}.gradient(h{n}, [{w}], unconnected='zero')",
    "with ef.GradientTape(persistent=True) as t{n}:\n    h{n} = $inner($inner({w}) * {w})\n"
    "g{n} = t{n}.gradient(h{n}, {w})\nk{n} = t{n}.gradient(h{n}, [$w0, {w}], unconnected='zero')",
    "h{n} = ef.grad(lambda v: ef.sum($inner(v) * v))({w}.value)",
    "h{n} = ef.jvp($inner, ({w}.value,), ({w}.value * 0.5,))[1]",
    "h{n} = ef.vmap($inner)(ef.stack([{w}, {w} * 0.5]))",
    "h{n} = ef.grad(lambda v: ef.sum(ef.grad(lambda s: ef.sum($inner(s)))(v)))({w}.value)",
)
"""Transforms of a captured function."""

OPTIMIZATION = (
    "{w}.trainable = not {w}.trainable",
    "ef.nn.optimizers.LBFGS(max_iterations=2).minimize(lambda: ef.mean(ef.square({w} - 0.25)))",
    "ef.nn.optimizers.LBFGS(max_iterations=2).minimize(\n"
    "    nested(lambda: ef.mean(ef.square(ef.tanh({w}) - 0.25))))",
    "with ef.GradientTape() as t{n}:\n    h{n} = ef.mean(ef.square({w}) * {w})\n"
    "{w}.assign_sub(t{n}.gradient(h{n}, {w}) * 0.1)",
)

FILES = (
    "k{n} = checkpointed($layer0)\nr = $step(x0, i0, 2)\nk{n}.restore($layer0)",
    "k{n} = checkpointed($layer0, wait=False)\nr = $step(x0, i0, 2)\nk{n}.restore($layer0)",
    "k{n} = weights_file($layer0)\nr = $step(x1, i0, 2)\n$layer0.load_weights(k{n})",
    "$layer0.trainable = not $layer0.trainable",
)
"""Checkpoints and files of the model of a program."""

ACTIONS = {
    "read": READS,
    "copy": COPIES,
    "foreign": FOREIGN,
    "share": SHARES,
    "call": READS,  # and calls of the functions by CALLS
    "argument": ARGUMENTS,
    "setting": SETTINGS,
    "twin": ("",),  # a call of a copy of the program's object
    "invalid": INVALID,
    "special": OPTIMIZATION,  # and TAPES and FILES
}
