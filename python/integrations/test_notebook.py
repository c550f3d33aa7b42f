"""Jupyter executes `examples/notebook.ipynb`."""

from __future__ import annotations

import os
import unittest

import nbformat
from examples import EXAMPLES
from nbclient import NotebookClient
from support import Folder, Server


class Notebook(Folder):
    def test_progress_and_reports_are_shown(self) -> None:
        os.environ["URL"] = Server.get().url
        notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
        # As the kernel of this interpreter, whatever kernels are installed.
        client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(self.folder)}})
        client.execute()
        shown = [
            output["data"].get("text/html", "")
            for cell in notebook.cells
            if cell.cell_type == "code"
            for output in cell.outputs
            if output.output_type in ("display_data", "execute_result")
        ]
        write, progress, run, rows = shown
        self.assertIn("100,000 rows in", write)
        self.assertIn("public.numbers", progress)
        self.assertRegex(run, "<b>export-numbers</b>: 100,000 rows in")
        self.assertIn("half", rows)


if __name__ == "__main__":
    unittest.main()
