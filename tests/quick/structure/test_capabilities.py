"""Backends state what a device can do: no other module compares names of device types."""

import ast

from tests.structure.sources import package_sources

TYPES = {"cpu", "gpu"}
NAMED = ("eagerflow/backends/", "eagerflow/devices.py", "eagerflow/cli/")  # where types are made


def types_asked_for(sources):
    """Places at which the name of a type of devices stands."""
    return [
        f"{path}:{node.lineno}"
        for path, text in sources.items()
        if not path.startswith(NAMED) and any(name in text for name in TYPES)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in TYPES
    ]


def test_types_of_devices_are_named_by_backends_alone():
    assert types_asked_for(package_sources()) == []


def test_planted_names_are_found():
    planted = 'def f(place):\n    """On "cpu"."""\n    return place.type == "cpu"\n'
    assert types_asked_for({"eagerflow/capture/planted.py": planted}) == [
        "eagerflow/capture/planted.py:3"
    ]
