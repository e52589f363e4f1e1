"""The OpenAPI description: every route is in it, and answers are as it says."""

import json
import os
import re
import shutil
import subprocess

import pytest

from eagerflow.serving.application import Endpoints
from eagerflow.serving.limits import Limits
from eagerflow.serving.openapi import OPERATIONS
from tests.serving.test_server import INFER, PREDICT, ROW

COMMAND = os.environ.get("SCHEMATHESIS") or shutil.which("schemathesis")
X = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1.0, 2.0, 3.0]}


def test_every_route_is_described(client):
    told = client.json("/openapi.json")
    rows = Endpoints(None, Limits()).table()
    described = {(m.upper(), path) for path, ms in told["paths"].items() for m in ms}
    assert described == {(method, path) for method, path, _, _ in rows}
    assert {made.__name__ for _, _, made, _ in rows} == set(OPERATIONS)
    names = [o["operationId"] for ms in told["paths"].values() for o in ms.values()]
    assert len(set(names)) == len(names)


def test_responses_match_the_openapi_description(client):
    jsonschema = pytest.importorskip("jsonschema")
    bodies = {PREDICT: ROW, INFER: {"inputs": [X]}, "/v2/repository/index": {}}
    bodies["/v2/repository/models/scale/traffic"] = {"pinned": 1}
    checked = 0
    for template, methods in client.json("/openapi.json")["paths"].items():
        path = template.replace("{model}", "scale").replace("{version}", "1")
        for method, operation in methods.items():
            content = operation["responses"]["200"]["content"]
            if "{label}" in path or (method == "post" and path not in bodies):
                continue
            status, headers, data = client.call(
                path, bodies.get(path) if method == "post" else None
            )
            assert status == 200 and headers["content-type"].split(";")[0] in content
            if "application/json" in content:
                jsonschema.validate(json.loads(data), content["application/json"]["schema"])
                checked += 1
    assert checked > 15


@pytest.mark.soak
@pytest.mark.skipif(COMMAND is None, reason="schemathesis is not installed")
def test_schemathesis_finds_no_fault(server, client, tmp_path):
    told = client.json("/openapi.json")
    for path, methods in told["paths"].items():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                known = {"model": ["scale", "none"], "version": ["1", "9", "x"]}
                parameter["schema"] = {"enum": known.get(parameter["name"], ["stable"])}
            content = operation.get("requestBody", {}).get("content", {})
            for form in set(content) - {"application/json"}:
                del content[form]  # tests/serving/test_arrays.py has them
            example = {"predict": ROW, "infer": {"inputs": [X]}}
            if content and (name := re.split(r"[:/]", path)[-1]) in example:
                content["application/json"]["example"] = example[name]
    for path in [p for p in told["paths"] if p.endswith("/unload")]:
        del told["paths"][path]  # then the model is away, which is 503 as it should be
    described = tmp_path / "openapi.json"
    described.write_text(json.dumps(told))
    checks = "not_a_server_error,status_code_conformance,content_type_conformance"
    ran = subprocess.run(
        [
            *(COMMAND, "run", str(described), "--url", server.url, "--max-examples", "50"),
            *("--checks", f"{checks},response_schema_conformance", "--generation-deterministic"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    print(ran.stdout[-3000:])
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
