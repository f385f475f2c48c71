"""``belated demo``: it runs by itself, says what it found, and leaves only its report."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("httptools")


def start(folder: Path, seconds: int) -> subprocess.Popen[str]:
    """The demo, with a folder for all that it writes."""
    home = folder / "home"
    (folder / "temporary").mkdir()
    home.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "belated", "demo", "--seconds", str(seconds)],
        cwd=home,
        env=os.environ | {"TMPDIR": str(folder / "temporary"), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assert_gone(said: str, folder: Path) -> None:
    """Neither files nor a service are left."""
    assert [*(folder / "temporary").iterdir()] == []
    port = re.search(r"127\.0\.0\.1:(\d+)", said)
    assert port is not None
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.1", int(port[1]))) != 0


def test_it_plays_and_says_what_it_found(tmp_path: Path) -> None:
    """Live numbers, lift, off-policy value, delays; and then all is gone."""
    process = start(tmp_path, seconds=14)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "day 28.0 of 28" in said
    assert re.search(r"lift over the holdout +[+-]\d", said), said
    assert "offers at random       would bring" in said
    assert "still to come" in said
    assert (tmp_path / "home" / "belated-demo.html").stat().st_size > 100_000
    assert_gone(said, tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is another signal there")
def test_it_cleans_up_when_it_is_stopped(tmp_path: Path) -> None:
    """With Ctrl-C, while the shop is open."""
    # Tests that a shell has started in the background ignore it, and so would their children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start(tmp_path, seconds=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    said = ""
    while not re.search(r"day +\d", said):
        line = process.stdout.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in rest
    assert_gone(said, tmp_path)
