"""Every session at the prompt in the pages shows what it says."""

import importlib

import pytest

from tests.structure.examples import one_device, run_page, user_names
from tests.structure.sources import ROOT

ONE_DEVICE = pytest.fixture(autouse=True)(one_device)
PAGES = sorted(
    f"docs/{path.name}"
    for path in (ROOT / "docs").glob("*.md")
    if "\n>>> " in path.read_text(encoding="utf-8") and path.name != "start.md"
)


@pytest.mark.parametrize("page", PAGES)
def test_examples_on_the_page(page, monkeypatch):
    devices = importlib.import_module("eagerflow.devices")  # ef.devices is the function
    own = {name: devices.device_types[name] for name in ("cpu", "gpu")}  # a page registers others
    monkeypatch.setattr(devices, "device_types", own)
    tried, report = run_page(page, user_names())
    print(f"{tried} examples in {page}")
    assert tried and not report, report
