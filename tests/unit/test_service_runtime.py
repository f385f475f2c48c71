from __future__ import annotations

import subprocess
import sys

import pytest

GIVES_WAY = """
import os, threading
from belated.service.runtime import _ThreadBackground

os.nice({nice})
found = _ThreadBackground("work").submit(
    lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
)
print(found.result())
"""


@pytest.mark.parametrize(("nice", "expected"), [(0, 10), (15, 15)])
def test_work_in_the_background_gives_way(nice: int, expected: int) -> None:
    """Also in a process that gives way more than that: only root could take it back."""
    code = GIVES_WAY.format(nice=f"{nice} - os.nice(0)" if nice else 0)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == expected
