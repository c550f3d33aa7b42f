"""{{name}}: a source that reads records from a JSON API, page by page. Adapt it to your API."""

from rapidbyte import Error, Stream
from rapidbyte.http import get_json

COLUMNS = {"id": "int64 not null", "name": "string", "updated_at": "timestamptz"}


class Connector:
    name = "{{name}}"
    version = "0.1.0"
    description = "Reads a JSON API"
    # The keys of `config:`, as a JSON Schema; other keys are refused.
    # The values are checked by `type`, `enum`, `minimum`, `maximum`, `pattern` and `items`; check anything
    # else in `__init__`.
    config = {
        "properties": {
            "base_url": {
                "type": "string",
                "x-grant": "url",
                "description": "The URL of the API. The connector can reach only this server.",
            },
            "token": {"type": "string", "x-secret": True, "description": "A bearer token."},
        },
        "required": ["base_url"],
    }

    def __init__(self, config):
        self.base = config["base_url"].rstrip("/")
        token = config.get("token")
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    def streams(self):
        return [Stream("items", COLUMNS, primary_key=["id"])]

    def read(self, request):
        """Pages are `{"items": […], "next": …}`; the last one lacks `next`."""
        query, seen = {}, set()
        while True:
            page = get_json(f"{self.base}/items", query, self.headers)
            yield [{column: item.get(column) for column in COLUMNS} for item in page["items"]]
            after = page.get("next")
            if after is None:
                return
            if after in seen:
                raise Error("data", "http_repeated_page", f"the page {after!r} is repeated")
            seen.add(after)
            query = {"after": after}
