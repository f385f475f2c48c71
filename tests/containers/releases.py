"""Releases as images, their processes as containers, and PostgreSQL as one more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.containers.podman import IMAGE, Container, podman, run_once
from tests.faults.releases import Release, make_following
from tests.integration.processes import Process
from tests.ports import free_port
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
FOLLOWING = "localhost/belated-following"
DATABASE = "localhost/belated-database"
#: The user of the image.
USER = 10001
#: Where Debian puts the programs of PostgreSQL.
_PROGRAMS = "PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin"


class ContainerProcess(Process):
    """A command of belated in a container, for whoever expects a process.

    Attributes:
        container: in which it runs.
    """

    def __init__(self, image: str, log: Path, command: str, file: Path, *options: str) -> None:
        self._log = log
        mounted = volumes(file)
        mounted += ["--log-driver=k8s-file", f"--log-opt=path={log}"]
        self.container = Container([command, "belated.toml", *options], mounted, image)
        self._pid = int(podman("inspect", "--format", "{{.State.Pid}}", self.container.id))

    @property
    def pid(self) -> int:
        """The number of the process, outside."""
        return self._pid

    @property
    def log(self) -> str:
        """All that it has said: a line begins with a time, its stream, and whether it is whole."""
        text = ""
        for line in self._log.read_text(encoding="utf-8").splitlines(keepends=True):
            *_, whole, said = line.split(" ", 3)
            text += said if whole == "F" else said.rstrip("\n")
        return text

    def send(self, number: int) -> None:
        """A signal."""
        podman("kill", "--signal", str(int(number)), self.container.id)

    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return Path(f"/proc/{self._pid}").exists()

    def ended(self) -> int:
        """Its exit code, once it has one."""
        return self.container.wait()

    def kill(self) -> None:
        """End it without warning, if it still runs."""
        self.container.remove()


@dataclass(frozen=True)
class ImageRelease(Release):
    """One that is an image.

    Attributes:
        image: its name.
    """

    image: str
    tables: int

    def run(self, *arguments: str) -> str:
        """What Python prints when it runs this in the image."""
        return run_once(arguments, ["--entrypoint", "python"], self.image)

    def start(self, log: Path, command: str, file: Path, *options: str) -> Process:
        """Start a container."""
        return ContainerProcess(self.image, log, command, file, *options)

    def migrate(self, dsn: str, since: int) -> None:
        """``belated schema --from N | psql``, as the guide has it."""
        steps = run_once(["schema", "--from", str(since)], image=self.image)
        options = ["--env", _PROGRAMS, "--env", "PGOPTIONS=-c lock_timeout=2s"]
        run_once(["psql", "-v", "ON_ERROR_STOP=1", dsn], options, DATABASE, given=steps)


class Database:
    """PostgreSQL in a container, with a folder of this machine for its data.

    Args:
        folder: in which that folder is made.

    Attributes:
        dsn: its address.
    """

    def __init__(self, folder: Path) -> None:
        data = folder / "postgres"
        data.mkdir()
        data.chmod(0o777)  # the user of PostgreSQL has another number here
        port = free_port()
        self.dsn = f"postgresql://belated@127.0.0.1:{port}/belated"
        start = "initdb --auth trust --username belated -D /data/db && exec postgres -D /data/db"
        start += f" -p {port} -h 127.0.0.1 -k /data"
        named = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "belated"}
        options = ["--entrypoint", "sh", "--user", "postgres", "--volume", f"{data}:/data"]
        for name, value in named.items():
            options += ["--env", f"{name}={value}"]
        self.container = Container(["-c", start], [*options, "--env", _PROGRAMS], DATABASE)
        eventually(self._answers, self.container.log(), seconds=120, pause=0.1)
        self.run("createdb", "belated")

    def run(self, *command: str) -> str:
        """What a program of PostgreSQL prints, beside it."""
        return self.container.run(*command)

    def close(self) -> None:
        """End it, and remove it."""
        self.container.remove()

    def _answers(self) -> bool:
        try:
            psycopg.connect(f"{self.dsn.rpartition('/')[0]}/postgres").close()
        except psycopg.OperationalError:
            return False
        return True


def volumes(file: Path) -> list[str]:
    """What a container of the service has: its configuration, and the folder of its spool."""
    spool = file.parent / "spool"
    spool.mkdir(exist_ok=True)
    os.chown(spool, USER, USER)
    return ["--volume", f"{file}:/etc/belated/belated.toml:ro", "--volume", f"{spool}:{spool}"]


def present_image() -> ImageRelease:
    """What `.ci/image` has built."""
    return _release(IMAGE)


def following_image(folder: Path) -> ImageRelease:
    """The release after this one, built by the same script from changed sources."""
    for name in (".ci", "deploy", "requirements", "src"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".dockerignore"):
        shutil.copy2(ROOT / name, folder / name)
    make_following(folder / "src" / "belated")
    project = folder / "pyproject.toml"
    text, edits = re.subn(
        '^version = ".*"', 'version = "9.0"', project.read_text(encoding="utf-8"), flags=re.M
    )
    assert edits == 1
    project.write_text(text, encoding="utf-8")
    build = [str(folder / ".ci" / "image"), "--build"]
    subprocess.run(build, env=os.environ | {"TAG": FOLLOWING}, check=True, timeout=1_800)
    return _release(FOLLOWING)


def _release(image: str) -> ImageRelease:
    """With what it says of itself."""
    code = "from belated.journals.postgres.queries import VERSION; print(VERSION)"
    return ImageRelease(image, int(ImageRelease(image, 0).run("-c", code)))
