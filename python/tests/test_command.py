"""The command `rapidbyte` as the wheel installs it."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import version
from pathlib import Path

COMMAND = os.environ.get("RAPIDBYTE_COMMAND") or Path(sys.executable).with_name("rapidbyte")

PIPELINE = """\
version: 1
pipeline: copy
source:
  use: source-file
  config: { path: orders.csv }
  streams: [orders]
destination:
  use: dest-file
  config: { path: "out/{stream}.jsonl" }
  write_mode: replace
"""


def run(*arguments, folder=None):
    return subprocess.run(
        [COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )


class Command(unittest.TestCase):
    def test_the_command_has_the_version_of_the_package(self):
        ended = run("--version")
        self.assertEqual(ended.stdout, f"rapidbyte {version('rapidbyte')}\n", ended.stderr)
        self.assertEqual(ended.returncode, 0)

    def test_a_pipeline_runs_with_the_connectors_of_the_wheel(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "orders.csv").write_text("id,name\n1,Ada\n2,Émile\n", encoding="utf-8")
            Path(folder, "copy.yaml").write_text(PIPELINE, encoding="utf-8")
            ended = run("run", "copy.yaml", "--output", "json", folder=folder)
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertEqual(json.loads(ended.stdout)["status"], "ok")
            written = Path(folder, "out", "orders.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in written.splitlines()]
        self.assertEqual(rows, [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Émile"}])

    def test_a_wrong_argument_is_refused_in_the_form_that_it_asks_for(self):
        ended = run("run", "--no-such-flag")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--no-such-flag", ended.stderr)
        ended = run("run", "--no-such-flag", "--output", "json")
        self.assertEqual(ended.returncode, 2)
        self.assertEqual(json.loads(ended.stdout)["error"]["code"], "invalid_argument")


if __name__ == "__main__":
    unittest.main()
