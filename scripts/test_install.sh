#!/usr/bin/env bash
# Installs build/release to an empty prefix and builds a small C program against it, as a user would: once with
# pkg-config, once with find_package(forebay). Both must run; so must the installed command.
set -euo pipefail
# shellcheck source=scripts/steps.sh
. "$(dirname "$0")/steps.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cmake --install "$BUILD/release" --prefix "$prefix" >"$work/log" 2>&1 || { cat "$work/log"; fail "installing failed"; }

cat >"$work/version.c" <<'C'
#include <forebay/forebay.h>
int main(void) { return puts(fby_version()) < 0; }
C
cat >"$work/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(version C)
find_package(forebay 0.1 REQUIRED)
add_executable(version version.c)
target_link_libraries(version forebay::forebay)
C

expect_version()
{
    local how=$1 got
    shift
    got=$("$@") || fail "$how: the program failed"
    [[ $got == *0.1.0* ]] || fail "$how: expected version 0.1.0, got '$got'"
    echo "$how: ok"
}

pc=$(find "$prefix" -name forebay.pc)
[ -n "$pc" ] || fail "forebay.pc was not installed"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
cc "$work/version.c" -o "$work/version" $(pkg-config --cflags --libs forebay)
expect_version "pkg-config" env LD_LIBRARY_PATH="$(pkg-config --variable=libdir forebay)" "$work/version"

cmake -G Ninja -S "$work" -B "$work/found" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "find_package(forebay) failed"; }
cmake --build "$work/found" >"$work/log" 2>&1 || { cat "$work/log"; fail "building with find_package failed"; }
expect_version "find_package" "$work/found/version"

expect_version "the installed command" "$prefix/bin/forebay" --version
