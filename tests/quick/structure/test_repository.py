"""The repository as a stranger finds it: no trace of a machine, its commands, a light import."""

import re
import subprocess
import sys

import pytest

from tests.structure.sources import PACKAGE, ROOT, readme_block

# Put together from pieces, so that this file does not name what it looks for.
MACHINE = re.compile(r"/(?:" + "|".join(["work", "root", "home/[a-z]+"]) + r")/|\." + "library")

# Loaded when first needed, if at all: each costs time or may not be installed.
OPTIONAL = "scipy sklearn matplotlib tqdm cupy torch jax llvmlite safetensors".split()

# Notes each try to import one of the names, so that it also works where they are not installed.
WATCH_IMPORTS = """
import sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in {names!r}:
            tried.append(name)
tried = []
sys.meta_path.insert(0, Watch())
{statement}
print(*tried)
"""


def tracked_files():
    """Path to content of all files that git tracks, as they are in the working tree."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode:  # an unpacked archive: everything in it was tracked
        paths = [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*") if is_from_archive(p)]
    else:
        paths = listing.stdout.decode().rstrip("\0").split("\0")
    return {path: (ROOT / path).read_bytes() for path in paths if (ROOT / path).is_file()}


def is_from_archive(path):
    parts = path.relative_to(ROOT).parts
    return not any(
        p in (".venv", "__pycache__") or p.endswith((".egg-info", "_cache")) for p in parts
    )


def machine_names(files):
    """path:line of every file name or line that names a path of a developer's machine."""
    found = [f"{path}: its name" for path in files if MACHINE.search(f"/{path}")]
    for path, content in files.items():
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            if MACHINE.search(line):
                found.append(f"{path}:{number}: {line.strip()[:100]}")
    return found


def optional_imports(statement):
    """Which optional packages a statement tries to import, in a fresh interpreter."""
    code = WATCH_IMPORTS.format(names=OPTIONAL, statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_file_names_a_machine():
    files = tracked_files()
    print(f"{len(files)} files")
    assert files
    assert machine_names(files) == []


def test_readme_has_its_three_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    demo = readme_block(text, "demo-command")
    test = readme_block(text, "test-command")
    docs = readme_block(text, "docs-command")
    for block in (demo, test, docs):
        assert block.splitlines()[0] == "python3 -m venv .venv && . .venv/bin/activate"
    assert demo.splitlines()[1:] == ['pip install ".[demo]" && eagerflow demo']
    assert test.splitlines()[1:] == ['pip install -e ".[test]" && python -m pytest -n 2']
    build = 'pip install -e ".[docs]" && sphinx-build -W -n docs docs/_build'
    assert docs.splitlines()[1:] == [build]


def test_changelog_leads_with_unreleased_or_a_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(r"^## (.*)$", text, re.MULTILINE)
    assert heading
    assert re.fullmatch(r"\[Unreleased\]|\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading[1])


def test_import_loads_no_optional_package():
    assert optional_imports(f"import {PACKAGE}") == []


@pytest.mark.parametrize(
    "line",
    ["cd /" + "work/x", "see /" + "home/someone/x", "x = '/" + "root/a'", "a/." + "library/b"],
)
def test_planted_machine_name_is_found(line):
    files = {"a.md": f"fine\n{line}\n".encode(), "b.md": b"work/ and home/ and a library."}
    assert machine_names(files) == [f"a.md:2: {line}"]


def test_planted_machine_file_name_is_found():
    assert machine_names({"." + "library/a": b""}) == ["." + "library/a: its name"]


def test_planted_optional_import_is_found():
    statement = "try: import cupy.cuda, numpy\nexcept ImportError: pass"
    assert optional_imports(statement) == ["cupy"]


def test_readme_block_is_read_exactly():
    text = "<!-- a -->\n\n```bash\none\ntwo\n```\n<!-- b -->\n```\nthree\n```\n"
    assert readme_block(text, "a") == "one\ntwo\n"
    assert readme_block(text, "b") == "three\n"
    assert readme_block(text, "c") is None
