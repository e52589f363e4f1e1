"""Configuration and statistics as Triton tells them, over REST and gRPC."""

import pytest

from tests.serving.test_rpc import call as call  # the fixture
from tests.serving.test_rpc import fields_of, request
from tests.serving.test_server import PREDICT, ROW

pytest.importorskip("grpc")


def test_the_configuration(client, call):
    told = client.json("/v2/models/scale/config")
    assert told["max_batch_size"] == 32
    assert told["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [3]}]
    assert [(o["name"], o["dims"]) for o in told["output"]] == [("y", [3]), ("total", [])]
    assert told["dynamic_batching"]["preferred_batch_size"] == [1, 2, 4, 8, 16, 32]
    config = call("ModelConfig", name="scale", version="1").config
    assert (config.name, config.max_batch_size) == ("scale", 32)
    assert [(i.name, i.data_type, list(i.dims)) for i in config.input] == [("x", 11, [3])]
    assert "no version 9" in client.json("/v2/models/scale/versions/9/config", status=404)["error"]


def test_the_statistics(client, call):
    for _ in range(3):
        client.json(PREDICT, ROW)
    call("ModelInfer", **fields_of(request()))  # two rows
    client.json(PREDICT, {"instances": [[1]]}, 400)  # refused before it is queued
    (told,) = client.json("/v2/models/scale/versions/1/stats")["model_stats"]
    assert (told["inference_count"], told["execution_count"]) == (5, 4)
    sums = told["inference_stats"]
    assert sums["success"]["count"] == 4 and sums["fail"]["count"] == 0
    assert sums["success"]["ns"] >= sums["compute_infer"]["ns"] > 0 <= sums["queue"]["ns"]
    assert client.json("/v2/models/stats")["model_stats"][0]["execution_count"] == 4
    (row,) = call("ModelStatistics", name="scale").model_stats
    assert row.inference_stats.success.count == 4 and row.last_inference > 1_600_000_000_000
    (row,) = call("ModelStatistics").model_stats
    assert (row.name, row.version) == ("scale", "1")
