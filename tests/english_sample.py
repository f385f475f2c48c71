"""Draw a random sample of docstrings, error messages, pages and comments, to review their English.

``python -m tests.english_sample COMMIT`` reads the files of that commit and prints a Markdown list.
The commit's hash is the seed, so nobody can choose the sample.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import subprocess
import tokenize
from collections.abc import Iterator

#: The size of the sample of each kind of text.
SIZES = {"docstrings": 60, "errors": 30, "pages": 20, "comments": 30}
#: Comments for tools.
DIRECTIVES = ("# type:", "# noqa", "# fmt")
Text = tuple[str, str]  # file and line, and the text


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    commit = _git("rev-parse", "--verify", f"{parser.parse_args().commit}^{{commit}}").strip()
    files = _git("ls-tree", "-r", "--name-only", commit).splitlines()
    texts: dict[str, list[Text]] = {kind: [] for kind in SIZES}
    for file in files:
        if file.startswith("src/belated/") and file.endswith(".py"):
            source = _git("show", f"{commit}:{file}")
            tree = ast.parse(source)
            texts["docstrings"] += _docstrings(file, tree)
            texts["errors"] += _errors(file, tree)
            texts["comments"] += _comments(file, source)
        elif file.endswith(".md") and (file.startswith("docs/") or "/" not in file):
            texts["pages"].append((file, ""))
    generator = random.Random(commit)
    print(f"Drawn from {commit}.")
    for kind, size in SIZES.items():
        print(f"\n## {size} of {len(texts[kind]):,} {kind}\n")
        for n, (location, text) in enumerate(generator.sample(texts[kind], size), 1):
            print(f"{n}. `{location}`" + "".join(f"\n   > {line}" for line in text.splitlines()))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _docstrings(file: str, tree: ast.Module) -> Iterator[Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = getattr(node, "name", "module")
            if text := ast.get_docstring(node):
                yield f"{file}:{getattr(node, 'lineno', 1)} {name}", text


def _errors(file: str, tree: ast.Module) -> Iterator[Text]:
    """Yield texts with a space that are raised or assigned to a variable `message`."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=[(ast.Constant() | ast.JoinedStr()) as text, *_])):
                pass
            case ast.Assign(targets=[ast.Name(id="message")], value=text):
                pass
            case _:
                continue
        if " " in (rendered := ast.unparse(text)).strip("'\""):
            yield f"{file}:{node.lineno}", rendered


def _comments(file: str, source: str) -> Iterator[Text]:
    """Yield comments; consecutive lines form one comment."""
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
