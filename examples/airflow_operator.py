"""An operator of Apache Airflow 3 that runs a pipeline of Rapidbyte, and a DAG with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException

import rapidbyte as rb


class RapidbyteOperator(BaseOperator):
    """Runs a pipeline. Its XCom has the run's id, its rows and its warnings.

    ``variables`` are values for ``${NAME}`` in the pipeline. They come from Airflow's connections and variables by
    templates: ``"{{ conn.shop.get_uri() }}"``.
    """

    template_fields: Sequence[str] = ("pipeline", "variables", "select")

    def __init__(
        self,
        *,
        pipeline: str | Mapping[str, Any],
        variables: Mapping[str, Any] | None = None,
        select: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.pipeline = pipeline
        self.variables = variables
        self.select = select
        self._cancel: rb.Cancel | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        # Made here: an operator is copied and pickled.
        self._cancel = rb.Cancel()
        try:
            report = rb.run(self.pipeline, params=self.variables, select=self.select, cancel=self._cancel)
        except (rb.ConfigError, rb.AuthError, rb.SchemaError, rb.DataError) as error:
            # Another attempt would end in the same way.
            raise AirflowFailException(str(error)) from error
        for warning in report.warnings:
            self.log.warning("%s: %s", warning.stream, warning.message)
        self.log.info("%s rows in %.1f s", report.rows, report.total_secs)
        return {
            "run_id": report.run_id,
            "rows": report.rows,
            "warnings": [warning.message for warning in report.warnings],
        }

    def on_kill(self) -> None:
        if self._cancel is not None:
            self._cancel.cancel()


with DAG("copy_people", schedule=None, default_args={"retries": 2}):
    RapidbyteOperator(
        task_id="people",
        pipeline=os.environ.get("PEOPLE_PIPELINE", "pipelines/people.yaml"),
        variables={"OUT": "{{ var.value.get('people_folder', 'out') }}"},
    )
