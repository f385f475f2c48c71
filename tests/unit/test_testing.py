import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
def test_the_contracts_name_the_extra_they_need(missing: str) -> None:
    """Where pytest or hypothesis is missing, the import error says what to install."""
    code = f"import sys; sys.modules[{missing!r}] = None; import belated.testing"
    process = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 1
    assert "belated.testing needs an extra: pip install 'belated[testing]'" in process.stderr
