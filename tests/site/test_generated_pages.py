"""The pages that are made from the package: all names, the facts as the ops state them."""

import importlib.util
import json
import re

import numpy as np
import pytest
from site_pages import benchmarks, facts, names, project, reference, text
from site_pages.folder import Folder

import eagerflow as ef
from eagerflow import dtypes
from eagerflow.op import Missing, Op, ops
from tests.structure.public import public_modules, public_values


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Path to content of all pages of the reference."""
    with Folder(tmp_path_factory.mktemp("generated")) as folder:
        reference.write(folder)
    return {
        path.relative_to(folder.path).as_posix(): path.read_text()
        for path in folder.path.rglob("*.rst")
    }


def has_op(value):
    return isinstance(getattr(value, "op", None), Op)


def described(pages):
    """All names that the pages describe."""
    return re.findall(r"^\.\. py:(?:class|function):: ([\w.]+)", "\n".join(pages.values()), re.M)


def entry(pages, name):
    """The description of one name, to the next one."""
    whole = "\n".join(pages.values())
    return re.search(rf"^\.\. py:\w+:: {re.escape(name)}\(.*?(?=^\S)", whole + ".", re.M | re.S)[0]


def test_every_public_name_is_described_once(pages):
    found = described(pages)
    public = [
        f"{reference.shown(module)}.{name}" for module, name, _ in public_values(public_modules())
    ]
    assert len(public) > 900
    assert sorted(found) == sorted(public)


def test_an_op_shows_its_facts(pages):
    found = entry(pages, "ef.elu")
    assert "(x, /, alpha=1.0)" in found.splitlines()[0]
    for line in (
        ":Dtypes: floats",
        ":Shapes: any",
        ":Gradient: reverse and forward, of any order",
        ":ONNX: ``Elu``",
        f":Accuracy: within {ef.elu.op.ulp} units in the last place",
        "``torch.nn.functional.elu``",
        ">>> ef.elu(",
    ):
        assert line in found, line


def test_facts_that_are_missing_show_their_reasons():
    reasons = 0
    public = (value for *_, value in public_values(public_modules()) if has_op(value))
    for op in {value.op.name: value.op for value in public}.values():
        told = dict(facts.facts_of(op))
        if isinstance(op.onnx, Missing):
            assert told["ONNX"] == f"none: {op.onnx.reason}"
        if isinstance(op.batch, Missing):
            assert op.batch.reason in told["Batches"]
        if not op.differentiable:
            assert len(told["Gradient"].split()) > 2
            reasons += 1
    assert reasons > 40
    assert dict(facts.facts_of(ef.argmax.op))["Gradient"].startswith("none: the result is an index")
    told = facts.gradient_of(ops["random_gamma"])
    assert told == "its gradient is at fixed probability, not for fixed bits"


def test_shapes_are_those_of_calls():
    assert dict(facts.facts_of(ef.add.op))["Shapes"] == "any that broadcast"
    told = dict(facts.facts_of(ef.matmul.op))["Shapes"]
    calls = re.findall(r"``(\(.*?\)), (\(.*?\)) → (\(.*?\))``", told)
    assert calls
    for first, second, result in calls:
        shapes = [tuple(map(int, re.findall(r"\d+", s))) for s in (first, second, result)]
        assert ef.matmul(ef.ones(shapes[0]), ef.ones(shapes[1])).shape == shapes[2]


def test_function_pages_list_the_ops_used(pages):
    found = entry(pages, "ef.softmin")
    assert ":Made of: ``negative``, ``softmax``" in found
    assert ":Gradient: that of the ops inside" in found
    assert ":Gradient: none: " in entry(pages, "ef.allclose")


def test_dtypes_in_words():
    assert facts.words_for(dtypes.STANDARD) == "bool, integers, floats, complex"
    assert facts.words_for(dtypes.FLOATS) == "floats"
    assert facts.words_for(frozenset(dtypes.UNSIGNED_INTEGERS)) == "unsigned integers"
    assert facts.words_for(dtypes.NARROW) == "bfloat16, float16"


@pytest.mark.parametrize("name", ef.errors.__all__)
def test_every_error_documents_its_cause_and_remedy(name):
    doc = getattr(ef.errors, name).__doc__
    assert "What to do:" in doc
    if name != "EagerflowError":
        assert "Raised " in doc
        assert f"eagerflow.errors.{name}: " in doc, "an example that raises this very error"


# Names of others ----------------------------------------------------------------------------------


@pytest.mark.parametrize("library", names.PLACES)
def test_names_of_others_are_those_that_there_are(library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    if library == "numpy" and np.lib.NumpyVersion(np.__version__) < "2.4.0":
        pytest.skip(f"NumPy {np.__version__} lacks some of the names, which are those of 2.4")
    recorded = names.recorded()
    wrong = {}
    for ours, folder in names.functions():
        told = recorded.get(ours, {}).get(library)
        if library == "numpy" and told is None:
            continue  # which names NumPy has depends on its version
        found = names.in_library(library, ours, folder)
        if found != told:
            wrong[ours] = told, found
    assert wrong == {}, "run docs/site_pages/names.py again"


def test_names_of_others_are_of_functions_that_there_are():
    ours = {name for name, _ in names.functions()}
    assert names.recorded().keys() <= ours
    assert len(names.recorded()) > 400
    assert not [pair for pair in names.UNLIKE if pair[0] not in ours]
    assert names.recorded()["take_along_axis"]["torch"] == "torch.take_along_dim"


# Parts --------------------------------------------------------------------------------------------


def test_words_are_no_markup():
    assert text.plain("*args, |x| and a_ of ``f(*a)``") == r"\*args, \|x\| and a\_ of ``f(*a)``"
    assert text.docstring("A *b*.\n\n>>> 2 * 3\n6") == "A \\*b\\*.\n\n>>> 2 * 3\n6"


def test_links_lead_to_the_pages_that_show_a_file():
    given = "[a](docs/nn.md) [b](tutorials/04_digits.py) [c](docs/decisions) [d](http://x/y.md)"
    told = project.relinked(given, "CHANGELOG.md", "generated/changelog.md")
    assert (
        told == "[a](../nn.md) [b](tutorials/04_digits.md) [c](../decisions.md) [d](http://x/y.md)"
    )
    assert project.relinked("[e](#x)", "docs/nn.md", "nn.md") == "[e](#x)"


def test_the_newest_row_of_each_name_is_shown(tmp_path):
    rows = [
        {"name": "a", "milliseconds": {"ours": 2.0, "theirs": 4.0}, "ratio": 0.5, "target": None},
        {"name": "b", "milliseconds": {"ours": 3.0}, "ratio": 1.0, "target": 0.8},
    ]
    path = tmp_path / "x.jsonl"
    run = {"date": "2026-01-01", "processor": "P", "python": "3", "versions": {"numpy": "2"}}
    lines = [run | {"rows": rows}, run | {"rows": [rows[0] | {"ratio": 0.25}]}]
    path.write_text("\n".join(map(json.dumps, lines)))
    found = benchmarks.newest_rows(path)
    assert [row["ratio"] for row, _ in found.values()] == [0.25, 1.0]
    assert benchmarks.table([row for row, _ in found.values()]).splitlines() == [
        "|  | ours | theirs | ratio | target |",
        "| --- | --: | --: | --: | --: |",
        "| a | 2 ms | 4 ms | 0.25 |  |",
        "| b | 3 ms |  | 1.00 | 0.80 |",
    ]


def test_stale_pages_are_removed_and_unchanged_keep_their_mtime(tmp_path):
    (tmp_path / "old.md").write_text("old")
    with Folder(tmp_path) as folder:
        folder.write("a/b.md", "new")
    before = (tmp_path / "a/b.md").stat().st_mtime_ns
    with Folder(tmp_path) as folder:
        folder.write("a/b.md", "new")
    assert [p.name for p in tmp_path.rglob("*.md")] == ["b.md"]
    assert (tmp_path / "a/b.md").stat().st_mtime_ns == before
