"""Containers of the image that `.ci/image` built: as compose.yaml says, but on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

IMAGE = "localhost/belated"
BASE = os.environ.get("BASE", "localhost/belated-base")
#: Without systemd; runc gets on with every mix of cgroups.
_AS_HERE = ["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--log-level", "error"]


def _call(*arguments: str) -> subprocess.CompletedProcess[str]:
    images = Path(os.environ["IMAGES"])
    stores = ["--root", str(images / "root"), "--runroot", str(images / "run")]
    return subprocess.run(
        ["podman", *stores, *_AS_HERE, *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def podman(*arguments: str) -> str:
    """What a command of podman prints; an error if it fails."""
    done = _call(*arguments)
    if done.returncode:
        raise RuntimeError(f"podman {' '.join(arguments)}: {done.stderr}")
    return done.stdout


class Container:
    """One that runs, with a read-only root, no capability, and this machine's network.

    Attributes:
        id: by which podman knows it.
    """

    def __init__(
        self, command: Sequence[str], options: Sequence[str] = (), image: str = IMAGE
    ) -> None:
        # What compose.yaml asks for.
        safe = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"]
        safe += ["--security-opt=no-new-privileges"]
        # podman has systemd run health checks: here they are run by hand. Its usual limits may be
        # more than this machine allows.
        here = ["--network=host", "--no-healthcheck"]
        here += ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
        self.id = podman("run", "--detach", *safe, *here, *options, image, *command).strip()

    def run(self, *command: str) -> str:
        """What a program inside prints; an error if it fails."""
        return podman("exec", self.id, *command)

    def refuses(self, *command: str) -> str:
        """What a program inside says that fails."""
        done = _call("exec", self.id, *command)
        assert done.returncode, done.stdout
        return done.stderr

    def log(self) -> str:
        """What it has written, to stdout and to stderr."""
        done = _call("logs", self.id)
        return done.stdout + done.stderr

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return int(podman("wait", self.id))

    def stop(self) -> int:
        """Tell it to stop, as an orchestrator does; returns its exit code."""
        podman("stop", "--time", "30", self.id)
        return self.wait()


@contextmanager
def running(
    command: Sequence[str], options: Sequence[str] = (), image: str = IMAGE
) -> Iterator[Container]:
    """A container that is gone afterwards."""
    container = Container(command, options, image)
    try:
        yield container
    finally:
        _call("rm", "--force", "--volumes", container.id)


def printed(code: str, image: str = IMAGE) -> str:
    """What a piece of Python prints inside."""
    with running(["-c", code], ["--entrypoint", "python3"], image) as container:
        assert container.wait() == 0, container.log()
        return container.log()


def ask(url: str, body: object = None) -> Any:
    """What a URL answers, as JSON if it is."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=10) as response:
        text = response.read().decode()
    return json.loads(text) if text.startswith("{") else text


def ask_until_answered(url: str, body: object = None, seconds: float = 60.0) -> Any:
    """The same, again and again until there is an answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask(url, body)
        except (URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
