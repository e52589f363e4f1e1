"""The pages for users of Keras and PyTorch: their names exist, their lists are complete."""

import inspect
import re
from types import ModuleType

import pytest

import eagerflow as ef
from tests.nn.peers import keras_on_torch
from tests.structure.sources import ROOT

NAMES = "from-keras", "from-pytorch"
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in NAMES}
ABSENT = {"ef.concatenate", "ef.nn.Linear"}  # whose errors are shown


@pytest.mark.parametrize("page", PAGES)
def test_every_name_on_the_page_exists(page):
    told = set(re.findall(r"\bef(?:\.[A-Za-z_]\w*)+", PAGES[page])) - ABSENT
    assert len(told) > 20
    for path in told:
        found = ef
        for part in path.split(".")[1:]:
            found = getattr(found, part)
        assert found is not None, path


MODULES = "layers losses metrics optimizers callbacks initializers activations regularizers "
MODULES += "constraints"
EVERYWHERE = {"serialize", "deserialize"}
# Base classes, and names that Keras has for itself alone.
ITS_OWN = {
    "IdentityInitializer", "Optimizer", "OptimizerMap", "OrthogonalInitializer", "STFTInitializer",
    "concordance_correlation", "pearson_correlation",
}  # fmt: skip
OF_ALL = {"name", "dtype", "kwargs", "args"}
QUANTIZED = "lora", "gptq", "quantization"


def public(module):
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }


def parameters(value):
    try:
        return inspect.signature(value).parameters
    except (TypeError, ValueError):
        return {}


def single(default):
    """``((1, 1), (1, 1))`` as ``1``, which stands for all axes; names in small letters."""
    while isinstance(default, tuple) and len(set(default)) == 1:
        default = default[0]
    default = None if default == () else default
    return default.lower() if isinstance(default, str) else default


def differences(theirs, ours):
    """Names of what only Keras has, and of what has another default here."""
    for name, value in theirs.items():
        if name not in ours.__all__:
            yield (name,)
            continue
        own = parameters(getattr(ours, name))
        for key, parameter in parameters(value).items():
            if (
                key not in OF_ALL
                and not key.startswith(QUANTIZED)
                and (key not in own or single(parameter.default) != single(own[key].default))
            ):
                yield name, key


@pytest.mark.parametrize("name", MODULES.split())
def test_page_lists_differences_from_keras(name):
    keras = keras_on_torch()
    theirs = public(getattr(keras, name))
    found = list(differences(theirs, ef.nn if name == "layers" else getattr(ef.nn, name)))
    print(found)
    known = EVERYWHERE | ITS_OWN
    told = PAGES["from-keras"]
    assert not [
        names
        for names in found
        if names[0] not in known
        and not names[0].startswith("Random")
        and not any(f"`{part}`" in told for part in names)
    ]
