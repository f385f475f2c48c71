"""What each test of a spool has: a journal and a disk of its own."""

from __future__ import annotations

import pytest

from belated.testing import ManualClock
from tests.unit.spool.moody import Disk, Moody


@pytest.fixture
def moody() -> Moody:
    """The journal behind."""
    return Moody(clock=ManualClock(1000))


@pytest.fixture
def disk() -> Disk:
    """Where events wait."""
    return Disk()
