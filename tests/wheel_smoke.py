"""Run pages of the documentation with the installed wheel, without numba: a script, not a test.

It runs without pytest: `python tests/wheel_smoke.py [PAGE ...]`, see .ci/wheel. The default page is
README.md, which needs the base dependencies only.
"""

import doctest
import importlib.metadata
import importlib.resources
import importlib.util
import os
import re
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def check_install() -> None:
    """Check that the wheel is imported, with its types and version."""
    import belated

    assert belated.__file__ is not None
    assert not Path(belated.__file__).is_relative_to(ROOT), belated.__file__
    assert importlib.resources.files("belated").joinpath("py.typed").is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert importlib.metadata.version("belated") == project["version"]


def run_page(path: Path) -> int:
    """Run the Python blocks of a page in one namespace, hidden ones too; return their number."""
    matches = re.findall(
        r"^```python\n(.*?)^```|^<!--- invisible-code-block: python\n(.*?)^--",
        path.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    blocks = [shown or hidden for shown, hidden in matches]
    namespace: dict[str, object] = {"__name__": "__main__"}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for number, block in enumerate(blocks, start=1):
        name = f"{path.name}, block {number}"
        if ">>> " in block:
            test = doctest.DocTestParser().get_doctest(block, {}, name, None, None)
            test.globs = namespace  # functions of earlier blocks see what this block assigns
            assert runner.run(test, clear_globs=False).failed == 0, name
        else:
            exec(compile(block, str(path), "exec"), namespace)
    return len(blocks)


def main(pages: list[str]) -> None:
    """Run every check."""
    assert importlib.util.find_spec("numba") is None, "numba must be absent here"
    check_install()
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)  # for the files that the page writes
            blocks = run_page(ROOT / page)
            os.chdir(ROOT)
        assert blocks, f"{page} has no Python block"
        print(f"{page}: {blocks} Python blocks run with the wheel", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["README.md"])
