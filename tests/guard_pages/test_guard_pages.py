"""Guard pages find planted bugs, raise no false alarms, and a part of the suite runs with them.

All of it is run by ``python -m tests.guard_pages``.
"""

import pytest

from tests.guard_pages import memory
from tests.guard_pages.__main__ import EXPECTED, FOLDERS, ROOT, Run, told

pytestmark = pytest.mark.skipif(bool(memory.why_not()), reason=str(memory.why_not()))

PLANTED = "tests/guard_pages/planted.py"
UNWRITTEN = "tests/guard_pages/unwritten.py"
WHOLE = "tests/guard_pages/whole_programs.py"
SELECTION = [
    "tests/plan/test_segments.py",
    f"{UNWRITTEN}::test_denormal_numbers_are_noted",
    f"{UNWRITTEN}::test_products[(3, 200, 5)-float32]",
    f"{UNWRITTEN}::test_packed_rows_of_an_incomplete_block",
    f"{UNWRITTEN}::test_convolutions[1-valid-((4, 13, 9, 23), (3, 2, 23, 65))]",
    f"{WHOLE}::test_memory_of_others_meets_its_guard",
]


@pytest.mark.parametrize("way", ["behind-nan", "before-denormal"])
def test_planted_bugs_end_the_process_and_passing_tests_do_not(way):
    run = Run([*SELECTION, PLANTED], way, ["-m", "not soak"]).finish()
    print(dict(run.counts), run.bad)
    ended = f"{PLANTED}::test_this_one_ends_the_process"
    assert [*run.bad] == ([ended] if way.startswith("behind") else [])
    for text in run.bad.values():
        assert "touched 0 bytes behind the end of an array of 20 bytes" in text
        assert "in test_this_one_ends_the_process" in text, "the traceback"
    assert run.counts["passed"] > 50 and run.counts["guarded"] > 20_000
    assert not run.counts["unguarded"]


def test_expected_failures_exist():
    for name, _, _ in EXPECTED:
        file, _, test = name.partition("::")
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8")
    assert all((ROOT / folder).exists() for folder in FOLDERS)


def test_guard_page_report_is_extracted_from_output():
    before = ["guard pages: wrote 4 bytes", "test_a PASSED"]
    lines = ["guard pages: touched 4 bytes", "", "Fatal Python error: Segmentation fault", "  File"]
    assert told("\n".join(before + lines)) == "\n".join(lines)
    assert told("one\ntwo") == "one\ntwo"
