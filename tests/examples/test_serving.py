"""The Dockerfile and the systemd unit of a server: what they run is what the command takes."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

import eagerflow as ef
from eagerflow.cli import make_parser
from tests.serving.models import scaling
from tests.structure.sources import ROOT

FOLDER = ROOT / "examples" / "serving"
DOCKERFILE = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
UNIT = (FOLDER / "eagerflow.service").read_text()
CONFIGURATION = tomllib.loads((FOLDER / "serve.toml").read_text())


def instruction(name):
    """What follows an instruction of the Dockerfile, for each time that it is there."""
    return re.findall(rf"^{name} +(.*)$", DOCKERFILE, re.MULTILINE)


def parsed(command):
    """The options of a command; a program that it is not ends the test."""
    assert pathlib.Path(command[0]).name == "eagerflow"
    return make_parser(command[1:2]).parse_args(command[1:])


def test_the_commands_are_those_of_the_command_line():
    (dockers,) = instruction("CMD")
    (units,) = re.findall(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)
    for command in (json.loads(dockers), units.split()):
        options = parsed(command)
        assert (options.config.name, options.log) == ("serve.toml", "json")


def test_image_has_the_files_the_command_needs():
    (copied,) = instruction("COPY")
    source, target = copied.split()
    assert (FOLDER / source).is_file()
    (place,) = instruction("WORKDIR")
    (command,) = instruction("CMD")
    assert target == f"{place}/{parsed(json.loads(command)).config}"
    (ports,) = instruction("EXPOSE")
    assert ports.split() == [str(CONFIGURATION[key]) for key in ("port", "grpc_port")]
    assert CONFIGURATION["host"] == "0.0.0.0"  # else nothing outside of the container reaches it
    assert CONFIGURATION["tokens_variable"] in DOCKERFILE and "EAGERFLOW_TOKENS" in UNIT


def test_the_health_check(tmp_path):
    (told,) = instruction("HEALTHCHECK")
    python, *arguments = json.loads(told.partition(" CMD ")[2])
    assert python == "python" and f":{CONFIGURATION['port']}/" in arguments[-1]
    scaling(1).save(tmp_path / "scale.ef")
    access = ef.serving.Access(("a secret of 16 letters",))
    with ef.serving.Server(tmp_path, port=0, access=access) as server:
        program = arguments[-1].replace(f":{CONFIGURATION['port']}/", f":{server.port}/")
        checked = [sys.executable, *arguments[:-1], program]
        assert subprocess.run(checked, timeout=60).returncode == 0
        server.repository.is_leaving = True  # as while it ends
        ended = subprocess.run(checked, timeout=60, stderr=subprocess.PIPE, text=True)
    assert ended.returncode != 0 and "503" in ended.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_one(tmp_path):
    program = tmp_path / "eagerflow"
    program.write_text("#!/bin/sh\n")
    os.chmod(program, 0o755)
    unit = tmp_path / "eagerflow.service"
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", UNIT))
    told = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (told.returncode, told.stdout + told.stderr) == (0, "")
