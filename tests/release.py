"""Builds the release and uses it as a user would: ``python -m tests.release``.

Wheel and sdist are built and their metadata checked; the wheel is installed in a new environment,
where README's examples run, and a typed program passes mypy and pyright, a wrong one does not.
"""

import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).parents[1]
TOOLS = ["build", "twine", "mypy>=2.4,<2.5", "basedpyright"]
TYPED = """
import numpy as np
from typing_extensions import assert_type

import eagerflow as ef


@ef.function
def loss(w: ef.Tensor, x: ef.Tensor) -> ef.Tensor:
    return ef.sum((w * x) ** 2)


x = ef.tensor([1.0, 2.0])
v = ef.Variable(np.ones(2, "float32"))
assert_type(x, ef.Tensor)
assert_type(x + 1, ef.Tensor)
assert_type(ef.sin(x), ef.Tensor)
assert_type(x.numpy()[0] > 0, bool) if False else None
with ef.GradientTape() as tape:
    y = loss(v.value, x)
model = ef.nn.Sequential([ef.nn.Dense(3, "relu")])
model.compile(ef.nn.optimizers.Adam(0.1), "mse")
"""
WRONG = """
import eagerflow as ef

ef.nn.Dense(units="three", activaton="relu")
ef.tensor([1.0]).shap
ef.function(static=3)
"""
WRONG_LINES = 3


def run(*command, folder=None, fails=False):
    """The output of a command, which has to succeed or, with ``fails``, to fail."""
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False
    )
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(folder, *packages):
    """A new environment with these packages; its folder of programs."""
    venv.create(folder, with_pip=True)
    run(folder / "bin/pip", "install", "-q", *packages)
    return folder / "bin"


def check_types(tools, user, folder):
    """The typed program passes both checkers; of the wrong one each line is an error."""
    for name, text in (("typed.py", TYPED), ("wrong.py", WRONG)):
        (folder / name).write_text(text, encoding="utf-8")
    mypy = [tools / "mypy", "--strict", "--python-executable", user / "python"]
    pyright = [tools / "basedpyright", "--level", "error", "--pythonpath", user / "python"]
    for checker in (mypy, pyright):
        run(*checker, "typed.py", folder=folder)
        errors = run(*checker, "wrong.py", folder=folder, fails=True)
        lines = {
            line.split(":")[1] for line in errors.splitlines() if "error" in line and ":" in line
        }
        if len(lines) < WRONG_LINES:
            sys.exit(f"{checker[0]} found too little:\n{errors}")


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
