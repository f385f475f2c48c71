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


#: What compose.yaml asks for.
_SAFE = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"]
_SAFE += ["--security-opt=no-new-privileges"]
#: podman has systemd run health checks: here they are run by hand. Its usual limits may be more
#: than this machine allows.
_LOCAL = ["--network=host", "--no-healthcheck"]
_LOCAL += ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]


def _call(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    images = Path(os.environ["IMAGES"])
    stores = ["--root", str(images / "root"), "--runroot", str(images / "run")]
    return subprocess.run(
        ["podman", *stores, *_AS_HERE, *arguments],
        capture_output=True, text=True, check=False, timeout=120, input=given,
    )  # fmt: skip


def podman(*arguments: str, given: str | None = None) -> str:
    """What a command of podman prints, given some input; an error if it fails."""
    done = _call(*arguments, given=given)
    if done.returncode:
        raise RuntimeError(f"podman {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def run_once(
    command: Sequence[str],
    options: Sequence[str] = (),
    image: str = IMAGE,
    given: str | None = None,
) -> str:
    """What a command prints in a container of its own; an error if it fails."""
    stdin = [] if given is None else ["--interactive"]
    return podman("run", "--rm", *stdin, *_SAFE, *_LOCAL, *options, image, *command, given=given)


class Container:
    """One that runs, with a read-only root, no capability, and this machine's network.

    Attributes:
        id: by which podman knows it.
    """

    def __init__(
        self, command: Sequence[str], options: Sequence[str] = (), image: str = IMAGE
    ) -> None:
        run = ["run", "--detach", *_SAFE, *_LOCAL, *options, image, *command]
        self.id = podman(*run).strip()

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

    def remove(self) -> None:
        """End it without warning if it still runs, and leave nothing of it."""
        _call("rm", "--force", "--volumes", self.id)


@contextmanager
def running(
    command: Sequence[str], options: Sequence[str] = (), image: str = IMAGE
) -> Iterator[Container]:
    """A container that is gone afterwards."""
    container = Container(command, options, image)
    try:
        yield container
    finally:
        container.remove()


def printed(code: str, image: str = IMAGE) -> str:
    """What a piece of Python prints inside."""
    return run_once(["-c", code], ["--entrypoint", "python3"], image)


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
