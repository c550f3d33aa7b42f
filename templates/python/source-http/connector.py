"""{{name}}: a source that reads records from a JSON API, page by page. Make it that of your API."""

from rapidbyte import Error, Stream
from rapidbyte.http import get_json

COLUMNS = {"id": "int64 not null", "name": "string", "updated_at": "timestamptz"}


class Connector:
    name = "{{name}}"
    version = "0.1.0"
    description = "Reads a JSON API"
    # What stands under `config:`, as a JSON Schema; other keys are refused.
    config = {
        "properties": {
            "base_url": {
                "type": "string",
                "x-grant": "url",
                "description": "Where all paths begin. Only this server can be reached.",
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
        """Pages are `{"items": […], "next": …}`; the last one has no `next`."""
        query, seen = {}, set()
        while True:
            page = get_json(f"{self.base}/items", query, self.headers)
            yield [{column: item.get(column) for column in COLUMNS} for item in page["items"]]
            after = page.get("next")
            if after is None:
                return
            if after in seen:
                raise Error("data", "http_repeated_page", f"the page {after!r} comes again")
            seen.add(after)
            query = {"after": after}
