"""The image of deploy/Dockerfile: what is in it, and how soon it decides."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.containers.podman import BASE, IMAGE, ask_until_answered, podman, printed, running
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
#: Seconds from the start of a container to its first decision.
MOST = 10.0

CONFIG = """
[store]
address = "sqlite:////data/belated.db"

[server]
auth = "off"

[bandits.offers]
policy = "DelayedUCB(dim=2, family=Bernoulli())"
rewards = "DefaultAfter('7d')"
"""

INSTALLED = """
from importlib.metadata import distributions
print(*(one.name.lower().replace("_", "-") for one in distributions()))
"""

FILES = """
import os
for folder, _, names in os.walk("/"):
    if not folder.startswith(("/proc", "/sys", "/dev")):
        print(*(os.path.join(folder, name) for name in names), sep="\\n")
"""

KERNELS = """
from belated.model.kernels import compiler
print(sum(callable(compiler.load_kernel(name)) for name in compiler.NAMES) == len(compiler.NAMES))
"""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """A folder for data, and the file with the bandit."""
    (tmp_path / "belated.toml").write_text(CONFIG, encoding="utf-8")
    file = f"{tmp_path}/belated.toml:/etc/belated/belated.toml:ro"
    return ["--volume", file, "--tmpfs", "/data:rw,mode=1777"]


def test_the_first_decision(options: list[str]) -> None:
    """Within seconds, by a user who is not root, with nothing to write to but the data."""
    port = free_port()
    start = time.monotonic()
    with running(["serve", "belated.toml", "--port", str(port)], options) as container:
        url = f"http://127.0.0.1:{port}/v1/offers/decisions"
        decision = ask_until_answered(url, {"rows": [[1.0, 0.0], [0.0, 1.0]]})
        seconds = time.monotonic() - start
        assert decision["action"] in (0, 1), decision
        assert container.run("id", "-u").strip() == "10001"
        assert "Read-only file system" in container.refuses("touch", "/etc/belated/other")
        assert container.run("python", "-c", KERNELS).strip() == "True"
        (image,) = json.loads(podman("image", "inspect", IMAGE))
        _, *check = image["Healthcheck"]["Test"]
        container.run(*[one.replace("8080", str(port)) for one in check])
        assert container.stop() == 0
        assert "plain kernels" not in container.log()
    print(f"\nthe first decision: {seconds:.1f} s after the start of the container")
    assert seconds < MOST


def test_what_is_installed() -> None:
    """belated and its pins, and nothing else; not pip either."""
    pins = (ROOT / "requirements" / "image.txt").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([\w-]+)==", pins, re.MULTILINE)) - {"tzdata"}  # of Windows
    assert set(printed(INSTALLED).split()) == pinned | {"belated"}


@pytest.fixture(scope="module")
def added() -> set[str]:
    """The files that are not in its base."""
    return set(printed(FILES).splitlines()) - set(printed(FILES, BASE).splitlines())


def test_the_image_has_the_package_and_no_more_of_the_repository(added: set[str]) -> None:
    """No tests, no tools to build with, no caches but the machine code."""
    mark = "belated/py.typed"
    (place,) = {one.removesuffix(mark) for one in added if one.endswith(f"/{mark}")}
    inside = {one.removeprefix(place) for one in added if one.startswith(f"{place}belated/")}
    source = ROOT / "src"
    files = {str(one.relative_to(source)) for one in source.rglob("*") if one.is_file()}
    made = "/__pycache__/"
    assert {one for one in inside if made not in one} == {one for one in files if made not in one}
    tools = re.compile(
        r".*/(pip|uv|gcc|g\+\+|cc|c\+\+|clang|ld|make|cmake)[\d.]*|.*\.whl|.*/\.cache/.*"
    )
    assert {one for one in added if tools.fullmatch(one)} == set()


def test_what_the_image_adds_to_its_base(added: set[str]) -> None:
    """One folder with programs, and a user."""
    ours = {one for one in added if one.startswith("/opt/belated/")}
    assert "/opt/belated/bin/belated" in ours
    assert {one for one in added - ours if not re.fullmatch(r"/etc/\w+-", one)} == set()
    (image,), (base,) = (json.loads(podman("image", "inspect", one)) for one in (IMAGE, BASE))
    whole, under = image["Size"] / 1e6, base["Size"] / 1e6
    print(f"\nthe image: {whole:.0f} MB, of which its base has {under:.0f} MB")


def test_nobody_but_root_may_change_what_is_installed() -> None:
    """Neither the program nor its machine code: but for the data there is nothing to write to."""
    code = "import os; print(*(p for p, _, _ in os.walk('/') if os.access(p, os.W_OK)))"
    writable = {one for one in printed(code).split() if not one.startswith(("/proc", "/dev"))}
    assert writable == set()
