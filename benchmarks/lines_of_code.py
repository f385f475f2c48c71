"""Count the source by package: lines of code and of docstrings, modules, classes, exported names.

A line of code is every physical line that is not blank, not a comment, and not part of a docstring
or an import statement. Exported names are those in the ``__all__`` of a package's ``__init__.py``.
A package is a folder or a module directly below ``src/belated``. Code that is not shipped, in
``tests/simulator``, has a row of its own below the total.

With ``--against`` every cell shows the other tree first: before → after.

Run: python benchmarks/lines_of_code.py [--tree PATH-OR-COMMIT] [--against PATH-OR-COMMIT]
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

HERE = Path(__file__).resolve().parent.parent
SHIPPED, UNSHIPPED = PurePosixPath("src/belated"), PurePosixPath("tests/simulator")
COLUMNS = ("code", "docstrings", "modules", "classes", "exported names")
TOTAL = "total"
#: Counts by column, by package.
Table = dict[str, Counter[str]]


def sources(tree: str) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the Python files of a checkout or a commit, with their paths inside it."""
    if Path(tree).is_dir():
        for folder in (SHIPPED, UNSHIPPED):
            for file in Path(tree, folder).rglob("*.py"):
                yield PurePosixPath(file.relative_to(tree)), file.read_text(encoding="utf-8")
        return
    command = ["git", "-C", str(HERE), "archive", "--format=tar", tree]
    archive = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            path = PurePosixPath(member.name)
            if path.suffix == ".py" and {SHIPPED, UNSHIPPED} & set(path.parents):
                content = files.extractfile(member)
                assert content is not None
                yield path, content.read().decode()


def count(path: PurePosixPath, text: str) -> Counter[str]:
    """Count one module."""
    docstrings: set[int] = set()
    imports: set[int] = set()
    classes = exported = 0
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom():
                imports |= _lines(node)
            case ast.Assign(targets=[ast.Name(id="__all__")]) if path.name == "__init__.py":
                exported += len(ast.literal_eval(node.value))
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                classes += isinstance(node, ast.ClassDef)
                if ast.get_docstring(node, clean=False) is not None:
                    docstrings |= _lines(node.body[0])
    code = sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in docstrings
        for number, line in enumerate(text.splitlines(), 1)
        if number not in imports
    )
    return Counter(dict(zip(COLUMNS, (code, len(docstrings), 1, classes, exported), strict=True)))


def _lines(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def count_tree(tree: str) -> Table:
    """Count a tree by package."""
    table: Table = {TOTAL: Counter()}
    for path, text in sources(tree):
        counts, is_shipped = count(path, text), SHIPPED in path.parents
        for name in (_package(path), TOTAL) if is_shipped else (str(UNSHIPPED),):
            table.setdefault(name, Counter()).update(counts)
    return table


def _package(path: PurePosixPath) -> str:
    """Return the folder or module below ``src/belated``, which has files of its own as well."""
    first = PurePosixPath(path.relative_to(SHIPPED).parts[0])
    return SHIPPED.name if first.stem.startswith("__") else first.stem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", default=str(HERE), help="a checkout or a commit (this checkout)")
    parser.add_argument("--against", help="a checkout or a commit to compare with")
    arguments = parser.parse_args()
    after = count_tree(arguments.tree)
    before = count_tree(arguments.against) if arguments.against else None
    last = ("", TOTAL, str(UNSHIPPED))
    names = sorted(
        {*after, *(before or {})}, key=lambda name: (last.index(name if name in last else ""), name)
    )
    print(f"| package | {' | '.join(COLUMNS)} |")
    print("|---|" + "--:|" * len(COLUMNS))
    for name in names:
        cells = []
        for column in COLUMNS:
            cell = f"{after.get(name, Counter())[column]:,}"
            if before is not None:
                cell = f"{before.get(name, Counter())[column]:,} → {cell}"
            cells.append(cell)
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
