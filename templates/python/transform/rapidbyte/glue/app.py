"""The interface `transform` of `rapidbyte/wit/deps/script`; the connector itself is `connector.py`."""

import json

import wit_world
import wit_world.exports.transform as script

import transform
from connector import Connector
from rapidbyte import checked_config
from rapidbyte.host import config_schema, errors


class Transform(wit_world.exports.Transform):
    def describe(self) -> script.Spec:
        return script.Spec(
            name=Connector.name,
            version=Connector.version,
            description=Connector.description,
            config_schema=json.dumps(config_schema(Connector)),
            wide_texts=False,
        )

    def open(self, config: str) -> transform.Session:
        with errors():
            values = checked_config(config_schema(Connector), json.loads(config))
            return transform.Session(Connector(values))
