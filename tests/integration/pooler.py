"""A real PgBouncer for tests: on loopback, in a folder that is removed afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.integration.postgres_server import PostgresServer, _as, _user
from tests.ports import free_port

_SETTINGS = """
[databases]
postgres = host=127.0.0.1 port={server} user=belated

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
logfile = {folder}/log
unix_socket_dir =
"""


def require_pooler() -> str:
    """Return the path of PgBouncer; skip the test if it is missing, except in CI."""
    path = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        if os.environ.get("CI"):
            raise FileNotFoundError("pgbouncer is missing: run .ci/pgbouncer")
        pytest.skip("no PgBouncer found: `apt-get install pgbouncer`")
    return path


@contextmanager
def pooled(server: PostgresServer, mode: str, size: int = 10) -> Iterator[str]:
    """Start a pooler in front of a server; yield its address."""
    program, user, port = require_pooler(), _user(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="belated-pgbouncer-"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        _SETTINGS.format(server=server.port, port=port, mode=mode, size=size, folder=folder)
    )
    if user is not None:
        for path in (folder, settings):
            shutil.chown(path, user)
    process = subprocess.Popen(
        [program, "-q", str(settings)], stdin=subprocess.DEVNULL, **_as(user)
    )
    dsn = f"postgresql://belated@127.0.0.1:{port}/postgres"
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(dsn, connect_timeout=5).close()
                break
            except psycopg.OperationalError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield dsn
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
