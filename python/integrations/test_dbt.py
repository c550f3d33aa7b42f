"""dbt builds the models of `examples/dbt`, and Rapidbyte exports each model that asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import unittest
from urllib.parse import urlsplit

import rapidbyte as rb
from examples import EXAMPLES
from support import Folder, Server


class Dbt(Folder):
    def setUp(self) -> None:
        super().setUp()
        # dbt writes below the project.
        self.project = self.folder / "dbt"
        shutil.copytree(EXAMPLES / "dbt", self.project)
        place = urlsplit(Server.get().url)
        self.environment = {
            **os.environ,
            "SHOP_HOST": str(place.hostname),
            "SHOP_PORT": str(place.port),
            "SHOP_USER": str(place.username),
            "SHOP_DATABASE": place.path.strip("/"),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }

    def run_example(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(self.project / "run_and_export.py"), "exports"]
        return subprocess.run(command, capture_output=True, text=True, env=self.environment)

    def test_a_model_is_exported_after_it_was_built(self) -> None:
        done = self.run_example()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        [batch] = rb.read("exports/customers.parquet")
        self.assertEqual(batch.to_pylist(), [{"id": 1, "name": "ADA"}, {"id": 2, "name": "BO"}])
        self.assertEqual([file.name for file in (self.folder / "exports").iterdir()], ["customers.parquet"])

    def test_nothing_is_exported_after_a_failure(self) -> None:
        (self.project / "models" / "customers.sql").write_text(
            '{{ config(materialized="table", meta={"export": "customers.parquet"}) }} select 1 / 0 as id'
        )
        self.assertEqual(self.run_example().returncode, 1)
        self.assertFalse((self.folder / "exports").exists())


if __name__ == "__main__":
    unittest.main()
