"""Reads a file with another program and writes it again with the same program.

Usage: interop.py <pyarrow|duckdb|polars> <input> <output>. The endings tell the formats. Prints
the values of the second row, one `column=text` a line, as the program sees them.
"""

import sys


def main(program, source, target):
    row = {"pyarrow": with_pyarrow, "duckdb": with_duckdb, "polars": with_polars}[program](source, target)
    for name, value in row.items():
        print(f"{name}={value}")


def with_pyarrow(source, target):
    import pyarrow as pa
    import pyarrow.parquet as pq

    if source.endswith(".parquet"):
        table = pq.read_table(source)
    else:
        table = pa.ipc.open_file(source).read_all()
    if target.endswith(".parquet"):
        pq.write_table(table, target, row_group_size=700, compression="brotli", data_page_version="2.0")
    elif target.endswith(".stream.arrow"):
        with pa.ipc.new_stream(target, table.schema) as writer:
            writer.write_table(table, max_chunksize=300)
    else:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(target, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=300)
    return {name: table.column(name)[1].as_py() for name in table.column_names}


def with_duckdb(source, target):
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    rows = connection.from_parquet(source)
    rows.write_parquet(target, compression="gzip")
    values = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM '{source}' LIMIT 1 OFFSET 1").fetchone()
    return dict(zip(rows.columns, values))


def with_polars(source, target):
    import polars

    frame = polars.read_parquet(source) if source.endswith(".parquet") else polars.read_ipc(source)
    if target.endswith(".parquet"):
        frame.write_parquet(target, compression="zstd", row_group_size=700)
    else:
        frame.write_ipc(target, compression="zstd")
    return frame.row(1, named=True)


main(*sys.argv[1:])
