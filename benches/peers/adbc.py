"""ADBC: Arrow batches by COPY from one driver to the other."""

import os

import adbc_driver_postgresql.dbapi as postgresql

with (
    postgresql.connect(os.environ["BENCH_SOURCE"]) as source,
    postgresql.connect(os.environ["BENCH_TARGET"]) as target,
    source.cursor() as reading,
    target.cursor() as writing,
):
    reading.execute("SELECT * FROM public.items")
    batches = reading.fetch_record_batch()
    writing.adbc_ingest("items", batches, mode="append", db_schema_name="bench")
    target.commit()
