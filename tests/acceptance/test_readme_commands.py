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
    quoted = re.sub(r"'[^']*'", "", commands().replace("\\\n", " "))
    used = [one for line in re.findall(r"curl (.*)", quoted) for one in line.split("|")[0].split()]
    assert {one for one in used if one.startswith("-")} <= OLD


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
    ) as ran:  # fmt: skip
        try:
            assert ran.stdout is not None
            said = b""
            while b'"records"' not in said:  # of the last command
                part = os.read(ran.stdout.fileno(), 65_536)
                assert part, said.decode()
                said += part
            assert ran.wait(60) == 0
        finally:
            os.killpg(ran.pid, signal.SIGTERM)  # the service, too
    found = said.decode()
    assert '"status":"accepted"' in found
    decided = json.loads(found[found.index('{"id"', found.index("accepted")) :])
    assert decided["decision"]["action"] in ("blue", "red")
    assert [record["kind"] for record in decided["records"]] == ["decision", "reward"]
