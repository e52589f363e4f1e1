"""At least a hundred issues of others are posed, each once and each by a case of its own."""

import importlib
import inspect
import re

from tests.silent_bugs.index import ISSUES, REPOSITORIES, names


def functions(topic):
    module = importlib.import_module(f"tests.silent_bugs.test_{topic}")
    own = {n: f for n, f in vars(module).items() if inspect.isfunction(f)}
    return {n: f for n, f in own.items() if re.fullmatch(r"[a-z]+_\d+", n)}


def test_there_are_a_hundred_issues_each_posed_once():
    issues = [(REPOSITORIES[short], number) for _, short, number in names()]
    assert len(issues) == len(set(issues)) >= 100


def test_each_issue_has_a_case_and_each_case_an_issue():
    for topic in ISSUES:
        told = {f"{short}_{number}" for name, short, number in names() if name == topic}
        assert told == set(functions(topic)), topic


def test_each_case_has_a_docstring():
    for topic in ISSUES:
        for name, case in functions(topic).items():
            assert case.__doc__, name
