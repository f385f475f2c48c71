"""The commands of the README work when they are copied, in their order."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.wheels import ENVIRONMENT
from tests.ports import free_port

README = Path(__file__).parents[2] / "README.md"
#: Options of curl that releases of ten years ago have.
OLD = {"-X", "-s", "-sf", "-H", "-d"}


def commands() -> str:
    """The block with the commands for HTTP."""
    block: str
    (block,) = [
        block
        for block in re.findall(r"^```sh\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
        if "curl" in block
    ]
    return block


def test_only_old_options_of_curl_are_used() -> None:
    """``--json`` needs curl 7.82."""
    unquoted = re.sub(r"'[^']*'", "", commands().replace("\\\n", " "))
    words = [
        word for line in re.findall(r"curl (.*)", unquoted) for word in line.split("|")[0].split()
    ]
    assert {word for word in words if word.startswith("-")} <= OLD


def test_the_commands_work_in_their_order(install: Callable[..., Path], tmp_path: Path) -> None:
    """The wheel's service learns the reward, reported under the id of its decision."""
    shell = shutil.which("sh") if shutil.which("curl") else None
    if shell is None:
        pytest.skip("sh and curl are needed")
    port = free_port()
    text = commands().replace("localhost:8080", f"127.0.0.1:{port}")
    text = text.replace("belated serve belated.toml", f"belated serve belated.toml --port {port}")
    environment = {**ENVIRONMENT, "PATH": f"{install('service')}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [shell, "-ec", text], cwd=tmp_path, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            output = b""
            while b'"records"' not in output:  # of the last command
                part = os.read(process.stdout.fileno(), 65_536)
                assert part, output.decode()
                output += part
            assert process.wait(60) == 0
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # the service, too
    answers = output.decode()
    assert '"status":"accepted"' in answers
    answer = json.loads(answers[answers.index('{"id"', answers.index("accepted")) :])
    assert answer["decision"]["action"] in ("blue", "red")
    assert [record["kind"] for record in answer["records"]] == ["decision", "reward"]
