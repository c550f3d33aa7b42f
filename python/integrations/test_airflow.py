"""Apache Airflow runs the DAG of `examples/airflow_operator.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import unittest

import rapidbyte as rb
from examples import EXAMPLES, prepare
from support import Folder


class Airflow(Folder):
    def setUp(self) -> None:
        super().setUp()
        home = self.folder / "airflow"
        (home / "dags").mkdir(parents=True)
        shutil.copy(EXAMPLES / "airflow_operator.py", home / "dags")
        self.environment = {
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PEOPLE_PIPELINE": str(self.folder / "people.yaml"),
        }
        for command in (["db", "migrate"], ["dags", "reserialize"]):
            done = self.airflow(*command)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def airflow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "airflow", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=self.environment)

    def test_a_dag_runs_a_pipeline_or_fails_without_another_attempt(self) -> None:
        prepare(self.folder)
        done = self.airflow("dags", "test", "copy_people")
        told = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, told)
        self.assertRegex(told, "2 rows in ")
        self.assertEqual(sum(batch.num_rows for batch in rb.read("out/people.parquet")), 2)

        prepare(self.folder, "id,name\n1\n")
        done = self.airflow("dags", "test", "copy_people")
        told = done.stdout + done.stderr
        self.assertIn("people.csv:2", told)
        self.assertIn("AirflowFailException", told)
        self.assertNotIn("up_for_retry", told.lower())


if __name__ == "__main__":
    unittest.main()
