"""Development tasks: `nox -l` lists them, `nox -s <name>` runs one.

Arguments after `--` are passed to the tool: `nox -s laws -- --full` runs the laws at full size.
"""

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "layers", "docs", "wheel", "tests-3.11"]

PYTHONS = ["3.11", "3.12", "3.13"]
TIERS = ["unit", "laws", "statistical", "integration", "faults", "fuzz", "acceptance"]


def install(session: nox.Session) -> None:
    """Install the pinned tools, and the project in editable mode."""
    session.install("--require-hashes", "-r", "requirements/dev.txt")
    session.install("--no-deps", "--no-build-isolation", "-e", ".")
    session.env["OPENBLAS_NUM_THREADS"] = "1"


@nox.session(python=PYTHONS[0])
def lint(session: nox.Session) -> None:
    """Check style and format."""
    install(session)
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(python=PYTHONS[0])
def types(session: nox.Session) -> None:
    """Check types."""
    install(session)
    session.run("mypy", *session.posargs)
    with session.chdir("benchmarks"):  # benchmarks import each other as top-level modules
        session.run("mypy", "--config-file", "../pyproject.toml", ".")


@nox.session(python=PYTHONS[0])
def layers(session: nox.Session) -> None:
    """Check that modules import only modules of lower layers."""
    install(session)
    session.run("lint-imports")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run all tests, including doctests."""
    install(session)
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS[0])
def coverage(session: nox.Session) -> None:
    """Measure line and branch coverage of the library; fail below 97 %."""
    install(session)
    session.run("coverage", "erase")
    loaded = "tests/unit/test_packaging.py::test_importing_belated_loads_what_deciding_needs"
    unmeasured = ("--deselect", loaded)  # coverage itself imports further modules
    session.run("coverage", "run", "-m", "pytest", *unmeasured, *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session(python=PYTHONS[0])
def mutation(session: nox.Session) -> None:
    """Check that tests detect small changes to the code; fail if they miss 15 % of them."""
    install(session)
    session.install("--require-hashes", "-r", "requirements/mutation.txt")
    session.run("python", "-m", "tests.mutation", *session.posargs)


def tier(session: nox.Session) -> None:
    """Run the tests of one tier."""
    install(session)
    session.run("pytest", f"tests/{session.name}", *session.posargs)


for name in TIERS:
    if Path("tests", name).is_dir():
        nox.session(tier, python=PYTHONS[0], name=name)


@nox.session(python=PYTHONS[0])
def docs(session: nox.Session) -> None:
    """Build the documentation and run the code in it."""
    install(session)
    session.run("sphinx-build", "-W", "--keep-going", "docs", "docs/_build", *session.posargs)
    session.run("pytest", "README.md", "docs")


@nox.session(python=PYTHONS[0])
def wheel(session: nox.Session) -> None:
    """Build the wheel, and test it with only the base dependencies."""
    install(session)
    session.run("bash", ".ci/wheel", external=True)


EXTRAS = ["fast", "postgres", "kafka", "service", "client", "archive", "report", "experiments"]


@nox.session(python=PYTHONS[0])
@nox.parametrize("extra", EXTRAS)
def extras(session: nox.Session, extra: str) -> None:
    """Test one extra alone: its features work, and other features name the extra they need."""
    session.install(f".[{extra}]")
    session.run("python", "tests/extras.py", extra)


@nox.session(python=PYTHONS[0])
def release(session: nox.Session) -> None:
    """Check types as users' tools see them; write the SBOM and the licenses to dist/."""
    dist = Path("dist")
    dist.mkdir(exist_ok=True)
    session.install("--require-hashes", "-r", "requirements/image.txt")
    session.install("--no-deps", ".")
    tools = session.create_tmp()
    python = str(Path(session.bin, "python"))
    session.run("python", "-m", "venv", tools)
    run = str(Path(tools, "bin")) + "/"
    session.run(
        f"{run}pip", "install", "--quiet", "--require-hashes", "-r", "requirements/release.txt",
        external=True,
    )  # fmt: skip
    program = shutil.copy("tests/typed_program.py", tools)  # away from the sources
    session.run(f"{run}pyright", "--pythonpath", python, program, external=True)
    session.run(
        f"{run}cyclonedx-py", "environment", python, "--pyproject", "pyproject.toml",
        "--output-reproducible", "--output-file", "dist/belated.cdx.json", external=True,
    )  # fmt: skip
    session.run(
        f"{run}pip-licenses", f"--python={python}", "--format=json", "--from=mixed",
        "--output-file=dist/licences.json", external=True,
    )  # fmt: skip
    session.run("python", "tests/licences.py", "dist/licences.json")


@nox.session(python=PYTHONS[0])
def audit(session: nox.Session) -> None:
    """Check the pins for known vulnerabilities; with `-- --strict`, fail if this is impossible."""
    install(session)
    session.run("python", ".ci/audit", *session.posargs)


@nox.session(python=PYTHONS[0])
def benchmarks(session: nox.Session) -> None:
    """Run every benchmark and print its table; `-- --quick` only checks that each one runs."""
    install(session)
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(python=PYTHONS[0])
def experiments(session: nox.Session) -> None:
    """Run every experiment and write its table; `-- --quick` checks the committed tables."""
    install(session)
    session.run("python", "-m", "experiments", *session.posargs)


@nox.session(python=PYTHONS[0])
def pins(session: nox.Session) -> None:
    """Write the pinned requirements; `-- --upgrade` selects the newest versions."""
    session.install("uv")
    project, as_in_dev = "pyproject.toml", ("--constraint", "requirements/dev.txt")
    for name, source in {
        "dev": [project, "--extra", "fast", "--group", "dev"],
        "base": [project, *as_in_dev],
        "service": [project, "--extra", "service", *as_in_dev],
        "image": [
            project,
            "--extra",
            "service",
            "--extra",
            "postgres",
            "--extra",
            "fast",
            *as_in_dev,
        ],
        "build": ["--group", "build", *as_in_dev],
        "release": ["--group", "release", *as_in_dev],
        "mutation": ["--group", "mutation"],
    }.items():
        session.run(
            "uv", "pip", "compile", *source, "--output-file", f"requirements/{name}.txt",
            "--universal", "--python-version", PYTHONS[0], "--generate-hashes",
            "--custom-compile-command", "nox -s pins", "--quiet", *session.posargs,
        )  # fmt: skip
