# Functions of several scripts. To be sourced.
# shellcheck shell=bash

# The exit code of a step that could not run.
did_not_run=77

# Installs a program's Debian package if the program is missing. Where that fails, the step does not
# run.
need() {
    local program=$1 package=${2:-$1}
    command -v "$program" >/dev/null && return
    if [ "$(id -u)" = 0 ] && { apt-get install -y -qq "$package" || { apt-get update -qq && apt-get install -y -qq "$package"; }; } >/dev/null 2>&1; then
        return
    fi
    echo "did not run: there is no $program, nor could Debian's package $package be installed"
    exit "$did_not_run"
}

# Prints cargo's options that optimise a checker (loom or shuttle) and the packages that it uses:
# that makes loom twice as fast, and shuttle 14 times. No model uses proptest: unoptimised, it takes
# 5 s less of a processor for each checker. The crates themselves are optimised a little: `opt-level
# = 2` takes 24 s of a processor more for each build, and no model is faster for it, while 0 makes
# loom 1.5 times as slow.
optimise_checker() {
    local packages=(generator loom scoped-tls tracing tracing-core)
    [ "$1" = loom ] || packages=(assoc bitvec const-siphasher corosensei rand{,_core,_pcg} scoped-tls
        shuttle{,-engine,-schedulers,-std} smallvec tracing tracing-core)
    printf -- '--config profile.test.package.%s.opt-level=3 ' "${packages[@]}"
    printf -- '--config profile.test.package.%s.codegen-units=1 ' "${packages[@]}"
    printf -- '--config profile.test.package.%s.opt-level=%s ' proptest 0 tollgate 1 tollgate-adaptive 1
}

# Builds a package's models for a checker, with further cfgs, and prints the program's path. For
# another set of cfgs only the crate itself is built anew, over the program of the last set. The
# library `stacks`, for LD_PRELOAD, makes loom three times as fast.
stacks=$PWD/target/stacks.so
build_models() {
    local package=$1 checker=$2 cfgs=()
    shift 2
    for cfg in "$@"; do cfgs+=(--cfg "$cfg"); done
    mkdir -p target
    [ "$stacks" -nt verify/examples/stacks.rs ] ||
        rustc --edition 2024 -O --crate-type cdylib -o "$stacks" verify/examples/stacks.rs
    CARGO_TARGET_DIR="target/$checker" RUSTFLAGS="--cfg $checker" \
        cargo rustc --locked --quiet --package "$package" --lib --profile test --message-format json \
        $(optimise_checker "$checker") -- "${cfgs[@]}" |
        python3 -c 'import json, sys
print(*[m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")])'
}
