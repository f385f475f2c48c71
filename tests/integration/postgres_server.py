"""A real PostgreSQL for tests and benchmarks: on loopback, in a folder that is removed afterwards.

It installs nothing: it finds the programs of PostgreSQL (in ``POSTGRES_BIN``, on the PATH, or where
Debian installs them) and starts a server. It leaves nothing behind when it has stopped.

Run as a script it prints the address of a server, which stops when its input ends:
``python -m tests.integration.postgres_server``.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.ports import free_port

#: Users under whose name the server runs where this process is root, which PostgreSQL refuses.
_USERS = ("postgres", "nobody")
#: What outlives a server is here, also while a test has servers made on a small disk.
_TEMPORARY = tempfile.gettempdir()


def find_programs() -> Path | None:
    """Return the folder with PostgreSQL's programs, of the newest version; None if missing."""
    places = [Path(os.environ["POSTGRES_BIN"])] if "POSTGRES_BIN" in os.environ else []
    on_path = shutil.which("initdb")
    if on_path is not None:
        places.append(Path(on_path).resolve().parent)
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    places += sorted(debian, key=lambda place: float(place.parent.name), reverse=True)
    return next((p for p in places if (p / "initdb").exists() and (p / "postgres").exists()), None)


def require_programs() -> None:
    """Skip the test if PostgreSQL is missing, except in CI."""
    import pytest  # as a script this file needs nothing but Python

    if find_programs() is None and not os.environ.get("CI"):
        pytest.skip("no PostgreSQL found: `apt-get install postgresql`, or set POSTGRES_BIN")


class PostgresServer:
    """A server that stops with this process at the latest.

    Args:
        settings: settings of the server, such as ``{"fsync": "off"}``.
    """

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        programs = find_programs()
        if programs is None:
            message = "no PostgreSQL found: `apt-get install postgresql`, or set POSTGRES_BIN"
            raise FileNotFoundError(message)
        self._programs = programs
        self._settings = settings or {}
        self._user = _user()
        self._folder = Path(tempfile.mkdtemp(prefix="belated-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._starter = os.getpid()
        self.port = free_port()
        atexit.register(self.stop)
        try:
            if self._user is not None:
                shutil.chown(self._folder, self._user, pwd.getpwnam(self._user).pw_gid)
            subprocess.run(
                ["cp", "-R", _fresh_cluster(programs, self._user), self._data],
                check=True,
                **_as(self._user),
            )
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def dsn(self) -> str:
        """The address of the server."""
        return f"postgresql://belated@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it responds."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._folder),
            "max_connections": "60",
            **self._settings,
        }
        command = [str(self._programs / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        deadline = time.monotonic() + 60
        self._process = self._launch(command)
        while not self._answers():
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")
            # After a kill it refuses to start until the last of its old processes is gone.
            if self._process.poll() is not None:
                if "shared memory" not in self.log()[-500:]:
                    raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")
                self._process = self._launch(command)
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server, as when a machine fails."""
        assert self._process is not None
        pid = self._process.pid
        self._process.send_signal(signal.SIGSTOP)  # or it would start others
        # By themselves they follow a little later, and answer whoever asks until then.
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        self._process.kill()
        self._process.wait(60)

    def stop(self) -> None:
        """Stop the server, and remove its folder."""
        if os.getpid() != self._starter:  # this is a fork of the process that started it
            return
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # "fast": it does not wait for its clients
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(60)
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def log(self) -> str:
        """Return what the server has logged so far."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def tables(self) -> Path:
        """The folder of the tables; the write-ahead log is elsewhere."""
        return self._data / "base"

    def execute(self, statement: str) -> None:
        """Run one statement."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C is for the tests
                **_as(self._user),
            )

    def _answers(self) -> bool:
        probe = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(probe, check=False).returncode == 0


#: Starts a server with these settings.
StartPostgres = Callable[..., PostgresServer]


def _user() -> str | None:
    """Return the user that the server runs as; None for that of this process."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _USERS if name in names)


def _as(user: str | None) -> dict[str, Any]:
    """Return the options for a process that runs as this user."""
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


@cache
def _fresh_cluster(programs: Path, user: str | None) -> Path:
    """Return a fresh cluster to copy, which is faster than creating another."""
    folder = Path(tempfile.mkdtemp(prefix="belated-postgres-", dir=_TEMPORARY))
    atexit.register(_remove, folder, os.getpid())
    if user is not None:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
    # The files are synced at the first checkpoint; a fresh cluster need not wait for it.
    command = [str(programs / "initdb"), "-D", str(folder / "data"), "-A", "trust",
               "-U", "belated", "-E", "UTF8", "--locale=C", "--no-sync"]  # fmt: skip
    result: subprocess.CompletedProcess[bytes] = subprocess.run(
        command, cwd=folder, capture_output=True, check=False, **_as(user)
    )
    if result.returncode:
        raise RuntimeError(f"initdb failed: {result.stderr.decode(errors='replace')}")
    return folder / "data"


def _remove(folder: Path, starter: int) -> None:
    """Remove a folder when the process that created it ends, but not a fork of it."""
    if os.getpid() == starter:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print the address; stop when the input ends, or at a signal."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = PostgresServer()
    try:
        print(server.dsn, flush=True)
        sys.stdin.read()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


@contextmanager
def database() -> Iterator[str]:
    """Create a server with tables; yield its address."""
    from belated.journals import PostgresJournal

    server = PostgresServer()
    try:
        PostgresJournal.create_tables(server.dsn)
        yield server.dsn
    finally:
        server.stop()


if __name__ == "__main__":
    main()
