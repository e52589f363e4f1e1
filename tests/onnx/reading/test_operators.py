"""Each operator's function takes all that the standard's schemas say, in all versions."""

import inspect

import pytest

from eagerflow.onnx.reading import operators  # noqa: F401 - they register themselves
from eagerflow.onnx.reading.attributes import schema_of
from eagerflow.onnx.reading.calls import OPERATORS
from eagerflow.onnx.reading.model import NEWEST, OLDEST
from eagerflow.onnx.reading.operators import recurrent, windows
from tests.onnx.reading.models import onnx

GRAPH = onnx.AttributeProto.GRAPH


def versions(domain, name):
    """The schemas of an operator, one for each time that it changed."""
    latest = NEWEST if not domain else 1
    first = OLDEST if not domain else 1
    found = (schema_of(domain, name, version) for version in range(first, latest + 1))
    return {schema.since: schema for schema in found if schema is not None}


def handed_on(function):
    """What a function takes as ``**attributes`` and hands on, which refuses all other names.

    None where it does not hand them on.
    """
    parameters = inspect.signature(function).parameters.values()
    if all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters):
        return ()
    if function.__module__.endswith(".recurrent"):
        return inspect.signature(recurrent.recurrent_node).parameters
    if function.__module__.endswith((".learning", ".trees")):
        return None  # it looks them up by name; test_learning.py tries them
    return (*inspect.signature(windows.windows_of).parameters, "kernel_shape", "group")


@pytest.mark.parametrize(("domain", "name"), sorted(OPERATORS))
def test_operator_functions_match_the_onnx_schemas(domain, name):
    known = versions(domain, name)
    assert known, "there is no such operator"
    signature = inspect.signature(OPERATORS[domain, name].function)
    names_on = handed_on(OPERATORS[domain, name].function)
    kinds = [p.kind for p in signature.parameters.values()][1:]
    names = list(signature.parameters)[1:]
    for schema in known.values():
        attributes = {key for key, a in schema.proto.attributes.items() if int(a.type) != GRAPH}
        taken = {*names, *(attributes if names_on is None else names_on)}
        assert attributes <= taken, (schema.since, attributes - taken)
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            assert schema.inputs[1] <= len(names), schema.since
        # Inputs come in order: none may stand where an attribute of the same version is meant.
        places = names[: len(schema.proto.inputs)]
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            assert not attributes & set(places), (schema.since, attributes & set(places))
