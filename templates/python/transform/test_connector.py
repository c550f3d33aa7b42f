"""The connector without the host: `python3 -m unittest`."""

import unittest

from connector import Connector
from rapidbyte import Error, Relation, Rows, checked_config

PEOPLE = Relation("people", {"id": "int64 not null", "name": "string"}, ["id"])


class Transforms(unittest.TestCase):
    def test_texts_are_hidden_and_everything_else_stays(self):
        connector = Connector({"column": "name"})
        self.assertEqual(connector.plan(PEOPLE), PEOPLE)
        rows = connector.transform(PEOPLE, Rows({"id": [1, 2], "name": ["Ada", None]}, 2))
        self.assertEqual(rows, [{"id": 1, "name": "***"}, {"id": 2, "name": None}])

    def test_a_column_that_has_no_text_is_refused(self):
        for column in ["id", "email"]:
            with self.assertRaises(Error):
                Connector({"column": column}).plan(PEOPLE)

    def test_what_is_no_configuration_is_refused(self):
        for config in [{"columns": "name"}, {"column": 1}, {}]:
            with self.assertRaises(Error):
                checked_config(Connector.config, config)


if __name__ == "__main__":
    unittest.main()
