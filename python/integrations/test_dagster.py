"""Dagster materializes the asset of `examples/dagster_asset.py`."""

from __future__ import annotations

import os
import unittest

import dagster as dg
from examples import load, prepare
from support import Folder


class Dagster(Folder):
    def test_an_asset_has_the_rows_of_the_run(self) -> None:
        os.environ["PEOPLE_PIPELINE"] = str(prepare(self.folder))
        example = load("dagster_asset.py")
        done = dg.materialize([example.people])
        self.assertTrue(done.success)
        [event] = done.asset_materializations_for_node("people")
        self.assertEqual(event.metadata["dagster/row_count"].value, 2)
        self.assertTrue((self.folder / "out" / "people.parquet").is_file())

    def test_bad_data_fails_the_asset_with_its_place(self) -> None:
        os.environ["PEOPLE_PIPELINE"] = str(prepare(self.folder, "id,name\n1\n"))
        example = load("dagster_asset.py")
        done = dg.materialize([example.people], raise_on_error=False)
        self.assertFalse(done.success)
        failure = done.failure_data_for_node("people")
        self.assertIn("people.csv:2", failure.error.to_string())


if __name__ == "__main__":
    unittest.main()
