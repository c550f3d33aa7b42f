"""The interface `source` of the contract; the connector itself is `connector.py`."""

import json

import wit_world
from wit_world.imports import types

import source
from connector import Connector
from rapidbyte import checked_config


class Source(wit_world.exports.Source):
    def describe(self) -> types.Spec:
        modes = [types.SyncMode.FULL_REFRESH]
        if getattr(Connector, "incremental", False):
            modes.append(types.SyncMode.INCREMENTAL)
        return types.Spec(
            name=Connector.name,
            version=Connector.version,
            description=Connector.description,
            config_schema=json.dumps(source.config_schema()),
            sync_modes=modes,
            write_modes=[],
            native_forms=[],
            takes_filter=False,
            keeps_cursor=False,
            drops_repeats=False,
        )

    def open(self, config: str) -> source.Session:
        with source.errors():
            values = checked_config(source.config_schema(), json.loads(config))
            return source.Session(Connector(values))
