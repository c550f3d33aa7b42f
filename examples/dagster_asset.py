"""A Dagster asset that a pipeline of Rapidbyte fills."""

# Dagster reads the annotations, so they are not postponed here.
import os

import dagster as dg

import rapidbyte as rb


@dg.asset(description="People, as the pipeline writes them")
def people(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    pipeline = os.environ.get("PEOPLE_PIPELINE", "pipelines/people.yaml")
    try:
        report = rb.run(pipeline, on_progress=lambda progress: context.log.debug(f"{progress.rows} rows"))
    except (rb.ConfigError, rb.AuthError, rb.SchemaError, rb.DataError) as error:
        # Another attempt would end in the same way.
        raise dg.Failure(str(error), allow_retries=False) from error
    for warning in report.warnings:
        context.log.warning(f"{warning.stream}: {warning.message}")
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": report.rows,
            "run_id": report.run_id or "",
            "seconds": report.total_secs,
            "location": ", ".join(stream.location for stream in report.streams),
        }
    )


definitions = dg.Definitions(assets=[people])
