# Sourced by the other scripts: where things are, timed steps, and the count that closes a run.
# shellcheck shell=bash disable=SC2034

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/build
RESULTS=${FOREBAY_RESULTS:-$BUILD/results} # a JUnit file per test run, a line per step
VENV=$BUILD/venv
JOBS=${JOBS:-$(nproc)}

# A second build folder or clone finds what the first one compiled.
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1

fail()
{
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Two runs in one tree would build over each other: the second waits.
alone()
{
    [ -z "${FOREBAY_ALONE-}" ] || return 0
    mkdir -p "$BUILD"
    exec 9>"$BUILD/lock"
    flock -n 9 || {
        echo "waiting for another run in this tree to end"
        flock 9
    }
    export FOREBAY_ALONE=1
}

results_start()
{
    rm -rf "$RESULTS"
    mkdir -p "$RESULTS"
}

# step TITLE COMMAND...: runs it with its time; a failure is noted, and is the return value.
step()
{
    local title=$1 begin=$SECONDS status=0
    shift
    printf '\n== %s\n' "$title"
    "$@" || status=$?
    printf '== %s: %s, %d s\n' "$title" "$([ $status = 0 ] && echo ok || echo "FAILED (exit $status)")" \
        $((SECONDS - begin))
    printf '%s\t%d\t%d\n' "$title" $status $((SECONDS - begin)) >>"$RESULTS/steps.tsv"
    return $status
}

# Prints the steps with their times and the totals of everything since results_start; its status is the run's.
results_end()
{
    python3 "$ROOT/scripts/totals.py" "$RESULTS"
}

# build PRESET [TARGET...]: configures and builds it, warnings being errors.
build()
{
    local preset=$1 targets=()
    shift
    [ $# = 0 ] || targets=(--target "$@")
    mkdir -p "$BUILD"
    (cd "$ROOT" && cmake --preset "$preset" -DFOREBAY_WERROR=ON \
        -DFOREBAY_TIMEOUT_SCALE="${FOREBAY_TEST_SCALE:-1}" >"$BUILD/configure-$preset.log" 2>&1) || {
        cat "$BUILD/configure-$preset.log"
        return 1
    }
    (cd "$ROOT" && cmake --build --preset "$preset" -j "$JOBS" "${targets[@]}")
}

# run_ctest PRESET [CTEST OPTION...]
run_ctest()
{
    local preset=$1 name
    shift
    name=$preset$(printf '%s' "$*" | tr -c 'a-zA-Z0-9' '-')
    (cd "$ROOT" && ctest --preset "$preset" -j "$JOBS" --no-tests=error --output-junit "$RESULTS/ctest-$name.xml" "$@")
}

# LeakSanitizer can't make a Criterion run fail: it writes a log, and a log is a failure.
asan_logs_clean()
{
    local log found=0
    for log in "$BUILD"/asan/asan.log*; do
        [ -e "$log" ] || continue
        found=1
        printf -- '-- %s\n' "$log"
        head -60 "$log"
    done
    return $found
}
