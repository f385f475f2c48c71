"""A local object store with the S3 protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket, for this process and its children."""
    server_module = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("belated")
        yield "s3://belated"
        s3fs.S3FileSystem().rm("belated", recursive=True)  # the next server would have it
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()
