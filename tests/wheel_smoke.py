"""Tries the installed wheel where only the base dependencies are: a script, not a test file.

It runs without pytest: `python tests/wheel_smoke.py`, see .ci/wheel.
"""

import doctest
import importlib.metadata
import importlib.resources
import importlib.util
import os
import re
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def check_install() -> None:
    """The wheel is what is imported; it has its types and its version."""
    import belated

    assert belated.__file__ is not None
    assert not Path(belated.__file__).is_relative_to(ROOT), belated.__file__
    assert importlib.resources.files("belated").joinpath("py.typed").is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert importlib.metadata.version("belated") == project["version"]


def run_readme() -> int:
    """Run the Python blocks of README.md in one namespace; give back how many there are."""
    path = ROOT / "README.md"
    blocks = re.findall(
        r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    namespace: dict[str, object] = {"__name__": "__main__"}
    runner = doctest.DocTestRunner()
    for number, block in enumerate(blocks, start=1):
        name = f"{path.name}, block {number}"
        if ">>> " in block:
            test = doctest.DocTestParser().get_doctest(block, namespace, name, None, None)
            assert runner.run(test, clear_globs=False).failed == 0, name
            namespace |= test.globs
        else:
            exec(compile(block, name, "exec"), namespace)
    return len(blocks)


def main() -> None:
    """Run every check."""
    assert importlib.util.find_spec("numba") is None, "numba must be absent here"
    check_install()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # its files are left nowhere
        blocks = run_readme()
        os.chdir(ROOT)
    assert blocks, "README.md has no Python block"
    print(f"the wheel works without extras; README.md: {blocks} Python blocks run")


if __name__ == "__main__":
    main()
