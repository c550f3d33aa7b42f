"""Shared by the tests: servers of databases, and packages that may be missing."""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest
import urllib.request
from typing import Any


def package(name: str) -> Any:
    """A package that a test needs. The test is skipped where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise unittest.SkipTest(f"{name} is not installed: {error}") from None


class Folder(unittest.TestCase):
    """A test in a folder of its own, which is the working directory."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rapidbyte-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)


class Server:
    """A PostgreSQL server, stopped when the interpreter ends."""

    _started: Server | None = None

    @classmethod
    def get(cls) -> Server:
        """The server of the whole run of the tests."""
        if cls._started is None:
            cls._started = cls({"fsync": "off"})
        return cls._started

    def __init__(self, settings: dict[str, str]) -> None:
        programs = os.environ.get("RAPIDBYTE_POSTGRES_BIN")
        if not programs:
            raise unittest.SkipTest("RAPIDBYTE_POSTGRES_BIN does not name the server's programs")
        self.programs = pathlib.Path(programs)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rapidbyte-pg-"))
        # The server does not start as root.
        self.user: dict[str, Any] = {}
        if os.geteuid() == 0:
            import pwd

            account = pwd.getpwnam("postgres" if _has_user("postgres") else "nobody")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self.user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        data = self.folder / "data"
        self._run("initdb", "-D", str(data), "-A", "trust", "-U", "rapid", "-E", "UTF8", "--no-sync")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder), **settings}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self.options = f"{options} -p {self.port}"
        self._control("start")
        atexit.register(self._stop)
        self.url = f"postgres://rapid@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.programs / program, *arguments],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **self.user,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")

    def _control(self, *what: str) -> None:
        data, log = str(self.folder / "data"), str(self.folder / "log")
        self._run("pg_ctl", "-D", data, "-l", log, "-o", self.options, "-w", *what)

    def restart(self) -> None:
        """Stop the server, which ends its sessions, and start it again."""
        self._control("restart", "-m", "fast")

    def execute(self, statement: str) -> None:
        """Run a statement."""
        self._run("psql", self.url, "-v", "ON_ERROR_STOP=1", "-qc", statement)

    def _stop(self) -> None:
        try:
            self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class MongoServer:
    """mongo-java-server, which keeps documents in memory. It ends with this process, whose pipe it reads."""

    _started: MongoServer | None = None

    @classmethod
    def get(cls) -> MongoServer:
        """The server of the whole run of the tests."""
        if cls._started is None:
            cls._started = cls("-XX:TieredStopAtLevel=1")
        return cls._started

    def __init__(self, *options: str) -> None:
        classes = os.environ.get("RAPIDBYTE_MONGODB")
        if not classes:
            raise unittest.SkipTest("RAPIDBYTE_MONGODB names no mongo-java-server: Java 17 and Maven are needed")
        if not shutil.which("java"):
            raise unittest.SkipTest("java is not installed")
        path = os.pathsep.join([classes, os.path.join(classes, "*")])
        # It ends when its input does: when this object is gone, or this process.
        self.process = subprocess.Popen(
            ["java", "-XX:+UseSerialGC", *options, "-cp", path, "Server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line.startswith("PORT "):
            raise RuntimeError(f"mongo-java-server does not say its port: {line!r}")
        self.port = int(line.split()[1])
        atexit.register(self._stop)

    def url(self, database: str) -> str:
        """The address of a database."""
        return f"mongodb://127.0.0.1:{self.port}/{database}"

    def _stop(self) -> None:
        # It keeps nothing.
        self.process.kill()
        self.process.communicate()


class CosmosServer:
    """cosmosdb-server, which keeps documents in memory. It ends with this process, whose pipe it reads."""

    #: Any will do.
    KEY = "YSBrZXkgdGhhdCBvbmx5IHRlc3RzIGtub3c="
    _started: CosmosServer | None = None

    @classmethod
    def get(cls) -> CosmosServer:
        """The server of the whole run of the tests."""
        if cls._started is None:
            cls._started = cls()
        return cls._started

    def __init__(self) -> None:
        if not os.environ.get("RAPIDBYTE_COSMOSDB"):
            raise unittest.SkipTest("RAPIDBYTE_COSMOSDB names no cosmosdb-server: cargo xtask test --with cosmos")
        folder = os.environ.get("RAPIDBYTE_NODE_BIN")
        node = os.path.join(folder, "node") if folder else "node"
        script = pathlib.Path(__file__).parents[2] / "crates/testkit/cosmosdb/server.js"
        # It ends when its input does: when this object is gone, or this process.
        self.process = subprocess.Popen(
            [node, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line.startswith("PORT "):
            raise RuntimeError(f"cosmosdb-server does not say its port: {line!r}")
        self.port = int(line.split()[1])
        atexit.register(self._stop)

    def account(self) -> str:
        """The connection string."""
        return f"AccountEndpoint=http://127.0.0.1:{self.port}/;AccountKey={self.KEY};"

    def make(self, database: str) -> None:
        """Make a database."""
        body = json.dumps({"id": database}).encode()
        address = f"http://127.0.0.1:{self.port}/dbs"
        with urllib.request.urlopen(urllib.request.Request(address, body, method="POST")) as answer:
            answer.read()

    def _stop(self) -> None:
        # It keeps nothing.
        self.process.kill()
        self.process.communicate()


class OpenSearchServer:
    """OpenSearch with one node, without users and TLS. It ends with this process, whose pipe it reads."""

    _started: OpenSearchServer | None = None

    @classmethod
    def get(cls) -> OpenSearchServer:
        """The server of the whole run of the tests."""
        if cls._started is None:
            cls._started = cls()
        return cls._started

    def __init__(self) -> None:
        classes = os.environ.get("RAPIDBYTE_OPENSEARCH")
        if not classes:
            raise unittest.SkipTest("RAPIDBYTE_OPENSEARCH names no OpenSearch: cargo xtask test --with opensearch")
        if not shutil.which("java"):
            raise unittest.SkipTest("java is not installed")
        self.folder = tempfile.mkdtemp(prefix="rapidbyte-opensearch-")
        path = os.pathsep.join([classes, os.path.join(classes, "*")])
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
        # It ends when its input does: when this object is gone, or this process.
        self.process = subprocess.Popen(
            ["java", *options, "-cp", path, "Server", self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self._stop)
        assert self.process.stdout
        # Its log comes before.
        lines = iter(self.process.stdout.readline, "")
        port = next((line for line in lines if line.startswith("PORT ")), None)
        if port is None:
            raise RuntimeError("OpenSearch does not say its port")
        self.port = int(port.split()[1])
        # Nobody reads its log, and the pipe must not fill.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def address(self, login: str = "") -> str:
        """The address, as callers give it."""
        return f"opensearch+http://{login}127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request with a document."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def documents(self, index: str) -> list[dict[str, Any]]:
        """The documents of an index that searches find, with their `_id`."""
        found = self.ask("GET", f"/{index}/_search?size=1000")["hits"]["hits"]
        return [{**hit["_source"], "_id": hit["_id"]} for hit in found]

    def _stop(self) -> None:
        # It keeps nothing.
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _has_user(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
