"""Apache Airflow runs the DAG of `examples/airflow_operator.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest

HOME = tempfile.TemporaryDirectory(prefix="rapidbyte-airflow-")
os.environ.update(
    AIRFLOW_HOME=HOME.name,
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__UNIT_TEST_MODE="False",
)

from examples import load, prepare  # noqa: E402
from support import Folder  # noqa: E402


def setUpModule() -> None:
    done = subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)


class Airflow(Folder):
    def test_a_dag_runs_a_pipeline(self) -> None:
        os.environ["PEOPLE_PIPELINE"] = str(prepare(self.folder))
        example = load("airflow_operator.py")
        ran = example.dag.test()
        self.assertEqual(str(ran.state), "success")
        [task] = ran.get_task_instances()
        self.assertEqual(task.xcom_pull(task_ids="people")["rows"], 2)
        import rapidbyte as rb

        self.assertEqual(sum(batch.num_rows for batch in rb.read("out/people.parquet")), 2)

    def test_an_error_that_another_attempt_meets_again_fails_at_once(self) -> None:
        from airflow.sdk.exceptions import AirflowFailException

        os.environ["PEOPLE_PIPELINE"] = str(prepare(self.folder, "id,name\n1\n"))
        example = load("airflow_operator.py")
        operator = example.RapidbyteOperator(task_id="people", pipeline=os.environ["PEOPLE_PIPELINE"])
        with self.assertRaises(AirflowFailException) as caught:
            operator.execute({})
        self.assertIn("people.csv:2", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
