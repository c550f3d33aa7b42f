"""The interface `destination` of `rapidbyte/wit/deps/script`; the connector itself is `connector.py`."""

import json

import wit_world
import wit_world.exports.destination as script
from wit_world.imports import types

import destination
from connector import Connector
from rapidbyte import checked_config
from rapidbyte.host import config_schema, errors


class Destination(wit_world.exports.Destination):
    def describe(self) -> script.Spec:
        return script.Spec(
            name=Connector.name,
            version=Connector.version,
            description=Connector.description,
            config_schema=json.dumps(config_schema(Connector)),
            write_modes=[types.WriteMode[mode.upper()] for mode in Connector.write_modes],
            wide_texts=False,
        )

    def open(self, config: str) -> destination.Session:
        with errors():
            values = checked_config(config_schema(Connector), json.loads(config))
            return destination.Session(Connector(values))
