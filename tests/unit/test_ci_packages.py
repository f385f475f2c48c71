"""`.ci/packages.sh` installs system packages, with other programs in the place of the system's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="apt-get is for Linux")

SCRIPT = Path(__file__).parents[2] / ".ci" / "packages.sh"
#: Fails twice, as while another process updates the package lists.
APT = """
echo "apt-get $*" >>calls
[[ $* != *update* ]] || (($(grep -c update calls) > 2))
"""


def apt_install(folder: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """Install wrk with these programs, as a user who is not root."""
    for name, body in {"id": "echo 1000", "sleep": "", "apt-get": APT, **programs}.items():
        program = folder / name
        program.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        program.chmod(0o755)
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"source '{SCRIPT}'; apt_install wrk"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_packages_are_installed_with_sudo_once_the_locks_are_free(tmp_path: Path) -> None:
    """The update is repeated; the installation waits by itself."""
    sudo = '[[ $1 == -n ]] && shift; case "$*" in *apt-get*) "$@";; *) cat;; esac'
    process = apt_install(tmp_path, sudo=sudo)
    assert process.returncode == 0, process.stderr
    assert process.stdout == ""  # callers print a path there
    *updates, install = (tmp_path / "calls").read_text().splitlines()
    assert updates == ["apt-get -qq update"] * 3
    assert "DPkg::Lock::Timeout=600 install" in install
    assert install.endswith(" wrk")


def test_without_root_and_sudo_the_command_to_run_is_printed(tmp_path: Path) -> None:
    """And nothing else is tried."""
    process = apt_install(tmp_path, sudo="exit 1")
    assert process.returncode == 1
    assert process.stderr == "missing: wrk. Install as root with: apt-get install wrk\n"
    assert not (tmp_path / "calls").exists()
