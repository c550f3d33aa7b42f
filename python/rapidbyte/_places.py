"""Places that rows go to and come from: the connector of an address, and its config."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _engine
from ._errors import ConfigError

_POSTGRES = ("postgres://", "postgresql://")
#: The connector refuses the second by name.
_MONGODB = ("mongodb://", "mongodb+srv://")
#: A connection string of Azure Cosmos DB, as its portal shows it.
_COSMOS = re.compile(r"\s*AccountEndpoint\s*=", re.IGNORECASE)
#: An address of OpenSearch or Elasticsearch. Without a scheme behind the `+`, it is HTTPS.
_SEARCH = re.compile(r"(?:opensearch|elasticsearch)(?:\+(https?))?://")
#: A URL may have a password, so that it is a variable and no part of the document.
_URL = {"url": "${RAPIDBYTE_URL}"}


class Place(NamedTuple):
    """One side of a pipeline."""

    use: str
    config: dict[str, Any]
    #: The name of the stream.
    stream: str
    #: Values of variables.
    params: dict[str, str]


def literal(text: Any) -> str:
    """A text in a pipeline that stays as it is: without variables."""
    return str(text).replace("$", "$$")


def is_mongodb(place: str | os.PathLike[str]) -> bool:
    return os.fspath(place).startswith(_MONGODB)


def _is_cosmos(place: str | os.PathLike[str]) -> bool:
    return _COSMOS.match(os.fspath(place)) is not None


def _account(text: str, config: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """The keys of the connector that a connection string sets, and the key of the account."""
    hint = "write AccountEndpoint=https://ACCOUNT.documents.azure.com:443/;AccountKey=KEY;"
    values = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, value = part.partition("=")
        values[name.strip().lower()] = value.strip()
    endpoint, key = values.pop("accountendpoint", ""), values.pop("accountkey", "")
    if not endpoint or not key:
        raise ConfigError("the connection string needs AccountEndpoint and AccountKey", code="invalid_place", hint=hint)
    for name in values:
        raise ConfigError(f"the connection string has {name!r}, which is not known", code="invalid_place", hint=hint)
    if "database" not in (config or {}):
        raise ConfigError(
            "Azure Cosmos DB needs the name of a database", code="no_database", hint='write config={"database": "shop"}'
        )
    # A key is a variable and no part of the document.
    return {"endpoint": literal(endpoint), "key": "${RAPIDBYTE_URL}"}, key


def _cluster(text: str, scheme: str | None) -> tuple[dict[str, Any], str | None]:
    """The keys of the connector that an address of OpenSearch or Elasticsearch sets, and the password."""
    from urllib.parse import unquote

    rest = text.partition("://")[2]
    if "?" in rest or "#" in rest:
        raise ConfigError(
            "an address of OpenSearch takes no options behind ? or #",
            code="invalid_place",
            hint='give settings of the connector, such as config={"sslrootcert": "ca.pem"}',
        )
    authority, slash, path = rest.partition("/")
    login, _, host = authority.rpartition("@")
    user, colon, password = login.partition(":")
    made = {"url": literal(f"{scheme or 'https'}://{host}{slash}{path}")}
    if user:
        made["username"] = literal(unquote(user))
    if not colon:
        return made, None
    # A password is a variable and no part of the document.
    return {**made, "password": _URL["url"]}, unquote(password)


def target(to: str | os.PathLike[str], table: str | None, config: Mapping[str, Any] | None) -> Place:
    """The place that rows go to."""
    text = os.fspath(to)
    if text.startswith(_POSTGRES) or is_mongodb(to):
        if not table:
            raise ConfigError("a database needs table=", code="no_table", hint='name it, such as table="public.users"')
        url = dict(_URL)
        if not is_mongodb(to):
            return _place("dest-postgres", url, config, table, text)
        if "." in table:
            # A name with a schema loses it otherwise.
            url["collection"] = literal(table)
        return _place("dest-mongodb", url, config, table, text)
    if _is_cosmos(to):
        if not table:
            raise ConfigError("a database needs table=", code="no_table", hint='name it, such as table="users"')
        made, key = _account(text, config)
        return _place("dest-cosmos", {**made, "container": literal(table)}, config, table, key)
    if search := _SEARCH.match(text):
        if not table:
            raise ConfigError("OpenSearch needs table=", code="no_table", hint='name an index, such as table="users"')
        made, password = _cluster(text, search[1])
        return _place("dest-opensearch", {**made, "index": literal(table)}, config, table, password)
    _refuse_other_url(text)
    if table:
        raise ConfigError("a file takes no table=", code="invalid_argument", hint="leave it out")
    name = os.path.basename(text.rstrip("/")).split(".")[0]
    return _place("dest-file", {"path": literal(text)}, config, name)


def origin(
    source: str | os.PathLike[str], table: str | None, query: str | None, config: Mapping[str, Any] | None
) -> Place:
    """The place that rows come from. The name of its stream is a pattern for files, and otherwise stands for itself."""
    text = os.fspath(source)
    if is_mongodb(source):
        if query is not None:
            raise ConfigError(
                "MongoDB takes no query=",
                code="invalid_argument",
                hint='write table="users" and a query document, such as where={"age": {"$gt": 30}}',
            )
        if not table:
            raise ConfigError("a database needs table=", code="no_table", hint='name it, such as table="users"')
        _refuse_pattern(table, "rename the collection, or read all of them with rapidbyte.run")
        # Other collections are not sampled then.
        made = {**_URL, "collections": [literal(table)]}
        return _place("source-mongodb", made, config, literal(table), text)
    if _is_cosmos(source):
        if not table:
            raise ConfigError("a database needs table=", code="no_table", hint='name it, such as table="users"')
        _refuse_pattern(table, "rename the container, or read all of them with rapidbyte.run")
        made, key = _account(text, config)
        # Other containers are not sampled then.
        made["containers"] = [literal(table)] if query is None else []
        if query is None:
            return _place("source-cosmos", made, config, literal(table), key)
        made["streams"] = {"query": {"container": literal(table), "query": literal(query)}}
        return _place("source-cosmos", made, config, "query", key)
    if text.startswith(_POSTGRES):
        if (table is None) == (query is None):
            raise ConfigError("a database needs either table= or query=", code="no_table")
        if query is not None:
            return _place("source-postgres", dict(_URL), config, "query", text)
        _refuse_pattern(table, "read it with query='SELECT * FROM ...', which names one table")
        stream = literal(table if "." in str(table) else f"public.{table}")
        return _place("source-postgres", dict(_URL), config, stream, text)
    if _SEARCH.match(text):
        raise ConfigError(
            "documents of OpenSearch and Elasticsearch cannot be read",
            code="unknown_place",
            hint="rapidbyte only writes them: read them with a client of the server",
        )
    _refuse_other_url(text)
    if table or query:
        raise ConfigError("a file takes no table= or query=", code="invalid_argument", hint="leave it out")
    return _place("source-file", {"path": literal(text)}, config, "*")


def condition(source: str | os.PathLike[str], where: str | Mapping[str, Any]) -> str:
    """The text of ``where=``."""
    if isinstance(where, str):
        return where
    if not is_mongodb(source):
        raise ConfigError("where= is a dict", code="invalid_argument", hint="write it as text: only MongoDB takes dicts")
    return _engine.extended_json(where)


def _place(
    use: str, made: dict[str, Any], config: Mapping[str, Any] | None, stream: str, url: str | None = None
) -> Place:
    for name in config or {}:
        if name in made:
            raise ConfigError(
                f"config= has the key {name}, which the call sets",
                code="invalid_argument",
                hint="leave it out, and use the arguments of the function",
            )
    params = {} if url is None else {"RAPIDBYTE_URL": url}
    return Place(use, {**made, **(config or {})}, stream, params)


def _refuse_pattern(table: Any, hint: str) -> None:
    if set("*?") & set(str(table)):
        text = f"table={table!r}: `*` and `?` would also stand for other characters"
        raise ConfigError(text, code="invalid_argument", hint=hint)


def _refuse_other_url(text: str) -> None:
    scheme = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*):/+", text)
    if scheme:
        if scheme[1].lower() in ("http", "https"):
            http = "+http" if scheme[1].lower() == "http" else ""
            hint = f"for OpenSearch or Elasticsearch, write opensearch{http}://…; for Azure Cosmos DB, its connection string; for other servers, write a pipeline and call rapidbyte.run"
        else:
            hint = "write postgres://…, mongodb://…, opensearch://… or the connection string of Azure Cosmos DB; for other connectors, write a pipeline and call rapidbyte.run"
        # Without the rest, which may have a password.
        raise ConfigError(
            f"{scheme[0].lstrip()}… is neither a URL of PostgreSQL, MongoDB or OpenSearch nor the path of a file",
            code="unknown_place",
            hint=hint,
        )
