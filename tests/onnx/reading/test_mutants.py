"""Mutants of good files: a graph or a typed error, never anything else, and never for long."""

import time

import numpy as np
import pytest

import eagerflow as ef
from tests.onnx.reading.models import onnx, parsed
from tests.onnx.reading.test_control_flow import IF, LOOP, SCAN
from tests.onnx.reading.test_importing import FUNCTION, RESHAPE, mlp

SECONDS = 20  # the longest that a file of a kilobyte may take, on a slow machine


def seeds():
    """Good files of many kinds, as bytes."""
    rng = np.random.default_rng(0)
    texts = [
        IF,
        LOOP.format(count=3),
        LOOP.format(count=40),
        SCAN.format(how=""),
        FUNCTION,
        RESHAPE,
    ]
    return [m.SerializeToString() for m in (mlp(rng), *map(parsed, texts))]


def of_bytes(rng, data):
    """A file with a few bytes changed, left out, repeated or put elsewhere."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, size = rng.integers(len(data)), rng.integers(1, 9)
        kind = rng.integers(5)
        if kind == 0:
            data[at] = rng.integers(256)
        elif kind == 1:
            data[at] ^= 1 << rng.integers(8)
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = data[at : at + size]
        else:
            data[at : at + size] = data[-size:]
        if not data:
            return b""
    return bytes(data)


def fields(message):
    """All fields of a message and of those within that hold plain values."""
    for descriptor, value in message.ListFields():
        is_list = not isinstance(value, str | bytes | int | float) and hasattr(value, "__len__")
        parts = list(value) if is_list else [value]
        if descriptor.message_type is not None:
            for part in parts:
                yield from fields(part)
            if is_list and parts:
                yield message, descriptor, value
        else:
            yield message, descriptor, value


NUMBERS = (0, 1, -1, 2, 3, 7, 100, 2**31 - 1, -(2**31), 2**62)


def of_fields(rng, data):
    """A file that is well formed, with other numbers and names, and parts twice or missing."""
    model = onnx.ModelProto()
    model.ParseFromString(data)
    for _ in range(rng.integers(1, 4)):
        found = list(fields(model))
        message, descriptor, value = found[rng.integers(len(found))]
        try:
            _change(rng, found, message, descriptor, value)
        except (ValueError, TypeError):  # a number that the field does not hold
            continue
    return model.SerializeToString()


def _change(rng, found, message, descriptor, value):
    if hasattr(value, "append") or hasattr(value, "add"):
        at = rng.integers(len(value))
        if rng.integers(2):
            del value[at]
        elif descriptor.message_type is not None:
            value.add().CopyFrom(value[at])
        else:
            value[at] = _other(rng, found, value[at])
    else:
        setattr(message, descriptor.name, _other(rng, found, value))


def _other(rng, found, value):
    if isinstance(value, bool | int):
        return NUMBERS[rng.integers(len(NUMBERS))]
    if isinstance(value, float):
        return (0.0, -1.0, float("nan"), float("inf"), 1e38)[rng.integers(5)]
    if isinstance(value, bytes):
        return value[: rng.integers(len(value) + 1)]
    texts = [v for _, _, v in found if isinstance(v, str)]
    return texts[rng.integers(len(texts))]


def attempt(data):
    """Import a file; anything but a graph and a typed error fails."""
    begin = time.perf_counter()
    try:
        ef.capture.import_onnx(data)
    except ef.errors.EagerflowError as error:
        assert isinstance(error, ef.errors.FileFormatError | ef.errors.ArgumentError), repr(error)
        done = False
    else:
        done = True
    assert time.perf_counter() - begin < SECONDS
    return done


def run(mutate, count):
    files, done = seeds(), 0
    for i in range(count):
        data = mutate(np.random.default_rng([count, i]), files[i % len(files)])
        try:
            done += attempt(data)
        except Exception as error:
            raise AssertionError(f"{mutate.__name__}, number {i} of {count}") from error
    assert 0 < done < count  # some are still good, most are not
    return done


@pytest.mark.sampled(10)
@pytest.mark.parametrize("mutate", [of_bytes, of_fields])
@pytest.mark.parametrize("part", range(4))
def test_mutants(mutate, part):
    run(mutate, 700 + part)


@pytest.mark.soak
@pytest.mark.parametrize("mutate", [of_bytes, of_fields])
def test_many_mutants(mutate):
    run(mutate, 100_000)
