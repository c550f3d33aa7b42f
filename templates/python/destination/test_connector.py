"""The connector without the host: `python3 -m unittest`."""

import os
import tempfile
import unittest

from connector import Connector
from rapidbyte import Error, Rows, Target, checked_config

TARGET = Target("numbers", {"n": "int64 not null", "label": "string"})
ROWS = Rows({"n": [1, 2], "label": ["one", None]}, 2)


class Writes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.connector = Connector({"path": folder.name + "/{stream}.jsonl"})

    def test_rows_are_there_after_the_commit_and_not_before(self):
        self.assertTrue(self.connector.plan(TARGET).is_new)
        writer = self.connector.begin(TARGET)
        writer.write(ROWS)
        self.assertNotIn("numbers.jsonl", os.listdir(self.folder))
        path, size = writer.commit()
        with open(path) as file:
            text = file.read()
        self.assertEqual(text, '{"n":1,"label":"one"}\n{"n":2,"label":null}\n')
        self.assertEqual(len(text), size)
        self.assertFalse(self.connector.plan(TARGET).is_new)

    def test_what_is_given_up_leaves_nothing(self):
        writer = self.connector.begin(TARGET)
        writer.write(ROWS)
        writer.abort()
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_is_no_configuration_is_refused(self):
        for config in [{"file": "a"}, {"path": 1}, {}]:
            with self.assertRaises(Error):
                checked_config(Connector.config, config)


if __name__ == "__main__":
    unittest.main()
