"""The connector without the host: `python3 -m unittest`."""

import unittest

from connector import Connector
from rapidbyte import Checkpoint, Columns, Error, Request, checked_config


def read(rows, **request):
    """How many rows come, and the last checkpoint."""
    given, last = 0, None
    for step in Connector({"rows": rows}).read(Request("numbers", ["n", "label"], **request)):
        if isinstance(step, Columns):
            given += len(step["n"])
        elif isinstance(step, Checkpoint):
            last = step.cursor
    return given, last


class Reads(unittest.TestCase):
    def test_all_rows_come(self):
        self.assertEqual(read(25_000), (25_000, None))

    def test_a_read_goes_on_behind_its_cursor(self):
        self.assertEqual(read(25_000, cursor_fields=["n"]), (25_000, 24_999))
        self.assertEqual(read(25_000, cursor_fields=["n"], cursor=9_999), (15_000, 24_999))
        self.assertEqual(read(25_000, cursor_fields=["n"], cursor=24_999), (0, None))

    def test_what_is_no_configuration_is_refused(self):
        for config in [{"row": 1}, {"rows": "1"}, {"rows": -1}, {}]:
            with self.assertRaises(Error):
                checked_config(Connector.config, config)


if __name__ == "__main__":
    unittest.main()
