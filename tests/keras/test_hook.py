"""The hook in Keras's modules, and what of Keras it relies on."""

import ast
import importlib
import os
import pathlib
import subprocess
import sys

import keras
import pytest

import eagerflow.keras.hook as hook


def source_of(module):
    """The text of a module of Keras's, which is not imported for it."""
    path = pathlib.Path(keras.__file__).parent.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path.read_text()


def names_in(module):
    """The functions and classes that a module of Keras's defines, by reading it."""
    parts = ast.parse(source_of(module)).body
    defined = {p.name for p in parts if isinstance(p, ast.FunctionDef | ast.ClassDef)}
    return {name for name in defined if not name.startswith("_")}


@pytest.mark.parametrize("module", hook.CHOICES)
def test_each_chain_of_backends_has_one_end(module):
    tree = hook.with_choice(ast.parse(source_of(module)), module)
    code = ast.unparse(tree)
    assert all(line in code for line in hook.CHOICES[module])


@pytest.mark.parametrize("module", hook.REPLACED)
def test_replaced_functions_are_there_and_ours(module):
    for path in hook.REPLACED[module]:
        owner, name = hook.found_part(importlib.import_module(module), path)
        assert vars(owner)[name].__wrapped__.__qualname__ == path
        assert vars(owner)[name].__code__.co_filename == hook.__file__


def test_unsupported_keras_is_refused_naming_the_missing_part():
    for text in ("x = 1", "if backend() == 'tensorflow':\n    import a"):
        with pytest.raises(ImportError, match=r"does not fit this Keras.*layers.layer.*0 chains"):
            hook.with_choice(ast.parse(text), "keras.src.layers.layer")
    with pytest.raises(ImportError, match=r"there is no Model\.export"):
        hook.found_part(sys.modules["tests.keras.test_hook"], "Model.export")


@pytest.mark.parametrize("part", "core numpy nn math linalg image random".split())
def test_the_backend_has_all_functions_that_another_one_has(part):
    ours = sys.modules[f"eagerflow.keras.backend.{part}"]
    # How JAX itself is called, and what belongs to its sparse tensors.
    own = {"JaxVariable", "should_shard_at_init", "jax_draw_seed", "wrap_flash_attention"}
    missing = {
        name for name in names_in(f"keras.src.backend.jax.{part}") if not hasattr(ours, name)
    }
    assert missing - own == set()


def test_keras_says_which_backend_it_is_on():
    assert keras.backend.backend() == keras.config.backend() == "eagerflow"


def test_backends_by_name_find_ours():
    dynamic = importlib.import_module("keras.src.utils.backend_utils").DynamicBackend()
    assert dynamic.name == "eagerflow"
    assert dynamic.numpy is sys.modules["eagerflow.keras.backend.numpy"]
    dynamic.set_backend("eagerflow")
    with pytest.raises(ValueError, match="Received: backend=other"):
        dynamic.set_backend("other")


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        env=dict(os.environ, **environment),
        capture_output=True,
        text=True,
    )


def test_keras_first_is_refused():
    program = (
        "import sys, types\n"
        "config = types.ModuleType('keras.src.backend.config')\n"
        "config.backend = lambda: 'jax'\n"
        "sys.modules['keras.src.backend.config'] = config\n"
        "import eagerflow.keras"
    )
    found = run("-c", program)
    assert "Keras is loaded already, with the backend 'jax'" in found.stderr


def test_a_program_runs_as_it_stands(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys, keras; print(keras.backend.backend(), sys.argv[1:], __name__)")
    found = run("-m", "eagerflow.keras", str(program), "a", "b", KERAS_HOME=str(tmp_path))
    assert found.stdout == "eagerflow ['a', 'b'] __main__\n", found.stderr
