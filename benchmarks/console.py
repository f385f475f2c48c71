"""CPU of a decider with and without a browser that shows the console with a report.

``python benchmarks/console.py`` serves a bandit whose journal holds a month (benchmarks/report.py),
requests 50 decisions per second, and opens the console in a real browser (``.ci/chromium``) every
other time. It prints the CPU share of the decider's process with and without it, the difference
with its standard error, and the CPU share of the processes that compute reports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from report import ACTIONS, CONTEXT, write

from belated import PerArm

sys.path.append(str(Path(__file__).parents[1]))

from tests.integration.chromium import Chromium
from tests.ports import free_port

RATE = 50.0
CONFIG = """
[store]
address = "sqlite:///{path}"
[server]
learn = false
[bandits.shop]
policy = "DelayedThompson(dim={dim}, family=Bernoulli(), floor=0.02)"
rewards = "DefaultAfter('7d')"
retention = "14d"
features = "PerArm({actions}, context={context})"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000, help="in the journal")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    parser.add_argument("--pairs", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, file, port = Path(folder, "shop.db"), Path(folder, "belated.toml"), free_port()
        write(path, options.decisions)
        names = {"actions": list(ACTIONS), "context": list(CONTEXT)}
        dim = PerArm(ACTIONS, context=CONTEXT).dim
        file.write_text(CONFIG.format(path=path, dim=dim, **names), encoding="utf-8")
        command = [sys.executable, "-m", "belated", "serve", str(file), "--port", str(port)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                _wait(port, process)
                _measure(process.pid, port, Path(folder, "profile"), options)
            finally:
                process.terminate()


def _measure(pid: int, port: int, profile: Path, options: argparse.Namespace) -> None:
    ended = threading.Event()
    load = threading.Thread(target=_ask, args=(port, ended), daemon=True)
    load.start()
    with _console(port, Path(f"{profile}-first")) as browser:
        _wait_for_charts(browser)  # until the first report is ready, and everything is warm
    without, opened, children = [], [], []
    for pair in range(options.pairs):
        alone, _ = _span(pid, options.seconds)
        with _console(port, Path(f"{profile}-{pair}")) as browser:
            watched, reporting = _span(pid, options.seconds)
            _wait_for_charts(browser)
        without.append(alone)
        opened.append(watched)
        children.append(reporting)
        print(f"closed {alone:.2%}, open {watched:.2%}, reports {reporting:.2%}", flush=True)
    ended.set()
    load.join()
    extra = np.subtract(opened, without)
    error = extra.std(ddof=1) / len(extra) ** 0.5 if len(extra) > 1 else float("nan")
    print(
        f"the decider takes {np.mean(without):.2%} of a processor at {RATE:.0f} decisions/s,"
        f" {extra.mean():+.2%} ± {error:.2%} while a console is open;"
        f" making reports takes {np.mean(children):.2%}"
    )


def _console(port: int, profile: Path) -> Chromium:
    """Open the console on the bandit's report."""
    browser = Chromium(profile)
    browser.open(f"http://127.0.0.1:{port}/console")
    return browser


def _wait_for_charts(browser: Chromium) -> None:
    deadline = time.monotonic() + 600.0
    while not browser.run("document.querySelectorAll('.chart svg').length"):
        assert time.monotonic() < deadline, browser.run("document.body.innerText")
        time.sleep(1.0)


def _span(pid: int, seconds: float) -> tuple[float, float]:
    """Return the CPU share of a process, and that of its children that have ended."""
    before, start = _cpu(pid), time.monotonic()
    time.sleep(seconds)
    after, span = _cpu(pid), time.monotonic() - start
    return (after[0] - before[0]) / span, (after[1] - before[1]) / span


def _cpu(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    tick = os.sysconf("SC_CLK_TCK")
    return own / tick, children / tick


def _ask(port: int, ended: threading.Event) -> None:
    """Decide at a steady rate, over one connection."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    context = dict.fromkeys(CONTEXT, 0.5)
    body = json.dumps({"context": context, "actions": ACTIONS})
    due = time.monotonic()
    while not ended.is_set():
        connection.request("POST", "/v1/shop/decisions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 201, text
        due += 1.0 / RATE
        time.sleep(max(due - time.monotonic(), 0.0))
    connection.close()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120.0
    while True:
        try:
            urlopen(f"http://127.0.0.1:{port}/livez", timeout=10).close()
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    main()
