"""Sampled tests run all of their cases in turn, and a run tells what it left out."""

from types import SimpleNamespace

import pytest

from tests import account, extended, sampling


class Item:
    """What ``sampling`` reads of a test."""

    def __init__(self, case, step=None):
        self.path, self.originalname, self.name = "test_a.py", "test_a", f"test_a[{case}]"
        self.step = step
        self.nodeid = f"{self.path}::{self.name}"

    def get_closest_marker(self, name):
        return None if self.step is None else SimpleNamespace(args=(self.step,))


def run_on(monkeypatch, day, items):
    monkeypatch.setenv(sampling.DAY, str(day))
    left = sampling.left_for_other_days(items)
    return [item for item in items if item not in left]


@pytest.mark.parametrize(("step", "count"), [(1, 5), (3, 10), (4, 4), (7, 2)])
def test_each_case_runs_once_in_as_many_days_as_the_step(monkeypatch, step, count):
    items = [Item(case, step) for case in range(count)]
    days = [run_on(monkeypatch, day, items) for day in range(100, 100 + min(step, count))]
    assert all(days)
    assert sorted(item.name for day in days for item in day) == sorted(item.name for item in items)


def test_all_cases_run_where_they_are_asked_for(monkeypatch):
    items = [Item(case, 5) for case in range(12)] + [Item(0)]
    assert run_on(monkeypatch, sampling.ALL, items) == items


def test_tests_that_are_not_sampled_always_run(monkeypatch):
    items = [Item(case) for case in range(3)]
    assert run_on(monkeypatch, 3, items) == items


def test_only_listed_tests_and_files_run(monkeypatch, tmp_path):
    items = [Item(case) for case in range(3)]
    assert sampling.left_by_list(items) == []
    (tmp_path / "list").write_text("test_a.py::test_a[1]\ntest_gone.py::test_b\n")
    monkeypatch.setenv(sampling.ONLY, str(tmp_path / "list"))
    assert sampling.left_by_list(items) == [items[0], items[2]]
    (tmp_path / "list").write_text("test_a.py\n")
    assert sampling.left_by_list(items) == []


def test_rooms_over_budget_are_named():
    limits = {"plan": 10, "nn": 20}
    assert account.passed_budgets({"plan": 14.9, "nn": 3}, limits, 1) == []
    told = ["nn: 31 s, budget 20 s", "plan: 16 s, budget 10 s"]
    assert account.passed_budgets({"plan": 16, "nn": 31}, limits, 1) == told
    assert account.passed_budgets({"plan": 29}, limits, 2) == []  # a machine half as fast
    assert account.passed_budgets({"new": 1}, limits, 1) == ["new: 1 s, budget 0 s"]


@pytest.mark.parametrize(
    ("nodeid", "room"),
    [
        ("tests/quick/nn/test_layers.py::test_a[1]", "quick"),
        ("tests/plan/test_b.py::test_b", "plan"),
        ("tests/test_c.py::test_c", "test_c"),
    ],
)
def test_a_room_is_a_folder_or_a_file(nodeid, room):
    assert account.room_of(nodeid) == room


def test_the_extended_tier_runs_every_test(capsys):
    """Each test file lies in a room or is one, so that a new folder cannot be left out."""
    where = [part.command[-1] for part in extended.parts(1, 1) if "pytest" in part.command]
    for path in (extended.ROOT / "tests").rglob("test_*.py"):
        name = path.relative_to(extended.ROOT).as_posix()
        assert any(name == room or name.startswith(f"{room}/") for room in where), name
    assert extended.main(["--list"]) == 0
    assert "random programs" in capsys.readouterr().out


def test_unknown_parts_of_the_extended_tier_are_refused(capsys):
    with pytest.raises(SystemExit):
        extended.main(["--only", "plan", "plam"])
    assert "no such part: plam" in capsys.readouterr().err
