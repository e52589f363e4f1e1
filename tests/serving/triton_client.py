"""Triton's own clients against a server: ``python triton_client.py HTTP_ADDRESS GRPC_ADDRESS``.

They run in an environment of their own, since they want an older protobuf; nothing of eagerflow is
imported here. The server has the model ``scale`` (x: float32(batch, 3); y is 2 x, total the sums of
its rows), and ``count`` (x: float32(batch, 2); y is x and the number of requests before in its
sequence).
"""

import queue
import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http

X = np.arange(6, dtype="float32").reshape(2, 3)


def infer_input(kind, name="x", array=X, **how):
    made = kind.InferInput(name, list(array.shape), "FP32")
    made.set_data_from_numpy(array, **how)
    return made


def check_common(kind, client, as_json):
    """The common interface of both clients."""
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("scale") and client.is_model_ready("scale", "1")
    assert not client.is_model_ready("none")
    assert client.get_server_metadata(**as_json)["name"] == "eagerflow"
    told = client.get_model_metadata("scale", **as_json)
    assert [(i["name"], i["datatype"], [int(n) for n in i["shape"]]) for i in told["inputs"]] == [
        ("x", "FP32", [-1, 3])
    ]
    config = client.get_model_config("scale", **as_json)
    config = config.get("config", config)
    assert (config["name"], config["max_batch_size"]) == ("scale", 32)
    outputs = [kind.InferRequestedOutput("y"), kind.InferRequestedOutput("total")]
    found = client.infer("scale", [infer_input(kind)], outputs=outputs, request_id="seven")
    np.testing.assert_array_equal(found.as_numpy("y"), 2 * X)
    np.testing.assert_array_equal(found.as_numpy("total"), (2 * X).sum(1))
    response = found.get_response()
    assert (response["id"] if isinstance(response, dict) else response.id) == "seven"
    found = client.infer("scale", [infer_input(kind)], model_version="1", timeout=10**7)
    np.testing.assert_array_equal(found.as_numpy("y"), 2 * X)
    stats = client.get_inference_statistics("scale", **as_json)["model_stats"]
    assert int(stats[0]["inference_count"]) >= 4
    refused(client, "none", [infer_input(kind)], "no model 'none'")
    refused(client, "scale", [infer_input(kind, array=X[:, :2])], "shape mismatch")
    refused(client, "scale", [infer_input(kind, name="z")], "'x' is missing")
    check_repository(client, as_json)
    check_sequence(kind, client)


def refused(client, model, inputs, words):
    try:
        client.infer(model, inputs)
    except (tritonclient.http.InferenceServerException, OSError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{words!r} was not refused")


def check_repository(client, as_json):
    told = client.get_model_repository_index(**as_json)
    told = told["models"] if isinstance(told, dict) else told
    assert [(m["name"], m["version"], m["state"]) for m in told] == [
        ("count", "1", "READY"),
        ("scale", "1", "READY"),
    ]
    client.unload_model("scale")
    assert not client.is_model_ready("scale")
    client.load_model("scale")
    assert client.is_model_ready("scale")


def check_sequence(kind, client):
    row = np.zeros((1, 2), "float32")
    for number in range(3):
        found = client.infer(
            "count",
            [infer_input(kind, array=row)],
            sequence_id=42,
            sequence_start=number == 0,
            sequence_end=number == 2,
        )
        np.testing.assert_array_equal(found.as_numpy("y"), row + number)
    refused_sequence = {"sequence_id": 42, "sequence_start": False, "sequence_end": False}
    try:
        client.infer("count", [infer_input(kind, array=row)], **refused_sequence)
    except tritonclient.http.InferenceServerException as error:
        assert "has ended" in str(error)
    else:
        raise AssertionError("a sequence that has ended went on")


def check_http(address):
    kind = tritonclient.http
    with kind.InferenceServerClient(address, concurrency=2) as client:
        check_common(kind, client, {})
        plain = infer_input(kind, binary_data=False)
        outputs = [kind.InferRequestedOutput("y", binary_data=False)]
        found = client.infer("scale", [plain], outputs=outputs)
        np.testing.assert_array_equal(found.as_numpy("y"), 2 * X)
        assert found.as_numpy("total") is None
        for each in [client.async_infer("scale", [infer_input(kind)]) for _ in range(8)]:
            np.testing.assert_array_equal(each.get_result().as_numpy("y"), 2 * X)
        for how in ("gzip", "deflate"):
            found = client.infer(
                "scale",
                [infer_input(kind)],
                request_compression_algorithm=how,
                response_compression_algorithm=how,
            )
            np.testing.assert_array_equal(found.as_numpy("y"), 2 * X)


def check_grpc(address):
    kind = tritonclient.grpc
    with kind.InferenceServerClient(address) as client:
        check_common(kind, client, {"as_json": True})
        found = client.infer("scale", [infer_input(kind)], compression_algorithm="gzip")
        np.testing.assert_array_equal(found.as_numpy("y"), 2 * X)
        answers = queue.Queue()
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for number in range(5):
            client.async_stream_infer("scale", [infer_input(kind)], request_id=str(number))
        client.async_stream_infer("none", [infer_input(kind)])
        for number in range(5):
            result, error = answers.get(timeout=20)
            assert error is None and result.get_response().id == str(number)
            np.testing.assert_array_equal(result.as_numpy("y"), 2 * X)
        result, error = answers.get(timeout=20)
        assert result is None and "no model 'none'" in str(error)
        client.stop_stream()


if __name__ == "__main__":
    check_http(sys.argv[1])
    check_grpc(sys.argv[2])
    print("all as expected")
