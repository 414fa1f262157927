#!/bin/sh
# The compiler of `cargo xtask fuzz` (RUSTC_WRAPPER): code of our own crates is instrumented for libFuzzer, by the
# flags that cargo-fuzz gives to every crate (all of them stable ones); what is below them is left as the tests
# have built it.
rustc=$1
shift
case " $* " in
    *" --crate-name router_common "* | *" --crate-name router_userspace "* | *" --crate-name router_tests "*)
        exec "$rustc" "$@" -Cpasses=sancov-module \
            -Cllvm-args=-sanitizer-coverage-level=4 \
            -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
            -Cllvm-args=-sanitizer-coverage-pc-table \
            -Cllvm-args=-sanitizer-coverage-trace-compares \
            -Cllvm-args=-simplifycfg-branch-fold-threshold=0
        ;;
esac
exec "$rustc" "$@"
