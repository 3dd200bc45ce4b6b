#!/bin/sh
# run_model.sh MODEL MUTATION holds|fails: searches all states of a Promela model with spin. Exit code 0 when the
# model has no error (holds), or when it has one (fails: a mutation that must be found).
set -eu

model=$1
mutation=$2
expected=$3

if ! command -v spin >/dev/null; then
    echo "spin is not installed: it is needed for the model of sleep and wake (Debian's package is \`spin\`)" >&2
    exit 1
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$model" "$folder/model.pml"
cd "$folder"

spin -a -DMUTATION="$mutation" model.pml
${CC:-cc} -O2 -w -DSAFETY -o pan pan.c
# -n: no list of unreached lines; -m: the depth that the search may reach.
./pan -n -m100000 >report || true
cat report

if grep -q "max search depth too small" report || ! grep -q "errors: " report; then
    echo "the search was not complete" >&2
    exit 1
fi
if grep -q "errors: 0" report; then
    found=holds
else
    found=fails
fi
if [ "$found" != "$expected" ]; then
    echo "mutation $mutation: expected that the model $expected, but it $found" >&2
    spin -t -p -DMUTATION="$mutation" model.pml 2>/dev/null | tail -60 >&2 || true
    exit 1
fi
