"""What people ask is answered by one of the first three pages that the site's search finds.

The search is the one that readers use, on the site that was built: ``EAGERFLOW_SITE`` tells where
that is; without it the site is built here, without executing the tutorials.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.test_links import anchors
from tests.structure.sources import ROOT

pytestmark = pytest.mark.soak

# Queries, and the page or section with the answer.
QUESTIONS = {
    "how do I freeze a layer": "questions#how-do-i-freeze-a-layer",
    "why did it trace again": "questions#why-was-my-function-traced-again",
    "what is using memory": "questions#what-is-using-memory",
    "how do I get a gradient of a gradient": "questions#how-do-i-get-a-gradient-of-a-gradient",
    "how do I run this on two devices": "questions#how-do-i-run-this-on-two-devices",
    "save and load a model": "questions#how-do-i-save-and-load-a-model",
    "export to onnx": "onnx",
    "same random numbers": "questions#how-do-i-get-the-same-random-numbers-in-every-run",
    "change an element of a tensor": "questions#how-do-i-change-an-element-of-a-tensor",
    "convert to numpy array": "questions#how-do-i-convert-a-tensor-to-a-numpy-array-and-back",
    "write my own layer": "questions#how-do-i-write-a-layer-of-my-own",
    "own training loop": "questions#how-do-i-write-a-training-loop-of-my-own",
    "learning rate schedule": "questions#how-do-i-change-the-learning-rate-while-training",
    "clip gradients": "questions#how-do-i-clip-gradients",
    "where does NaN come from": "questions#how-do-i-find-where-a-nan-comes-from",
    "half precision": "questions#how-do-i-train-in-half-precision",
    "load weights from pytorch": "questions#how-do-i-load-weights-from-pytorch",
    "stop training early": "questions#how-do-i-stop-training-early-and-keep-the-best-weights",
    "why is there no gradient": "questions#why-is-there-no-gradient",
    "custom gradient": "questions#how-do-i-write-a-gradient-of-my-own",
    "if on a value in a function": "questions#how-do-i-branch-and-loop-on-values",
    "print the graph": "questions#how-do-i-see-the-graph-of-a-function",
    "profile a training step": "performance",
    "placeholder feed_dict session": "from-tensorflow1",
    "what is called jnp.concatenate": "from-jax",
    "DataLoader": "from-pytorch",
    "quantize a model to 8 bits": "quantization",
    "write a new op": "adding-an-op",
}
# Names, whose description comes first.
NAMES = {
    "scan": "generated/api/ef",
    "logsumexp": "generated/ops/reductions",
    "BatchNormalization": "generated/api/ef.nn",
    "ShapeError": "generated/api/ef.errors",
    "ef.linalg.solve": "generated/ops/linear_algebra",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    if "EAGERFLOW_SITE" in os.environ:
        return Path(os.environ["EAGERFLOW_SITE"])
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "-n", "-q", "-D", "execute_tutorials=0"]
    command = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", folder]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return folder


@pytest.fixture(scope="module")
def search(site):
    """Questions to hits."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")

    def ask(questions):
        script = Path(__file__).with_name("search.js")
        done = subprocess.run(
            [node, script, site], input=json.dumps(questions), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def rank(hits, page):
    """At which place the page is found; only one section of each page counts."""
    found = list(dict.fromkeys(name for name, *_ in hits))
    return found.index(page) + 1 if page in found else None


def test_questions_are_answered_within_three_hits(search):
    told = dict(zip(QUESTIONS, search(list(QUESTIONS)), strict=True))
    ranks = {q: rank(told[q], page.partition("#")[0]) for q, page in QUESTIONS.items()}
    print("\n".join(f"{ranks[q]}  {q}: {[hit[0] for hit in told[q][:4]]}" for q in QUESTIONS))
    assert len(QUESTIONS) >= 20
    assert {q: told[q][:4] for q, r in ranks.items() if r is None or r > 3} == {}


def test_the_sections_with_the_answers_are_there():
    for page in QUESTIONS.values():
        name, _, anchor = page.partition("#")
        text = (ROOT / "docs" / f"{name}.md").read_text()
        assert not anchor or anchor in anchors(text), page


def test_names_are_found_where_they_are_described(search):
    told = dict(zip(NAMES, search(list(NAMES)), strict=True))
    assert {n: told[n][:4] for n, page in NAMES.items() if (rank(told[n], page) or 9) > 3} == {}


def test_search_for_unknown_terms_finds_nothing(search):
    assert search(["zebra crossing"]) == [[]]


def test_the_site_needs_no_network(site):
    for page in [site / "index.html", site / "search.html", site / "questions.html"]:
        loaded = re.findall(r'(?:src|href)="(https?://[^"]+)"', page.read_text())
        assert [address for address in loaded if "github.com/pradyunsg/furo" not in address] == []
