"""dlt: its SQL source by Arrow into its PostgreSQL destination."""

import os
import tempfile

import dlt
from dlt.sources.sql_database import sql_table


def url(variable):
    return os.environ[variable].replace("postgres://", "postgresql://", 1)


with tempfile.TemporaryDirectory() as folder:
    pipeline = dlt.pipeline(
        "bench",
        pipelines_dir=folder,
        destination=dlt.destinations.postgres(url("BENCH_TARGET")),
        dataset_name="bench",
    )
    items = sql_table(
        url("BENCH_SOURCE"), "items", schema="public", backend="pyarrow", chunk_size=50_000
    )
    pipeline.run(items, write_disposition="append").raise_on_failed_jobs()
