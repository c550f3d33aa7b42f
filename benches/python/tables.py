"""A million rows from Arrow memory into PostgreSQL, and back into polars."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import rapidbyte as rb
from figures import Bench, missing
from support import Server

#: Rows of a batch in the Arrow table that is written.
BATCH_ROWS = 65_536
#: pandas' `to_sql`, which polars calls, sends rows as statements: it gets a tenth of them.
SLOW_SHARE = 10

COLUMNS = """id bigint NOT NULL, name text NOT NULL, amount double precision NOT NULL, quantity integer NOT NULL,
    active boolean NOT NULL, created_at timestamptz NOT NULL, note text NOT NULL"""
#: The values of the workload `narrow` of `cargo xtask bench`.
VALUES = """SELECT i, 'customer ' || i, i * 0.37, i % 1000, i % 3 = 0,
    timestamptz '2020-01-01 00:00:00Z' + i * interval '17 seconds', substr(md5(i::text), 1, 20)
    FROM generate_series(1, {rows}) AS i"""


class Tables:
    """A server with the rows in `source`, and an empty table `items`."""

    def __init__(self, rows: int) -> None:
        import psycopg
        import pyarrow as pa

        # PostgreSQL's defaults for durability; no vacuum while something is measured.
        self.server = Server({"shared_buffers": "128MB", "max_wal_size": "4GB", "autovacuum": "off"})
        self.url = self.server.url
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.sql(f"CREATE TABLE source ({COLUMNS})")
        self.sql(f"INSERT INTO source {VALUES.format(rows=rows)}")
        self.sql("VACUUM ANALYZE source")
        self.sql(f"CREATE TABLE items ({COLUMNS})")
        # For documents.
        self.sql("CREATE TABLE events (id bigint, name text, amount float8, active bool, created_at text, note text)")
        self.sql(f"CREATE TABLE keyed ({COLUMNS}, PRIMARY KEY (id))")
        table = pa.table(rb.read(self.url, table="source")).combine_chunks()
        self.arrow = pa.Table.from_batches(table.to_batches(max_chunksize=BATCH_ROWS))

    def sql(self, statement: str) -> Any:
        cursor = self.connection.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None

    def empty(self) -> None:
        self.sql("TRUNCATE items")
        self.sql("CHECKPOINT")

    def expect(self, rows: int, table: str = "items") -> None:
        found = self.sql(f"SELECT count(*) FROM {table}")
        assert found == rows, f"{found} rows instead of {rows} are in {table}"


def write(bench: Bench) -> None:
    tables = Tables(bench.rows)
    with tempfile.TemporaryDirectory() as folder:
        parquet = pathlib.Path(folder, "items.parquet")
        rb.write(tables.arrow, parquet, mode="replace")
        from_parquet = {
            "version": 1,
            "pipeline": "bench",
            "source": {"use": "source-file", "config": {"path": str(parquet)}, "streams": ["items"]},
            "destination": {"use": "dest-postgres", "config": {"url": tables.url}, "write_mode": "append"},
        }
        ours, copy = "rapidbyte.write", "rapidbyte.run from Parquet"
        work: dict[str, Any] = {
            ours: lambda: rb.write(tables.arrow, tables.url, table="items"),
            copy: lambda: rb.run(from_parquet),
        }
        if not missing("ADBC", "adbc_driver_postgresql"):
            work["adbc_ingest"] = lambda: _adbc_ingest(tables)
        if not missing("DuckDB", "duckdb", "duckdb_extension_postgres_scanner"):
            work["DuckDB"] = lambda: _duckdb_insert(tables)
        figures = bench.in_turn(
            "write from Arrow", work, before=tables.empty, after=lambda _: tables.expect(bench.rows)
        )
    bench.compare(figures, ours, {copy: 0.95, "adbc_ingest": 1.2, "DuckDB": 1.5})
    _write_slowly(bench, tables)
    _upsert(bench, tables)


def _adbc_ingest(tables: Tables) -> None:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(tables.url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("items", tables.arrow, mode="append")
        connection.commit()


def _duckdb_insert(tables: Tables) -> None:
    import duckdb
    import duckdb_extension_postgres_scanner as scanner

    files = pathlib.Path(scanner.__file__).parent.rglob("*.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute(f"LOAD '{next(files)}'")
        connection.execute(f"ATTACH '{tables.url}' AS target (TYPE postgres)")
        connection.register("rows", tables.arrow)
        connection.execute("INSERT INTO target.public.items SELECT * FROM rows")


def _write_slowly(bench: Bench, tables: Tables) -> None:
    if missing("polars", "polars", "sqlalchemy", "pandas"):
        return
    import polars as pl

    rows = bench.rows // SLOW_SHARE
    frame = pl.DataFrame(tables.arrow.slice(0, rows))
    address = tables.url.replace("postgres://", "postgresql+psycopg://")
    ours, theirs = "rapidbyte.write", "polars write_database"
    work = {
        ours: lambda: rb.write(frame, tables.url, table="items"),
        theirs: lambda: frame.write_database("items", address, if_table_exists="append"),
    }
    group = f"write from polars, {rows} rows"
    figures = bench.in_turn(group, work, before=tables.empty, after=lambda _: tables.expect(rows))
    bench.compare(figures, ours, {theirs: 3.0})


def _upsert(bench: Bench, tables: Tables) -> None:
    """A tenth of the rows into a table that has them all; ADBC has no upsert, so it ingests and merges."""
    tables.sql("INSERT INTO keyed SELECT * FROM source")
    tables.sql("VACUUM ANALYZE keyed")
    rows = tables.arrow.slice(0, bench.rows // 10)
    ours, theirs = "rapidbyte.write", "adbc_ingest, INSERT … ON CONFLICT"
    work: dict[str, Any] = {ours: lambda: rb.write(rows, tables.url, table="keyed", mode="upsert", key="id")}
    if not missing("ADBC", "adbc_driver_postgresql"):
        work[theirs] = lambda: _adbc_upsert(tables, rows)
    figures = bench.in_turn(
        f"upsert of {rows.num_rows} of {bench.rows} rows",
        work,
        before=lambda: tables.sql("CHECKPOINT"),
        after=lambda _: tables.expect(bench.rows, "keyed"),
    )
    bench.compare(figures, ours, {theirs: None})


def _adbc_upsert(tables: Tables, rows: Any) -> None:
    from adbc_driver_postgresql import dbapi

    changed = ", ".join(f"{name} = excluded.{name}" for name in rows.column_names if name != "id")
    with dbapi.connect(tables.url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("arrived", rows, mode="create", temporary=True)
        merge = f"INSERT INTO keyed SELECT * FROM arrived ON CONFLICT (id) DO UPDATE SET {changed}"
        cursor.execute(merge)
        connection.commit()


def read(bench: Bench) -> None:
    if missing("reading into polars", "polars"):
        return
    import polars as pl

    tables = Tables(bench.rows)
    query = "SELECT * FROM source"
    ours = "rapidbyte.read"
    work: dict[str, Any] = {ours: lambda: pl.DataFrame(rb.read(tables.url, table="source"))}
    if not missing("connectorx", "connectorx"):
        work["connectorx"] = lambda: pl.read_database_uri(query, tables.url, engine="connectorx")
    if not missing("ADBC", "adbc_driver_postgresql"):
        work["ADBC"] = lambda: pl.read_database_uri(query, tables.url, engine="adbc")

    def check(frame: Any) -> None:
        assert frame.height == bench.rows

    figures = bench.in_turn("read into polars", work, after=check)
    bench.compare(figures, ours, {"connectorx": 1.0, "ADBC": 1.0})


