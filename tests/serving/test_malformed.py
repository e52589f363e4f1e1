"""Malformed requests have typed answers, and cost nobody else anything."""

import pytest

pytest.importorskip("grpc")
from tests.serving.malformed import send_all, serving, slow_senders


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("malformed")) as server:
        yield server


def test_malformed_requests_have_typed_answers(served):
    send_all(served, 2_000)


def test_slow_senders_delay_nobody(served):
    slow_senders(served)


@pytest.mark.soak
def test_many_malformed_requests_have_typed_answers(served):
    send_all(served, 200_000, seed=1)
