"""A resource of dlt as rows."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import Any

import dlt
import rapidbyte as rb
from support import Folder, Server


@dlt.resource(name="people")
def people(pages: int) -> Iterator[Any]:
    for page in range(pages):
        yield [{"id": 10 * page + n, "name": f"name {n}", "tags": ["a", {"n": n}]} for n in range(10)]


class Dlt(Folder):
    def test_a_resource_is_written_with_its_transformers(self) -> None:
        url = Server.get().url
        resource = people(50).add_map(lambda row: {**row, "twice": 2 * row["id"]}).add_filter(lambda row: row["id"] % 2)
        report = rb.write(resource, url, table="people", mode="replace", key="id")
        self.assertEqual(report.rows, 250)
        [batch] = rb.read(url, query="select max(twice) as twice, count(*) as rows from public.people")
        self.assertEqual(batch.to_pylist(), [{"twice": 998, "rows": 250}])
        rb.write(people(60), url, table="people", mode="upsert", key="id")
        [batch] = rb.read(url, query="select count(*) as rows, count(twice) as twice from public.people")
        self.assertEqual(batch.to_pylist(), [{"rows": 600, "twice": 250}])


if __name__ == "__main__":
    unittest.main()
