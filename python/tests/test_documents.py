"""The examples of the documentation run as they are."""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import sys
import unittest

import rapidbyte as rb

from support import CosmosServer, Folder, MongoServer, OpenSearchServer, Server, package

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Documents(Folder):
    def test_the_examples_of_the_page_run_in_order(self) -> None:
        package("polars"), package("pyarrow"), package("pandas")
        text = (ROOT / "docs/python.md").read_text()
        names = {"url": Server.get().url}
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        self.assertGreater(len(blocks), 8)
        try:
            names["mongodb"] = MongoServer.get().url("shop")
        except unittest.SkipTest as reason:
            print(f"SKIPPED: the example with MongoDB: {reason}", file=sys.stderr)
            blocks = [block for block in blocks if "mongodb" not in block]
        try:
            server = CosmosServer.get()
            server.make("shop")
            names["cosmos"] = server.account()
        except unittest.SkipTest as reason:
            print(f"SKIPPED: the example with Azure Cosmos DB: {reason}", file=sys.stderr)
            blocks = [block for block in blocks if "cosmos" not in block]
        try:
            names["opensearch"] = OpenSearchServer.get().address()
        except unittest.SkipTest as reason:
            print(f"SKIPPED: the example with OpenSearch: {reason}", file=sys.stderr)
            blocks = [block for block in blocks if "opensearch" not in block]
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            for block in blocks:
                exec(compile(block, "docs/python.md", "exec"), names)
        self.assertIn("0 total value_does_not_fit", told.getvalue())
        self.assertIn("cancelled", told.getvalue())

    def test_every_name_of_the_module_is_documented(self) -> None:
        text = (ROOT / "docs/python.md").read_text()
        results = {"Batch", "Check", "Column", "Input", "Plan", "Progress", "Reader", "Report", "Sink", "Stream", "Verified"}
        missing = [name for name in rb.__all__ if name not in results and not re.search(rf"\b{name}\b", text)]
        self.assertEqual(missing, [])
