"""Draw docstrings, error messages, pages and comments for a reader to judge: a script.

``python -m tests.english_sample COMMIT`` reads the files of that commit and prints a Markdown list.
The commit's hash is the seed, so nobody can choose what is drawn.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import subprocess
import tokenize
from collections.abc import Iterator

#: How many of each kind.
SIZES = {"docstrings": 60, "errors": 30, "pages": 20, "comments": 30}
#: Comments for tools.
DIRECTIVES = ("# type:", "# noqa", "# fmt")
Text = tuple[str, str]  # where it is, and what it says


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    commit = _git("rev-parse", "--verify", f"{parser.parse_args().commit}^{{commit}}").strip()
    files = _git("ls-tree", "-r", "--name-only", commit).splitlines()
    found: dict[str, list[Text]] = {kind: [] for kind in SIZES}
    for file in files:
        if file.startswith("src/belated/") and file.endswith(".py"):
            source = _git("show", f"{commit}:{file}")
            tree = ast.parse(source)
            found["docstrings"] += _docstrings(file, tree)
            found["errors"] += _errors(file, tree)
            found["comments"] += _comments(file, source)
        elif file.endswith(".md") and (file.startswith("docs/") or "/" not in file):
            found["pages"].append((file, ""))
    generator = random.Random(commit)
    print(f"Drawn from {commit}.")
    for kind, size in SIZES.items():
        print(f"\n## {size} of {len(found[kind]):,} {kind}\n")
        for n, (place, text) in enumerate(generator.sample(found[kind], size), 1):
            print(f"{n}. `{place}`" + "".join(f"\n   > {line}" for line in text.splitlines()))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _docstrings(file: str, tree: ast.Module) -> Iterator[Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = getattr(node, "name", "module")
            if text := ast.get_docstring(node):
                yield f"{file}:{getattr(node, 'lineno', 1)} {name}", text


def _errors(file: str, tree: ast.Module) -> Iterator[Text]:
    """Yield texts that are raised, or assigned to a variable `message`, with a space in them."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=[(ast.Constant() | ast.JoinedStr()) as text, *_])):
                pass
            case ast.Assign(targets=[ast.Name(id="message")], value=text):
                pass
            case _:
                continue
        if " " in (written := ast.unparse(text)).strip("'\""):
            yield f"{file}:{node.lineno}", written


def _comments(file: str, source: str) -> Iterator[Text]:
    """Yield comments; those in consecutive lines are one."""
    last, lines = -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(DIRECTIVES):
            continue
        line = token.start[0]
        if lines and line != last + 1:
            yield f"{file}:{last}", "\n".join(lines)
            lines = []
        lines.append(token.string)
        last = line
    if lines:
        yield f"{file}:{last}", "\n".join(lines)


if __name__ == "__main__":
    main()
