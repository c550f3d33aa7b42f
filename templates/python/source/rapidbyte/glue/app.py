"""The interface `source` of `rapidbyte/wit/deps/script`; the connector itself is `connector.py`."""

import json

import wit_world
import wit_world.exports.source as script

import source
from connector import Connector
from rapidbyte import checked_config
from rapidbyte.host import config_schema, errors


class Source(wit_world.exports.Source):
    def describe(self) -> script.Spec:
        return script.Spec(
            name=Connector.name,
            version=Connector.version,
            description=Connector.description,
            config_schema=json.dumps(config_schema(Connector)),
            incremental=getattr(Connector, "incremental", False),
        )

    def open(self, config: str) -> source.Session:
        with errors():
            values = checked_config(config_schema(Connector), json.loads(config))
            return source.Session(Connector(values))
