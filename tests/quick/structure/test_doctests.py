"""Every example in a docstring runs, and shows what it says.

Docstrings are read from the source, so what a decorator makes of a function hides none of them.
Those that exist at run time only are found through the public names.
"""

import importlib

import pytest

from tests.structure.examples import one_device, run_example, run_page, user_names
from tests.structure.public import own_docstring, public_modules, public_values, source_docstrings
from tests.structure.sources import PACKAGE, ROOT, module_name, read_sources

ONE_DEVICE = pytest.fixture(autouse=True)(one_device)

# Where Keras is there, tests/keras runs those of the backend, in a process that has it loaded.
SOURCES = {
    path: text
    for path, text in read_sources(PACKAGE).items()
    if ">>> " in text and not path.startswith(f"{PACKAGE}/keras/")
}


def run_source(text, path, public_names, module_names):
    """Runs all examples of a file. Those of internal names see their module's names as well."""
    tried, reports = 0, []
    for top, name, line, doc in source_docstrings(text, path):
        names = user_names()
        if top is not None and top not in public_names:
            names = module_names | names
        count, report = run_example(doc, name or path, path, line, names)
        tried += count
        reports.append(report)
    return tried, "".join(reports)


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_examples_on_the_first_pages(page):
    """They import what they use; those of the other pages run in ``tests/site``."""
    tried, report = run_page(page, {})
    assert tried and not report, report


def test_there_are_examples():
    assert SOURCES, f"no example under {ROOT / PACKAGE}"


@pytest.mark.parametrize("path", SOURCES)
def test_examples_in(path):
    if path.endswith("einops/layers.py"):
        pytest.importorskip("einops")
    module = importlib.import_module(module_name(path))
    public_names = {name for _, name, _ in public_values(public_modules())}
    tried, report = run_source(SOURCES[path], path, public_names, vars(module))
    print(f"{tried} examples in {path}")
    assert not report, report


def test_examples_made_at_run_time():
    written = {doc for path, text in SOURCES.items() for *_, doc in source_docstrings(text, path)}
    for module, name, value in public_values(public_modules()):
        doc = own_docstring(value)
        if doc and doc not in written:
            _, report = run_example(doc, f"{module}.{name}", module, 1, user_names())
            assert not report, report


PLANTED = '''
"""Module.

>>> 1 + 1
2
"""

@decorate
def public():
    """Public.

    >>> helper()
    3
    """

def internal():
    """Internal.

    >>> helper()
    4
    """

class Public:
    if True:
        def method(self):
            """Method.

            >>> ef.__name__, np.float32(1.5).item()
            ('eagerflow', 1.5)
            """
'''


def test_planted_failures_are_found():
    tried, report = run_source(PLANTED, "planted.py", {"public", "Public"}, {"helper": lambda: 3})
    assert tried == 4
    # A public example may not lean on its module's names; an internal one may, and is compared.
    assert report.count("Failed example") == 2
    assert "NameError: name 'helper' is not defined" in report
    assert "Expected:\n    4\nGot:\n    3\n" in report
    assert 'File "planted.py", line 19, in internal' in report
