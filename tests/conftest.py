"""What all tiers share: the size of the proofs and the settings of hypothesis."""

import os

import hypothesis
import pytest

hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.register_profile("full", deadline=None, max_examples=2_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--full`."""
    parser.addoption("--full", action="store_true", help="run every proof at its full size")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the settings of hypothesis."""
    if config.getoption("--full"):
        hypothesis.settings.load_profile("full")
    else:
        hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether to run at full size: `n = 10_000 if full else 500`."""
    return bool(request.config.getoption("--full"))


#: Reasons of skips that say that something is run at full size only.
FULL_SIZE = ("full size only", "--full")
_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what was skipped for another reason than its size."""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not any(size in reason for size in FULL_SIZE):
            _skipped.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a missing tool fails: nothing is skipped for the want of it."""
    if os.environ.get("CI") and _skipped and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests did not run."""
    if os.environ.get("CI") and _skipped:
        terminalreporter.section("skipped in CI: install what is missing")
        for line in _skipped:
            terminalreporter.line(line)
