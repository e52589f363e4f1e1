"""Which cases of a sampled test run today.

``@pytest.mark.sampled(4)`` runs every fourth case of a test, another quarter each day, so that all
of them run within four days; the extended tier runs all at once. The day is printed, and
``EAGERFLOW_TEST_DAY`` sets it: a failure can be repeated later. ``EAGERFLOW_TEST_ONLY`` names a
file of tests and test files, one in a line, to run instead.
"""

import datetime
import os
import pathlib

DAY = "EAGERFLOW_TEST_DAY"
ONLY = "EAGERFLOW_TEST_ONLY"
ALL = "all"


def day():
    """The day that selects cases, as a number or ``"all"``; kept in the environment for workers."""
    given = os.environ.setdefault(DAY, str(datetime.date.today().toordinal()))
    return given if given == ALL else int(given)


def left_for_other_days(items):
    """The items that run on other days."""
    today, groups = day(), {}
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            (step,) = mark.args
            name = getattr(item, "originalname", None) or item.name
            groups.setdefault((item.path, name, step), []).append(item)
    if today == ALL:
        return []
    return [
        item
        for (*_, step), cases in groups.items()
        for i, item in enumerate(cases)
        if (i + today) % min(step, len(cases))
    ]


def left_by_list(items):
    """The items that the file of ``EAGERFLOW_TEST_ONLY``, if given, does not name."""
    if not (path := os.environ.get(ONLY)):
        return []
    names = set(pathlib.Path(path).read_text(encoding="utf-8").splitlines())
    return [i for i in items if i.nodeid not in names and i.nodeid.partition("::")[0] not in names]
