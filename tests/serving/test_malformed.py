"""Malformed requests get typed errors, and do not affect other requests."""

import pytest

pytest.importorskip("grpc")
from tests.serving.malformed import Sender, send_all, serving, slow_senders
from tests.serving.mutations import Asked


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("malformed")) as server:
        yield server


def test_wrong_answers_are_found():
    sender, headers = Sender(None, 0), {"content-type": "application/json"}
    for status, body in ((400, b'{"error": "x"}'), (200, b"{}")):
        sender.check_answer(Asked("json", b""), status, headers, body)
    assert not sender.faults
    for status, body in ((500, b'{"error": "x"}'), (400, b"{}"), (302, b"")):
        sender.check_answer(Asked("json", b""), status, headers, body)
    assert len(sender.faults) == 3


def test_malformed_requests_have_typed_answers(served):
    send_all(served, 2_000)


@pytest.mark.soak
def test_slow_senders_delay_no_other_clients(served):
    slow_senders(served)


@pytest.mark.soak
def test_many_malformed_requests_have_typed_answers(served):
    send_all(served, 200_000, seed=1)
