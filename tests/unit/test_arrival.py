"""Compiled kernels arrive in the background: mostly tried in new processes, which have none."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB
from belated.model import kernels
from belated.model.kernels import arrival
from belated.model.kernels.compiler import (
    NAMES,
    NotCached,
    cache_folder,
    compile_kernel,
    load_kernel,
)
from belated.model.model import Model
from tests.command_line import Command

pytest.importorskip("numba")

DECIDE = """
import os, sys, time
from datetime import timedelta
import numpy as np
from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.model import kernels
from belated.model.kernels import arrival

def decide():
    bandit = Bandit(policy=DelayedUCB(3, Bernoulli()), rewards=Explicit(timedelta(days=1)), seed=0)
    return bandit, [bandit.decide(rows=np.eye(3)).propensity for _ in range(5)]

def wait():
    start = time.monotonic()
    while kernels.complete() is kernels.plain() and time.monotonic() - start < 300:
        time.sleep(0.01)

"""


def run(code: str, cache: Path | None = None) -> list[str]:
    """What a new process prints that decides, by word; with a cache of its own if one is given."""
    environment = dict(os.environ)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    # From Python 3.12 on, a fork beside a thread is warned of.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", DECIDE + code]
    process = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=True, timeout=600
    )
    assert process.stderr == ""
    return process.stdout.split()


@pytest.fixture(scope="module")
def warm() -> None:
    """Compile every kernel that is not in the cache yet, as ``belated warm`` does."""
    for name in NAMES:
        compile_kernel(name)


def test_the_first_decision_waits_for_nothing(tmp_path: Path) -> None:
    """Plain kernels answer, and a process that ends at once has not even loaded numba."""
    code = "decide(); print(kernels.complete() is kernels.plain(), 'numba' in sys.modules)"
    assert run(code, tmp_path) == ["True", "False"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("warm")
def test_kernels_in_the_cache_arrive_in_a_bandit_that_is_there() -> None:
    """Nothing is compiled, and the model that decided with plain kernels has them all."""
    code = """
bandit, _ = decide()
arrival._Arrival._compiled_elsewhere = None
wait()
used = bandit._decider.model._kernels
print(used is kernels.best(), all(hasattr(getattr(used, n), "signatures") for n in vars(used)))
"""
    assert run(code) == ["True", "True"]


def test_the_end_of_a_process_ends_the_compiler(tmp_path: Path) -> None:
    """It does not wait for it either, and nothing crashes."""
    code = """
decide()
while arrival._arrival._child is None:
    time.sleep(0.01)
print(arrival._arrival._child.pid)
"""
    (pid,) = run(code, tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_what_is_compiled_elsewhere_arrives(tmp_path: Path, full: bool) -> None:
    """From an empty cache."""
    if not full:
        pytest.skip("full size only")
    assert run("decide(); wait(); print(kernels.complete() is kernels.plain())", tmp_path) == [
        "False"
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("seconds", [0.0, 1.1, 1.5])
@pytest.mark.usefixtures("warm")
def test_a_fork_does_not_hang(seconds: float) -> None:
    """Whenever it comes: the child loads the kernels itself."""
    code = f"""
decide()
time.sleep({seconds})
child = os.fork()
if not child:
    decide()
    wait()
    os._exit(kernels.complete() is kernels.plain())
print(os.waitpid(child, 0)[1])
"""
    assert run(code) == ["0"]


def test_without_a_folder_plain_kernels_stay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says what to do."""

    def missing(name: str) -> None:
        raise NotCached(name)

    monkeypatch.setattr(arrival, "load_kernel", missing)
    monkeypatch.setattr(arrival, "cache_folder", lambda: None)
    monkeypatch.setattr(arrival, "SETTLED", 0.0)
    swap = arrival._Arrival()
    with caplog.at_level(logging.WARNING, "belated.model.kernels"):
        swap.start()
        assert swap._thread is not None
        swap._thread.join()
    assert swap.complete is kernels.plain()
    assert swap.kernels.upper is kernels.plain().upper
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_a_kernel_that_is_not_in_the_cache_is_not_compiled(tmp_path: Path) -> None:
    """It is refused."""
    code = """
from belated.model.kernels.compiler import NotCached, load_kernel
try:
    load_kernel("upper")
except NotCached as refused:
    print(refused)
"""
    assert run(code, tmp_path) == ["upper"]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_compiled_once(name: str) -> None:
    """For one signature: a caller never waits for another."""
    compile_kernel(name)
    assert len(load_kernel(name).signatures) == 1  # type: ignore[attr-defined]  # numba's


def test_a_compiled_model_takes_whatever_lies_in_memory() -> None:
    """Rows that are strided, read-only, of other types: all go through one signature."""
    policy = DelayedUCB(3, Bernoulli())
    model = Model(policy.start, policy.family, kernels=kernels.compiled())
    table = np.arange(18.0).reshape(3, 6) / 20.0
    readonly = np.eye(3)
    readonly.flags.writeable = False
    for rows in (table[:, ::2], table[:, :3].T, readonly, np.eye(3, dtype=np.float32), [[1, 0, 0]]):
        index, _, _, weight = model.argmax_ucb(rows, 1)
        row = rows[index]
        model.score(rows)
        model.add_pending(row, weight)
        weight = model.learn(row, 1)
        model.revise(row, 1, 0)
        assert model.retract(row, 0, weight)


@pytest.mark.usefixtures("warm")
def test_warm_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each kernel, and where they are."""
    *lines, last = Command("warm").said(capsys).splitlines()
    assert [line.partition(": ")[0] for line in lines] == list(NAMES)
    assert last.endswith(f" cached in {cache_folder()}")


def test_a_cache_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    """As in a container whose root file system is read-only: nothing is compiled there."""
    from numba.core import caching

    folder = cache_folder()
    assert folder is not None
    kernels.compiled()
    locator: Any = caching.UserProvidedCacheLocator
    subpath = locator.get_suitable_cache_subpath(kernels.__file__)
    shutil.copytree(folder, tmp_path / subpath)
    code = """
import os, tempfile
from belated.model.kernels import compiler

def refused(*args, **kwargs):
    raise OSError("read-only")

tempfile.TemporaryFile, access = refused, os.access
os.access = lambda path, mode: mode != os.W_OK and access(path, mode)
print(all(compiler.load_kernel(name) for name in compiler.NAMES[:3]), compiler.cache_folder())
"""
    assert run(code, tmp_path) == ["True", "None"]
