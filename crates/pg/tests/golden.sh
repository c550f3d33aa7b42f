#!/usr/bin/env bash
# Captures what a real PostgreSQL sends, for the tests in golden.rs. Makes and drops two databases.
# Needs psql and a server that PGHOST, PGPORT and PGUSER name (PostgreSQL 14 or later, UTF-8).
#   crates/pg/tests/golden.sh
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=crates/pg/tests/golden
ask() { psql -X -q -At -v ON_ERROR_STOP=1 -d "$1" "${@:2}"; }
run() { cargo run -q --release -p rapidbyte-pg --example "$@"; }
settings=$(run queries settings)

for db in golden_source golden_target; do
    ask postgres -c "DROP DATABASE IF EXISTS $db" -c "CREATE DATABASE $db"
    # Other OIDs in the target.
    [ $db = golden_target ] && ask $db -c "CREATE TYPE public.shift AS (a int, b int)"
    ask $db -f "$out/schema.sql"
done

for db in golden_source golden_target; do
    name=${db#golden_}
    oids=$(ask $db -c "SELECT string_agg(oid::text, ',' ORDER BY relname) FROM pg_class
        WHERE relnamespace = 'app'::regnamespace AND relkind IN ('r', 'v')")
    ask $db -c "$settings" -c "$(run queries columns "$oids")" > "$out/$name-columns.jsonl"
    ask $db -c "$settings" -c "$(run queries types "$out/$name-columns.jsonl")" > "$out/$name-types.jsonl"
    for mode in native portable; do
        select=$(run queries select $mode "$out/$name-columns.jsonl" "$out/$name-types.jsonl")
        ask $db -c "$settings" -c "COPY ($select) TO STDOUT (FORMAT binary)" > "$out/$name-$mode.copy"
    done
    ask $db -c "COPY (SELECT array_agg(r ORDER BY id) FROM app.rows r) TO STDOUT (FORMAT binary)" \
        > "$out/$name-rows.copy"
done
ask golden_source -c "$settings" -c "$(run queries named app.label app.deep no.type)" > "$out/named-types.jsonl"
ask golden_source -c "COPY (SELECT * FROM app.edges ORDER BY id) TO STDOUT (FORMAT binary)" > "$out/edges.copy"

ask postgres -v names="$(run names 700)" > "$out/names.jsonl" <<'SQL'
SELECT json_build_array(name, quote_ident(name), quote_literal(name))
FROM json_array_elements_text(:'names') AS name;
SQL
for db in golden_source golden_target; do ask postgres -c "DROP DATABASE $db"; done
