"""A source that counts, written in Python: the contract as another language meets it.

It exports `rapidbyte:connector/source` of wit/rapidbyte.wit. The stream `numbers` has one column
`n` (int64, no nulls); the configuration says how many batches of four rows there are.

componentize-py turns this folder into a component; the functions of the interface are the methods
of `Source` here, its resources are the classes of `source.py`.
"""

import json

import wit_world
from componentize_py_types import Err
from wit_world.imports import log, types

import source

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "batches": {
            "type": "integer",
            "minimum": 0,
            "description": "How many batches of four rows to give.",
        }
    },
    "required": ["batches"],
    "additionalProperties": False,
}


class Source(wit_world.exports.Source):
    def describe(self) -> types.Spec:
        return types.Spec(
            name="source-python",
            version="0.1.0",
            description="Counts, in Python",
            config_schema=json.dumps(CONFIG_SCHEMA),
            sync_modes=[types.SyncMode.FULL_REFRESH],
            write_modes=[],
            native_forms=[],
            supports_filter=False,
            supports_queries=False,
            supports_checkpoints=False,
            deduplicates_appends=False,
            supports_rejects=False,
            reads_together=False,
            commits_together=False,
            repeatable_reads=False,
            compares_keys=False,
            names_targets=False,
            has_namespaces=False,
            digest_forms=[],
        )

    def open(self, config: str) -> source.Session:
        values = json.loads(config)
        unknown = sorted(set(values) - set(CONFIG_SCHEMA["properties"]))
        if unknown:
            raise Err(config_error(f"unknown key `{unknown[0]}`", "the only key is `batches`"))
        batches = values.get("batches")
        if type(batches) is not int or batches < 0:
            raise Err(config_error("`batches` is no count", "give a whole number, 0 or more"))
        log.log(log.Level.INFO, f"{batches} batches to give")
        return source.Session(batches)


def config_error(message: str, hint: str) -> types.Error:
    """An error that the operator acts on."""
    return types.Error(
        kind=types.ErrorKind_Config(),
        code="config_value",
        message=message,
        hint=hint,
        stream=None,
        column=None,
        location=None,
    )
