"""DuckDB: both databases attached, one INSERT … SELECT."""

import os

import duckdb
import duckdb_extension_postgres_scanner

extension = os.path.dirname(duckdb_extension_postgres_scanner.__file__)
files = [
    os.path.join(folder, name)
    for folder, _, names in os.walk(extension)
    for name in names
    if name.endswith(".duckdb_extension")
]
connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
connection.execute(f"LOAD '{files[0]}'")
for name, url in (("source", "BENCH_SOURCE"), ("target", "BENCH_TARGET")):
    quoted = os.environ[url].replace("'", "''")
    options = ", READ_ONLY" if name == "source" else ""
    connection.execute(f"ATTACH '{quoted}' AS {name} (TYPE postgres{options})")
connection.execute("INSERT INTO target.bench.items SELECT * FROM source.public.items")
