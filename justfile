# Thin names for `cargo xtask …`; `cargo xtask --help` says what each does. `just` is optional.

# Arguments reach cargo as they were typed, spaces and all.
set positional-arguments

# List the recipes.
default:
    @just --list

# Host and connectors in release, connectors compiled ahead of time.
build:
    cargo xtask build

# Build, then run the quick-start pipeline.
demo:
    cargo xtask demo

# The README's picture of a report page, docs/report.png; needs `chromium`.
picture:
    cargo xtask run pipelines/quickstart.yaml --report target/picture.html
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,690 \
        --screenshot=docs/report.png "file://$PWD/target/picture.html"

# Run a pipeline: `just run pipelines/quickstart.yaml`.
[no-cd]
run +arguments:
    cargo xtask run "$@"

# Every test, or those whose name holds a filter.
test *arguments:
    cargo xtask test "$@"

# The end-to-end tests alone.
e2e *filters:
    cargo xtask test --test e2e "$@"

# INSERT and COPY between two PostgreSQL databases, beside psql: `just bench --rows 1000000 --iters 7`.
bench *arguments:
    cargo xtask bench "$@"

# The same by its older name: `just bench-connector-postgres 50000`.
bench-connector-postgres rows="10000,100000" *arguments:
    cargo xtask bench --rows "$@"

# Two commits in turn, failing on a regression: `just bench-compare v0.1.0 . 100000`.
bench-compare *arguments:
    cargo xtask bench-compare "$@"

# Installs what `just bench --peers` measures beside us, below target/.
bench-peers-setup:
    cargo xtask bench-peers-setup

# What a value, a row, a batch costs in each part of its way: `just bench-parts decode`.
bench-parts *arguments:
    cargo xtask bench-parts "$@"

# Where a copy spends its processor time: `just bench-profile 1000000 copy`, `… 100000 copy wide`.
bench-profile rows method *workload:
    cargo xtask bench-profile "$@"

# What needs no server, against the goals: start-up, loading, throughput, memory.
bench-engine *arguments:
    cargo xtask bench-engine "$@"

# Formatting, clippy for host and connectors, dependencies.
lint:
    cargo xtask lint

# Format the code.
fmt:
    cargo xtask fmt

# What `.ci/run` checks, and a short bench against the last tag, or what is nearest.
ci:
    cargo xtask ci
