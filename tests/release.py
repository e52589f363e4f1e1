"""Builds the release and uses it as a user would: ``python -m tests.release``.

Wheel and sdist are built and their metadata checked; the wheel is installed in a new environment,
where README's examples run, and a typed program passes mypy and pyright, a wrong one does not.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv

import eagerflow as ef

ROOT = pathlib.Path(__file__).parents[1]
TOOLS = ["build", "twine", "mypy>=2.4,<2.5", "basedpyright"]
TYPED = """
from typing import Any

import numpy as np
from typing_extensions import assert_type

import eagerflow as ef

x = ef.tensor([1.0, 2.0])
v = ef.Variable(np.ones(2, "float32"))

# Tensors and Variables
assert_type(x + 1, ef.Tensor)
assert_type(1 - v, ef.Tensor)
assert_type(v * x, ef.Tensor)
assert_type(x @ v, ef.Tensor)
assert_type(-(abs(v) ** 2 // 1 % 3), ef.Tensor)
assert_type(x + np.ones(2), ef.Tensor)
assert_type(x == 1, ef.Tensor)
assert_type(v < x, ef.Tensor)
assert_type(x[0], ef.Tensor)
assert_type(v[..., None], ef.Tensor)
assert_type(x.at[0].set(1.0), ef.Tensor)
assert_type(v.at[0].add(1.0), ef.Tensor)
assert_type(x.T, ef.Tensor)
assert_type(x.sum(axis=0, keepdims=True), ef.Tensor)
assert_type(v.mean(0), ef.Tensor)
assert_type(x.reshape(2, 1).transpose().astype(ef.float64), ef.Tensor)
assert_type(x.shape, tuple[int, ...])
assert_type(v.shape, tuple[int, ...])
assert_type(x.ndim + v.size, int)
assert_type(v.device, ef.Device)
assert_type(float(x[0]), float)
assert_type(bool(v[0] > 0), bool)
assert_type(len(v), int)
assert_type(list(x), list[ef.Tensor])
assert_type(v.value, ef.Tensor)
assert_type(v.assign(x).assign_add(x), ef.Variable)
x += 1
assert_type(x, ef.Tensor)
y: np.ndarray[Any, Any] = x.numpy() + v.numpy()

# Ops, and functions over them
assert_type(ef.sin(x), ef.Tensor)
assert_type(ef.where(x > 0, x, 0.0), ef.Tensor)
assert_type(ef.sum(x, 0), ef.Tensor)
assert_type(ef.concat([x, x], axis=0), ef.Tensor)
assert_type(ef.split(x, 2), tuple[ef.Tensor, ...])
assert_type(ef.top_k(x, 1), tuple[ef.Tensor, ef.Tensor])
assert_type(ef.einsum("i,i->", x, x), ef.Tensor)
assert_type(ef.median(x), ef.Tensor)
assert_type(ef.conv(ef.ones((1, 4, 1)), ef.ones((2, 1, 1)), padding="valid"), ef.Tensor)
assert_type(ef.cross_entropy(ef.ones((1, 2)), ef.zeros((1,), "int64")), ef.Tensor)
assert_type(ef.zeros((2, 3), dtype=ef.float32), ef.Tensor)
assert_type(ef.linalg.svd(ef.ones((2, 2))).S, ef.Tensor)
assert_type(ef.linalg.inv(ef.eye(2)), ef.Tensor)
assert_type(ef.fft.fft(x), ef.Tensor)
assert_type(ef.fft.fftn(x), ef.Tensor)
assert_type(ef.signal.hann(8), ef.Tensor)
assert_type(ef.random.normal((2,)), ef.Tensor)
assert_type(ef.random.gamma(x), ef.Tensor)
assert_type(ef.random.Generator(0).beta(1.0, 2.0), ef.Tensor)
with ef.device("cpu:0"):
    assert_type(ef.random.split(), ef.random.Generator)


# Gradients
def energy(x: ef.Tensor, scale: float = 1.0) -> ef.Tensor:
    return (x * scale).sum()


@ef.custom_gradient
def clipped(x: ef.Tensor) -> tuple[ef.Tensor, Any]:
    return x, lambda g: ef.clip(g, -1.0, 1.0)


with ef.GradientTape() as tape:
    tape.watch(x)
    z = energy(x, 2.0)
    assert_type(z, ef.Tensor)
tape.gradient(z, [x])
ef.grad(energy)(x, scale=2.0)
ef.grad(lambda x: x**3)(2.0)
assert_type(ef.value_and_grad(energy)(x, 2.0)[0], ef.Tensor)
assert_type(ef.vjp(energy, x)[0], ef.Tensor)
assert_type(ef.checkpoint(energy)(x, scale=2.0), ef.Tensor)
assert_type(ef.vmap(energy)(ef.ones((3, 2))), ef.Tensor)
assert_type(clipped(x), ef.Tensor)


# Captured functions
@ef.function
def loss(w: ef.Tensor, x: ef.Tensor) -> ef.Tensor:
    return ef.sum((w * x) ** 2)


@ef.function(static="rate", numerics="exact")
def scaled(x: ef.Tensor, rate: float = 2.0) -> ef.Tensor:
    return x * rate


class Doubling:
    @ef.function
    def pair(self, x: ef.Tensor, *, more: bool = False) -> tuple[ef.Tensor, ef.Tensor]:
        return x, x + x


assert_type(loss(v.value, x), ef.Tensor)
assert_type(scaled(x, rate=3.0), ef.Tensor)
assert_type(Doubling().pair(x, more=True), tuple[ef.Tensor, ef.Tensor])
assert_type(loss.explain(), str)
assert_type(ef.function(energy)(x), ef.Tensor)
graph = ef.capture.trace(energy, x)


# Layers and models
class Own(ef.nn.Layer):
    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(**options)
        self.inner = ef.nn.Dense(units)
        self.factor = self.add_weight((), "ones", name="factor")

    def call(self, inputs: ef.Tensor) -> ef.Tensor:
        return ef.relu(self.inner(inputs)) * self.factor


model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3, "relu", name="in"), Own(2)])
model.compile(ef.nn.optimizers.Adam(0.1), "mse", metrics=["mae"])
stop = ef.nn.callbacks.EarlyStopping("loss", patience=3)
history = model.fit(np.ones((8, 4)), np.ones((8, 2)), epochs=1, verbose=0, callbacks=[stop])
assert_type(history, ef.nn.callbacks.History)
assert_type(model.weights, list[ef.Variable])
assert_type(Own(3).factor, ef.Variable)
ef.nn.Conv2D(3, 3, padding="same", kernel_initializer="he_normal")
ef.nn.LSTM(4, return_sequences=True)
"""
WRONG = """
import eagerflow as ef

x = ef.tensor([1.0])
v = ef.Variable(x)
model = ef.nn.Sequential([])


@ef.function
def twice(x: ef.Tensor, more: bool = False) -> ef.Tensor:
    return x + x


ef.nn.Dense(units=3, activaton="relu")  # wrong
ef.nn.Dense(units="three")  # wrong
ef.nn.Densee(3)  # wrong
ef.nn.optimizers.Adam(learning=0.1)  # wrong
model.compile(optimiser="adam")  # wrong
model.fit(x, x, epoch=3)  # wrong
print(x.shap)  # wrong
print(v.valu)  # wrong
x.at[0].put(1.0)  # wrong
x[0] = 1.0  # wrong
x.sum(keepdim=True)  # wrong
v.reshap(2)  # wrong
n: int = ef.sin(x)  # wrong
ef.sinn(x)  # wrong
ef.sum(x, axes=0)  # wrong
ef.linalg.invert(x)  # wrong
ef.fft.fftt(x)  # wrong
ef.signal.hann(3, symm=True)  # wrong
ef.random.gama(1.0)  # wrong
ef.random.normal((2,), std=3)  # wrong
ef.function(statics=3)  # wrong
twice(x, moar=True)  # wrong
twice("x")  # wrong
ef.grad(twice)(x, y=3)  # wrong
ef.GradientTape(persistant=True)  # wrong
ef.capture.tracee(twice)  # wrong
ef.cluster.Clusters  # wrong
ef.serving.Serve  # wrong
ef.summary.Writers  # wrong
ef.testing.check_gradient  # wrong
"""


def run(*command, folder=None, fails=False):
    """The output of a command, which has to succeed or, with ``fails``, to fail."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=own,  # the installed package is used, not the sources
        capture_output=True,
        text=True,
        check=False,
    )
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(folder, *packages):
    """A new environment with these packages; its folder of programs."""
    venv.create(folder, with_pip=True)
    run(folder / "bin/pip", "install", "-q", *packages)
    return folder / "bin"


def public_names():
    """A program that asks for the type of every public name."""
    places = ["linalg", "fft", "signal", "random", "nn", "capture"]
    places += ["cluster", "serving", "testing", "summary"]
    names = [f"ef.{name}" for name in ef.__all__]
    names += [f"ef.{place}.{name}" for place in places for name in getattr(ef, place).__all__]
    return "import eagerflow as ef\n\n" + "".join(f"reveal_type({name})\n" for name in names)


def reported(errors):
    """The numbers of the lines of ``wrong.py`` that a checker reports errors of."""
    return {int(n) for n in re.findall(r"wrong\.py:(\d+):.*\berror\b", errors)}


def check_types(tools, user, folder):
    """The typed programs pass both checkers; of the wrong one each wrong line is an error."""
    texts = {"typed.py": TYPED, "names.py": public_names(), "wrong.py": WRONG}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    run(user / "python", "typed.py", folder=folder)
    wrong = {n for n, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}
    mypy = [tools / "mypy", "--strict", "--python-executable", user / "python"]
    pyright = [tools / "basedpyright", "--level", "error", "--pythonpath", user / "python"]
    for checker in (mypy, pyright):
        run(*checker, "typed.py", folder=folder)
        told = run(*checker, "names.py", folder=folder)
        if checker is mypy and 'type is "Any"' in told:
            sys.exit(f"public names without a type:\n{told}")
        found = reported(run(*checker, "wrong.py", folder=folder, fails=True))
        if found != wrong:
            sys.exit(f"{checker[0]} passes lines {wrong - found}, and refuses {found - wrong}")


def main():
    with tempfile.TemporaryDirectory(prefix="eagerflow-release-") as name:
        folder = pathlib.Path(name)
        tools = environment(folder / "tools", *TOOLS)
        print(run(tools / "python", "-m", "build", "--outdir", folder / "dist", ROOT)[-200:])
        wheel, sdist = (
            sorted((folder / "dist").glob("*.whl")),
            sorted((folder / "dist").glob("*.gz")),
        )
        print(run(tools / "twine", "check", "--strict", *wheel, *sdist))
        user = environment(folder / "user", f"{wheel[0]}[onnx]", "mypy")
        readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("```", "")
        (folder / "readme.txt").write_text(readme, encoding="utf-8")
        options = ["-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE"]
        run(user / "python", "-m", "doctest", *options, "readme.txt", folder=folder)
        check_types(tools, user, folder)
        run(user / "pip", "install", "-q", "--force-reinstall", "--no-deps", sdist[0])
        print(run(user / "eagerflow", "info", folder=folder)[:200])


if __name__ == "__main__":
    main()
