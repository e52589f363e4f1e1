"""What NumPy, PyTorch, JAX and TensorFlow call our functions: a table recorded from the libraries.

    PYTHONPATH=.:docs python docs/site_pages/names.py

writes ``names.txt`` again for the libraries that are installed here, and keeps the lines of others.
A function has its own name there, or one that ``eagerflow/ops/other_names.py`` answers with it.
What means something else under a name that fits stands in ``UNLIKE``.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from eagerflow.ops import other_names
from tests.structure.public import public_modules, public_values

RECORD = Path(__file__).with_name("names.txt")

# Where each library keeps its functions, the best known place first; by our module or folder.
PLACES = {
    "numpy": {
        "": "numpy",
        "linear_algebra": "numpy numpy.linalg",
        "reductions": "numpy numpy.linalg",
        "linalg": "numpy.linalg",
        "fft": "numpy.fft",
        "random": "numpy.random",
    },
    "torch": {
        "": "torch torch.special torch.nn.functional",
        "nn": "torch.nn.functional torch",
        "images": "torch.nn.functional",
        "linear_algebra": "torch.linalg torch",
        "reductions": "torch torch.linalg",
        "linalg": "torch.linalg torch",
        "fft": "torch.fft",
        "signal": "torch torch.signal.windows",
    },
    "jax": {
        "": "jax.numpy jax.nn jax.scipy.special jax.lax jax",
        "indexing": "jax.numpy jax.lax jax.ops",
        "reductions": "jax.numpy jax.numpy.linalg jax.nn jax.lax",
        "nn": "jax.nn jax.lax",
        "images": "jax.nn jax.image jax.scipy.ndimage",
        "linear_algebra": "jax.numpy jax.numpy.linalg jax.scipy.linalg",
        "linalg": "jax.numpy.linalg jax.scipy.linalg jax.lax.linalg",
        "fft": "jax.numpy.fft",
        "signal": "jax.numpy jax.scipy.signal",
        "random": "jax.random",
    },
    "tensorflow": {
        "": "tensorflow tensorflow.math tensorflow.nn tensorflow.bitwise",
        "shapes": "tensorflow tensorflow.linalg",
        "nn": "tensorflow.nn",
        "images": "tensorflow.image tensorflow.nn",
        "linear_algebra": "tensorflow.linalg tensorflow",
        "linalg": "tensorflow.linalg",
        "fft": "tensorflow.signal",
        "signal": "tensorflow.signal",
        "random": "tensorflow.random",
    },
}
_WRITTEN = {"numpy": "np", "jax.numpy": "jnp", "tensorflow": "tf"}

# Ours, and a function of others that fits by its name and does something else.
UNLIKE = frozenset(
    tuple(line.split())
    for line in """
    any tf.math.in_top_k
    any tf.nn.in_top_k
    dequantize torch.dequantize
    equal torch.equal
    gather torch.gather
    gru torch.gru
    isdtype torch.is_complex
    isdtype torch.is_floating_point
    isdtype torch.is_signed
    isdtype torch.isreal
    lstm torch.lstm
    mean tf.nn.moments
    polar jax.scipy.linalg.polar
    random.categorical np.random.multinomial
    random.multinomial torch.multinomial
    random.seed torch.seed
    random.split torch.split
    random.student_t torch.t
    resize np.resize
    resize torch.nn.functional.upsample
    resize torch.nn.functional.upsample_bilinear
    resize torch.nn.functional.upsample_nearest
    scatter torch.scatter
    segment_sum torch.segment_reduce
    select torch.select
    simple_rnn torch.rnn_relu
    simple_rnn torch.rnn_tanh
    split torch.split
    take torch.take
    """.strip().splitlines()
)


def functions() -> Iterator[tuple[str, str]]:
    """(name without "ef.", folder of ops) of all ops and functions of them."""
    for module, name, value in public_values(public_modules()):
        source = getattr(value, "__module__", "")
        if source.startswith("eagerflow.ops.") and not isinstance(value, type) and name[0] != "_":
            place = module.removeprefix("eagerflow").removeprefix(".ops").removeprefix(".")
            yield f"{place}.{name}".removeprefix("."), source.split(".")[2]


@cache
def _answers() -> dict[str, list[str]]:
    """Our name to those of others that are answered with a call of it."""
    found: dict[str, list[str]] = {}
    for where in ("eagerflow", "eagerflow.ops.linalg", "eagerflow.ops.random"):
        for name, answer in other_names.table(where).items():
            if ours := re.match(r"ef\.([\w.]+)\(", answer):
                found.setdefault(ours[1], []).append(name)
    return found


def _written(path: str) -> str:
    """A path as users of the library write it: ``np.sin``."""
    for long, short in _WRITTEN.items():
        if path.startswith(f"{long}."):
            return short + path.removeprefix(long)
    return path


def in_library(library: str, ours: str, folder: str) -> str | None:
    """What an installed library calls our function, as its users write it; None if it has none."""
    places = PLACES[library]
    home, _, name = ours.rpartition(".")
    for candidate in (name, *_answers().get(ours, ())):
        for path in places.get(home or folder, places[""]).split():
            found = getattr(importlib.import_module(path), candidate, None)
            told = _written(f"{path}.{candidate}")
            if callable(found) and not isinstance(found, type) and (ours, told) not in UNLIKE:
                return told
    return None


@cache
def recorded() -> dict[str, dict[str, str]]:
    """Our name to the names of others, by library."""
    found: dict[str, dict[str, str]] = {}
    for line in RECORD.read_text().splitlines():
        if line and not line.startswith("#"):
            ours, _, theirs = line.partition(": ")
            found[ours] = {library_of(name): name for name in theirs.split()}
    return found


def library_of(name: str) -> str:
    """The library of a name as its users write it."""
    first = name.partition(".")[0]
    long = next((long for long, short in _WRITTEN.items() if short == first), first)
    return long.partition(".")[0]


def record() -> str:
    """The whole table: anew for what is installed, as it was for the others."""
    before = recorded() if RECORD.exists() else {}
    installed = [lib for lib in PLACES if importlib.util.find_spec(lib)]
    lines = [
        f"# What others call our functions, for {', '.join(PLACES)}; see names.py, which writes it."
    ]
    for ours, folder in sorted(functions()):
        theirs = {
            library: in_library(library, ours, folder)
            if library in installed
            else before.get(ours, {}).get(library)
            for library in PLACES
        }
        if any(theirs.values()):
            lines.append(f"{ours}: {' '.join(filter(None, theirs.values()))}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    RECORD.write_text(record())
