"""Helpers of these tests. Each test runs a file of `examples` with the real package, in an interpreter that has it."""

from __future__ import annotations

import importlib.util
import pathlib
from types import ModuleType

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"

#: A pipeline that the examples run: rows of a CSV file to Parquet.
PIPELINE = """\
version: 1
pipeline: people
source:
  use: source-file
  config: { path: people.csv }
  streams: [people]
destination:
  use: dest-file
  config: { path: "${OUT:-out}/people.parquet" }
  write_mode: replace
"""


def prepare(folder: pathlib.Path, rows: str = "id,name\n1,Ada\n2,Bo\n") -> pathlib.Path:
    """Write the pipeline and its input, and give the pipeline."""
    (folder / "people.csv").write_text(rows)
    pipeline = folder / "people.yaml"
    pipeline.write_text(PIPELINE)
    return pipeline


def load(name: str) -> ModuleType:
    """Import a file of the examples."""
    spec = importlib.util.spec_from_file_location(pathlib.Path(name).stem, EXAMPLES / name)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
