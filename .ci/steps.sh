# Sourced by .ci/run and .ci/quick: installs the project, and runs steps concurrently.

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export work CI=true OPENBLAS_NUM_THREADS=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The tests start hundreds of processes, which share the compiled bytecode.
export PYTHONDONTWRITEBYTECODE=

find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.13 python3; do
        if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "no Python >= 3.11 found" >&2
    return 1
}

packages() { # uv takes a fifth of pip's CPU time; pip installs where uv cannot reach the index
    UV_NATIVE_TLS=true python -m uv pip install --quiet "$@" ||
        python -m pip install --quiet --no-compile "$@"
}

install() { # the pinned packages and the project, in a new environment
    local python
    python=$(find_python)
    "$python" -m venv "$work/venv"
    PATH="$work/venv/bin:$PATH"
    hash -r
    python -m pip install --quiet --require-hashes -r <(sed -n '/^uv==/,/[^\\]$/p' requirements/dev.txt)
    packages --require-hashes -r requirements/dev.txt
    packages --no-deps --no-build-isolation -e .
    belated warm # otherwise many of the tests' processes would compile the kernels
    python --version
}

lint() {
    ruff check && ruff format --check && lint-imports
}

types() {
    mypy && cd benchmarks && mypy --config-file ../pyproject.toml .
}

step() { # runs "name: command", prints its output when it has ended
    local name=${1%%: *} log result=ok
    log=$(mktemp "$work/log.XXXXXX")
    bash -euo pipefail -c "${1#*: }" >"$log" 2>&1 || result=FAILED
    printf '== %s\n%s\n== %s: %s, %s s\n' "$name" "$(cat "$log")" "$name" $result $SECONDS
    printf '%-8s %5s s  %s: %s\n' $result $SECONDS "$name" "$(tail -n 1 "$log")" >>"$work/results"
    [[ $result == ok ]] || printf '== %s\n%s\n' "$name" "$(tail -n 60 "$log")" >>"$work/failures"
}
export -f lint types step

steps() { # runs each line of its input as a step, $1 at a time; fails if any step fails
    grep . | tr '\n' '\0' | xargs -0 -n 1 -P "$1" bash -c 'step "$1"' step
    if [[ -e $work/failures ]]; then
        echo "== the last lines of each failed step:"
        cat "$work/failures"
    fi
    echo "== after $SECONDS s:"
    cat "$work/results"
    [[ ! -e $work/failures ]]
}
