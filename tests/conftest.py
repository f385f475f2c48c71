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
