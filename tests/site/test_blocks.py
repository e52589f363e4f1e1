"""Every block of code in the pages runs, or stands in a list with the reason why it does not.

Sessions at the prompt run in ``test_sessions.py``, programs here, with what they print in the block
that follows.
"""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests.site.pages import blocks, written_pages
from tests.structure.sources import ROOT

BLOCKS = [block for page, text in written_pages().items() for block in blocks(page, text)]
SESSIONS = re.compile(r"README\.md|docs/[\w-]+\.md")  # the pages of test_sessions.py
OF_OTHERS = {  # what they need
    "in_jax.py": ("jax",),
    "in_keras.py": ("keras", "jax"),
    "in_tensorflow.py": ("tensorflow",),
    "in_torch.py": ("torch",),
    "with_einops.py": ("einops",),
    "with_pandas.py": ("pandas",),
    "with_torch.py": ("torch",),
}

README_COMMAND = "a command of the README, which CI runs"
ELSEWHERE = "a program in another language; tests/examples runs the whole of it"
DECORATED = "how an op is written; tests/quick/structure/test_places.py defines such ones"
WITH_KERAS = "tests/keras runs such programs, where Keras is installed"
NOT_RUN = {
    ("README.md", "python3 -m venv"): README_COMMAND,
    ("CONTRIBUTING.md", "python3 -m venv"): "a command that fetches packages",
    ("CONTRIBUTING.md", "ruff check"): "what CI runs",
    ("benchmarks/README.md", "python -m pip install"): "each takes minutes on an idle machine",
    ("docs/adding-an-op.md", '"hypot": Cases('): "a row of the table in tests/cases",
    ("docs/adding-an-op.md", "TypeError: elementwise()"): "what Python says of a planted mistake",
    ("docs/adding-an-op.md", "ValueError: op 'hypot'"): "likewise",
    ("docs/adding-an-op.md", "$ python -m pytest"): "a run of these tests",
    ("docs/adding-an-op.md", "eagerflow.errors.GradientError"): "what it says of a planted mistake",
    ("docs/adding-an-op.md", "@composed("): DECORATED,
    ("docs/adding-an-op.md", "@pointwise("): DECORATED,
    ("docs/cluster.md", "$ eagerflow cluster start"): "it needs a machine of that address",
    ("docs/command-line.md", "$ eagerflow devices"): "tests/quick/cli/test_page.py compares it",
    ("docs/command-line.md", "$ eagerflow cache"): "tests/quick/cli/test_page.py compares it",
    ("docs/command-line.md", "$ eagerflow export"): "tests/quick/cli/test_page.py runs it",
    ("docs/decisions/0019-arguments-of-layers.md", "class Dense"): "a part of nn/layers/core.py",
    ("docs/elsewhere.md", "std::vector"): ELSEWHERE,
    ("docs/elsewhere.md", "const state"): ELSEWHERE,
    ("docs/from-keras.md", "model.save_weights"): WITH_KERAS,
    ("docs/plans.md", "# train.py"): "a debugger waits for its user",
    ("docs/plans.md", "(Pdb) next"): "what the debugger shows",
    ("docs/index.md", "python3 -m venv"): README_COMMAND,
    ("docs/keras.md", "pip install"): "a command that fetches packages",
    ("docs/keras-tests.md", "python -m tests.keras.upstream"): "takes half an hour",
    ("docs/keras.md", "import eagerflow.keras"): WITH_KERAS,
    ("docs/keras.md", "def train_step"): WITH_KERAS,
    ("docs/keras.md", "model = keras.Sequential([keras.Input"): WITH_KERAS,
    ("docs/kernels.md", "loop_15:"): "machine code, which depends on the processor",
    ("docs/profiling.md", "share       ms"): "times of one machine",
    ("docs/serving-production.md", "requests/s  good/s"): "times of one machine",
    ("docs/saved-graphs-format.md", '{"attributes":['): "a part of a file",
    ("docs/saved-models.md", "Model:"): "a configuration; tests/quick/nn reads it",
    ("docs/serving.md", "pip install"): "a command that fetches packages",
    ("docs/serving-ray.md", "pip install"): "a command that fetches packages",
    ("docs/serving-ray.md", "with ef.serving"): "a cluster; tests/serving/test_deploy.py has one",
    (
        "docs/serving.md",
        "curl --data-binary",
    ): "a command for a server; tests/serving asks the like",
    ("docs/serving.md", "digits 1 is ready"): "what a command tells; tests/cli runs it",
    ("docs/serving-production.md", "eagerflow serve models --workers"): "a command for a server",
    ("docs/serving-production.md", "workers = 2"): "a part of examples/serving/serve.toml",
    ("docs/serving-production.md", "[models]"): "tables as in tests/serving/test_options.py",
    ("docs/serving-production.md", '{"time":'): "a line of a log; tests/serving has its fields",
    ("docs/serving-versions.md", "models/digits/1/model.ef"): "folders; tests/serving has such",
    ("docs/start.md", "python3 -m venv"): "a command that fetches packages, as in the README",
    ("docs/summary.md", "pip install"): "a command that fetches packages",
    ("examples/README.md", "python examples/elsewhere/set_up.py"): "it fetches packages",
    ("examples/README.md", "c++ -std=c++17"): ELSEWHERE,
}


def programs(found):
    """(program, what it prints or None) of all whole programs among blocks."""
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.program and reason(block) is None:
            printed = after is not None and after.page == block.page and after.language == "text"
            yield block, after if printed else None


def reason(block):
    """Why a block is not run, as the list says."""
    listed = (why for (page, start), why in NOT_RUN.items() if _is(block, page, start))
    return next(listed, None)


def _is(block, page, start):
    return block.page == page and block.first.startswith(start)


def not_run(found):
    """The blocks that no test runs and the list does not name."""
    known = {id(block) for pair in programs(found) for block in pair}
    return [
        f"{block.page}: {block.first}"
        for block in found
        if id(block) not in known
        and not (">>> " in block.text and SESSIONS.fullmatch(block.page))
        and reason(block) is None
    ]


PROGRAMS = list(programs(BLOCKS))


def test_every_block_runs_or_has_its_reason():
    print(f"{len(BLOCKS)} blocks, {len(PROGRAMS)} programs, {len(NOT_RUN)} reasons")
    assert not_run(BLOCKS) == []
    unused = [key for key in NOT_RUN if not any(_is(block, *key) for block in BLOCKS)]
    assert unused == []


def test_a_planted_block_is_found():
    page = "docs/x.md"
    text = "```python\n# a.py\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nnot run\n```\n"
    assert not_run(blocks(page, text)) == ["docs/x.md: not run"]
    assert not_run(blocks("docs/decisions/1.md", "```python\n>>> 1\n1\n```\n")) != []


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=lambda b: b and b.program)
def test_programs_print_the_documented_output(program, printed, tmp_path):
    for package in OF_OTHERS.get(program.program, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    (tmp_path / program.program).write_text(program.text)
    done = subprocess.run(
        [sys.executable, program.program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    shown = (done.stdout if done.returncode == 0 else done.stderr).replace(f"{tmp_path}/", "")
    wanted = "" if printed is None else printed.text
    assert shown.split()[-len(wanted.split()) or len(shown) :] == wanted.split(), done.stderr
    assert done.returncode == 0 or "Error: " in wanted, done.stderr
