"""Triton's own clients, over HTTP and gRPC: EAGERFLOW_TRITON_PYTHON is a Python that has them.

pip install 'tritonclient[http,grpc]' 'protobuf<7'
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import eagerflow as ef
from tests.serving.models import scaling

PROGRAM = pathlib.Path(__file__).with_name("triton_client.py")


def python():
    found = os.environ.get("EAGERFLOW_TRITON_PYTHON")
    if found is None and importlib.util.find_spec("tritonclient") is None:
        pytest.skip("tritonclient is not installed, and EAGERFLOW_TRITON_PYTHON names no other")
    return found or sys.executable


def test_the_clients_work_unchanged(tmp_path):
    program = python()
    scaling(2).save(tmp_path / "scale.ef")
    specs = [ef.TensorSpec(("batch", 2), "float32") for _ in range(2)]
    graph = ef.capture.trace(lambda x, h: {"y": x + h, "h_next": h + 1.0}, *specs)
    graph.save(tmp_path / "count.ef", state={"h": "h_next"})
    with ef.serving.Server(tmp_path, port=0, grpc_port=0) as server:
        addresses = [f"127.0.0.1:{port}" for port in (server.port, server.grpc_port)]
        ended = subprocess.run(
            [program, str(PROGRAM), *addresses], capture_output=True, text=True, timeout=120
        )
    assert (ended.returncode, ended.stdout) == (0, "all as expected\n"), ended.stderr
