"""``keras.random`` on eagerflow: numbers determined by Keras's seeds.

A seed of Keras is a tensor of two words; its generators increment the second. The words are the key
of one of our generators (``ef.random``), which is used once. So a captured function that reads a
seed from a variable draws new numbers on each call.
"""

from keras.src.backend.config import floatx
from keras.src.random.seed_generator import SeedGenerator, draw_seed, make_default_seed

import eagerflow as ef
from eagerflow.keras.backend.operands import floating
from eagerflow.keras.backend.tensors import cast, convert_to_tensor

__all__ = [
    "SeedGenerator",
    "beta",
    "binomial",
    "categorical",
    "draw_seed",
    "dropout",
    "gamma",
    "make_default_seed",
    "normal",
    "randint",
    "shuffle",
    "truncated_normal",
    "uniform",
]


def _generator(seed):
    """A generator with a state made of the words of the seed."""
    words = cast(seed if isinstance(seed, ef.Tensor) else draw_seed(seed), "uint64")
    return ef.random.Generator(ef.pad(words, [(0, 1)]))


def _moved(numbers, offset, scale, dtype):
    """``numbers * scale + offset``, in the requested dtype."""
    if isinstance(offset, int | float) and isinstance(scale, int | float):
        return ef.add(ef.multiply(numbers, scale), offset)
    moved = ef.multiply(numbers, convert_to_tensor(scale, dtype))
    return ef.add(moved, convert_to_tensor(offset, dtype))


def normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
    dtype = dtype or floatx()
    return _moved(_generator(seed).normal(shape, dtype=dtype), mean, stddev, dtype)


def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
    dtype = dtype or floatx()
    return _moved(_generator(seed).truncated_normal(shape, dtype=dtype), mean, stddev, dtype)


def uniform(shape, minval=0.0, maxval=1.0, dtype=None, seed=None):
    dtype = dtype or floatx()
    width = maxval - minval
    return _moved(_generator(seed).uniform(shape, dtype=dtype), minval, width, dtype)


def randint(shape, minval, maxval, dtype="int32", seed=None):
    generator = _generator(seed)
    if isinstance(minval, int) and isinstance(maxval, int):
        return generator.integers(minval, maxval, shape, dtype=dtype)
    low, high = convert_to_tensor(minval, "float64"), convert_to_tensor(maxval, "float64")
    share = generator.uniform(shape, dtype="float64")
    return cast(ef.floor(ef.add(low, ef.multiply(ef.subtract(high, low), share))), dtype)


def categorical(logits, num_samples, dtype="int32", seed=None):
    return cast(_generator(seed).categorical(floating(logits), num_samples), dtype)


def dropout(inputs, rate, noise_shape=None, seed=None):
    inputs = convert_to_tensor(inputs)
    if rate == 0.0:
        return inputs
    if rate == 1.0:
        return ef.zeros_like(inputs)
    if noise_shape is not None:
        pairs = zip(noise_shape, inputs.shape, strict=True)
        noise_shape = tuple(own if n is None else n for n, own in pairs)
    return ef.dropout(inputs, rate, noise_shape=noise_shape, generator=_generator(seed))


def shuffle(x, axis=0, seed=None):
    return _generator(seed).permutation(convert_to_tensor(x), axis)


def gamma(shape, alpha, dtype=None, seed=None):
    dtype = dtype or floatx()
    return _generator(seed).gamma(convert_to_tensor(alpha, dtype), tuple(shape), dtype=dtype)


def binomial(shape, counts, probabilities, dtype=None, seed=None):
    counts, probabilities = cast(counts, "float32"), cast(probabilities, "float32")
    return cast(_generator(seed).binomial(counts, probabilities, tuple(shape)), dtype or floatx())


def beta(shape, alpha, beta, dtype=None, seed=None):
    dtype = dtype or floatx()
    return _generator(seed).beta(cast(alpha, dtype), cast(beta, dtype), tuple(shape), dtype=dtype)
