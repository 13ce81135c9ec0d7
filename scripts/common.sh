# What the scripts here share. To be sourced.
# shellcheck shell=bash

# The exit code of a step that could not run.
did_not_run=77

# Builds the models for a checker (loom or shuttle), with more cfgs if need be, and prints the program's path. Only the
# crate itself is built anew for another set of them.
build_models() {
    local checker=$1 cfgs=()
    shift
    for cfg in "$@"; do cfgs+=(--cfg "$cfg"); done
    CARGO_TARGET_DIR="target/$checker" RUSTFLAGS="--cfg $checker" \
        cargo rustc --locked --quiet --lib --profile test --message-format json -- "${cfgs[@]}" |
        python3 -c 'import json, sys
print(next(m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")))'
}
