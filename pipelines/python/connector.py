"""source-feed: reads the entries of a feed in XML."""

from xml.etree import ElementTree

from rapidbyte import Error, Stream
from rapidbyte.http import request as http_request

COLUMNS = {"id": "int64 not null", "at": "date", "title": "string"}


class Connector:
    name = "source-feed"
    version = "0.1.0"
    description = "Reads a feed in XML"
    config = {
        "properties": {
            "url": {"type": "string", "x-grant": "url", "description": "The feed. Only its server can be reached."}
        },
        "required": ["url"],
    }

    def __init__(self, config):
        self.url = config["url"]

    def streams(self):
        return [Stream("entries", COLUMNS, primary_key=["id"])]

    def read(self, _request):
        answer = http_request("GET", self.url)
        if answer.status != 200:
            raise Error("connection", "no_feed", f"{self.url} answered with status {answer.status}")
        try:
            feed = ElementTree.fromstring(answer.body)
        except ElementTree.ParseError as error:
            raise Error("data", "invalid_feed", f"{self.url} is not XML: {error}")
        yield [
            {"id": int(entry.get("id")), "at": entry.get("at"), "title": entry.findtext("title")}
            for entry in feed.iter("entry")
        ]
