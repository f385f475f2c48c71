"""Configuration of all tiers: the size of the tests, and the settings of hypothesis."""

import os
import sys

import hypothesis
import pytest

hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.register_profile("full", deadline=None, max_examples=2_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--full`."""
    parser.addoption("--full", action="store_true", help="run every test at its full size")


def pytest_configure(config: pytest.Config) -> None:
    """Select the settings of hypothesis."""
    if config.getoption("--full"):
        hypothesis.settings.load_profile("full")
    else:
        hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Return whether to run at full size: `n = 10_000 if full else 500`."""
    return bool(request.config.getoption("--full"))


#: Skip reasons of tests that run only at full size.
FULL_SIZE = ("full size only", "--full")
_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record tests that are skipped for another reason than their size."""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not any(size in reason for size in FULL_SIZE):
            _skipped.append(f"{report.nodeid}: {reason}")


def _skips_fail() -> bool:
    """Return whether every test must run: in CI on Linux, where nothing may be missing.

    Other systems have no fork, no SIGKILL or no /proc, and tests that need them skip there.
    """
    return bool(os.environ.get("CI")) and sys.platform == "linux"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if a test was skipped that must run."""
    if _skips_fail() and _skipped and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the skipped tests in CI."""
    if os.environ.get("CI") and _skipped:
        what_to_do = ": install what is missing" if _skips_fail() else ""
        terminalreporter.section(f"skipped in CI{what_to_do}")
        for line in _skipped:
            terminalreporter.line(line)
