"""Globals and variables of closures that a captured function only writes: as after eager calls."""

import types

import numpy as np
import pytest

import eagerflow as ef

WRITES = {
    "a number": "N = 5",
    "what it reads then": "N = 5; x = x * N",
    "a shape": "N = x.shape",
    "a text": "N = 'done'",
    "no name any more": "N = 1; del N",
    "the last of two": "N = 1; N = 2",
}


def module_of(statement, declaration, indent):
    """``f``, which writes; ``get`` and ``put``, which look and write as well, in a module."""
    lines = ["N = 0", f"def f(x):\n    {declaration} N\n    {statement}\n    return x * 2"]
    lines += ["def get():\n    try: return N\n    except NameError: return 'none'"]
    lines += [f"def put(v):\n    {declaration} N\n    N = v"]
    source = "\n".join(lines)
    if indent:
        source = "def make():\n" + "".join(f"    {line}\n" for line in source.split("\n"))
        source += "    return f, get, put\nf, get, put = make()"
    module = types.ModuleType("written")
    exec(compile(source, "written_names.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize("declaration", ["global", "nonlocal"])
@pytest.mark.parametrize("name", WRITES)
def test_written_names_have_their_value_after_each_call(name, declaration):
    found, wanted = [], []
    for kept, wrap in ((wanted, lambda f: f), (found, ef.function)):
        module = module_of(WRITES[name], declaration, declaration == "nonlocal")
        f = wrap(module.f)
        for poke in (False, False, True, True, False):
            if poke:
                module.put(0)
            y = f(ef.tensor([1.0, 2.0]))
            kept.append((np.asarray(y).tolist(), module.get()))
    assert found == wanted


def test_calls_reading_own_writes_do_not_retrace():
    module = module_of("N = 5", "global", False)
    f = ef.function(module.f)
    for _ in range(4):
        f(ef.ones(2))
    assert f.explain().startswith("f was traced 1 time")
