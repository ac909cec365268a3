"""A Hugging Face hub on the loopback address: its routes, headers and redirects, and the store that files come from.

As the hub does, ``/REPOSITORY/resolve/REVISION/FILE`` answers with the commit, and for large files (LFS) redirects to a
signed address of another host, with their size and SHA-256; small ones are redirected on the hub itself. Names of
headers and errors are those that huggingface_hub 2.4.0 reads (`file_download.py`, `utils/_http.py`). Repositories are
made and committed to as its `hf_api.py`, `_commit_api.py` and `lfs.py` ask for it, large files through the store.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

LARGE = 1000  # Bytes from which on a file is in the store


@dataclass
class Repository:
    """Files by path, of each commit, and what branches point at."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    def commit(self, files: dict[str, bytes], gone: Iterable[str] = ()) -> str:
        """Add a commit to main, with some files new and others gone, and return its name."""
        name = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[name] = {**self.files, **files}
        for each in gone:
            del self.commits[name][each]
        self.refs["main"] = name
        return name

    @property
    def files(self) -> dict[str, bytes]:
        """Return the newest files."""
        return self.commits.get(self.refs.get("main", ""), {})


class Hub:
    """What is on the hub, and what was asked of it."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, str | None]] = []  # Method, path and Range
        self.tokens: list[str | None] = []  # That came with requests to the hub
        self.uploaded: dict[str, bytes] = {}  # Contents that came to the store, by their SHA-256
        self.cards: list[str] = []  # Model cards that were to be checked
        self.replaced: dict[str, bytes] = {}  # What the store serves in place of a content, by its SHA-256
        self.stops_after: int | None = None  # Bytes, after which the store waits for `goes_on`
        self.goes_on = threading.Event()
        self.status = 0  # Answers all with this error
        self.lies: dict[str, str] = {}  # Headers that replace the true ones in every answer
        self.honest = 0  # Answers before it lies
        self.url = self.store_url = ""

    def repository(self, name: str, files: dict[str, bytes]) -> Repository:
        """Make a repository with one commit."""
        made = self.repositories[name] = Repository()
        made.commit(files)
        return made

    def content(self, sha256: str) -> bytes:
        """Return what has a hash."""
        for repository in self.repositories.values():
            for files in repository.commits.values():
                for each in files.values():
                    if hashlib.sha256(each).hexdigest() == sha256:
                        return self.replaced.get(sha256, each)
        raise KeyError(sha256)

    def ranges(self) -> list[str | None]:
        """Return the ranges that were asked of the store."""
        return [asked for method, path, asked in self.requests if method == "GET" and path.startswith("/store/")]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.requests.append(("PUT", urlsplit(self.path).path, None))
        self.hub.uploaded[hashlib.sha256(content).hexdigest()] = content
        self._send(200, {})

    def do_POST(self) -> None:
        path, body = urlsplit(self.path).path, self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.requests.append(("POST", path, None))
        if self.hub.status:
            self._send(self.hub.status, {})
        elif self.headers.get("Authorization") is None:
            self._error(401, "RepoNotFound", "Invalid username or password.")
        elif path.endswith("/commit/main"):
            self._commit(path.removeprefix("/api/models/").removesuffix("/commit/main"), body)
        else:
            self._json(self._posted(path, json.loads(body)))

    def _posted(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Return what is answered to JSON."""
        if path == "/api/repos/create":
            name = f"{asked['organization']}/{asked['name']}"
            made = self.hub.repositories.setdefault(name, Repository())
            made.private = asked.get("visibility") == "private"
            return {"url": f"{self.hub.url}/{name}", "id": name}
        if path == "/api/validate-yaml":
            self.hub.cards.append(asked["content"])
            return {"errors": [], "warnings": []}
        if path.endswith("/preupload/main"):
            modes = [(file["path"], "lfs" if file["size"] >= LARGE else "regular") for file in asked["files"]]
            return {"files": [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes]}
        assert path.endswith(".git/info/lfs/objects/batch"), path
        store = f"{self.hub.store_url}/store/"
        objects = [{**each, "actions": {"upload": {"href": store + each["oid"]}}} for each in asked["objects"]]
        return {"transfer": "basic", "objects": objects}

    def _commit(self, name: str, body: bytes) -> None:
        files, gone = {}, []
        for line in body.splitlines():
            entry = json.loads(line)
            about = entry["value"]
            if entry["key"] == "file":
                files[about["path"]] = base64.b64decode(about["content"])
            elif entry["key"] == "lfsFile":
                files[about["path"]] = self.hub.uploaded[about["oid"]]
            elif entry["key"] == "deletedFile":
                gone.append(about["path"])
        oid = self.hub.repositories[name].commit(files, gone)
        self._json({"commitUrl": f"{self.hub.url}/{name}/commit/{oid}", "commitOid": oid})

    def _json(self, value: Any) -> None:
        self._send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append((self.command, path, self.headers.get("Range")))
        if path.startswith("/store/"):
            self._store(path.removeprefix("/store/"))
            return
        self.hub.tokens.append(self.headers.get("Authorization"))
        if self.hub.status:
            self._send(self.hub.status, {})
        elif path.startswith("/api/models/") and "/tree/" in path:
            files = self.hub.repositories[path.removeprefix("/api/models/").partition("/tree/")[0]].files
            self._json(
                [
                    {"type": "file", "path": name, "size": len(files[name]), "oid": _git(files[name])[1:-1]}
                    for name in files
                ]
            )
        elif path.startswith("/api/resolve-cache/models/"):
            owner, name, commit, file = path.removeprefix("/api/resolve-cache/models/").split("/", 3)
            self._file(f"{owner}/{name}", commit, file)
        else:
            repository, _, rest = path.strip("/").partition("/resolve/")
            revision, _, file = rest.partition("/")
            self._resolve(repository, revision, file)

    def _resolve(self, name: str, revision: str, file: str) -> None:
        found = self.hub.repositories.get(name)
        token = self.headers.get("Authorization")
        if found is None:
            self._error(404 if token else 401, "RepoNotFound", "Repository not found")
        elif found.gated and token != "Bearer accepted":
            self._error(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted.")
        elif (commit := found.refs.get(revision, revision)) not in found.commits:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif file not in found.commits[commit]:
            self._error(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        elif len(content := found.commits[commit][file]) < LARGE:
            place = f"/api/resolve-cache/models/{name}/{commit}/{file}"
            self._send(307, {"Location": place, "X-Repo-Commit": commit, "ETag": _git(content)})
        else:
            sha256 = hashlib.sha256(content).hexdigest()
            place = f"{self.hub.store_url}/store/{sha256}?Expires=1&Signature=s"
            linked = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{sha256}"', "Accept-Ranges": "bytes"}
            self._send(302, {"Location": place, "X-Repo-Commit": commit, **linked})

    def _file(self, name: str, commit: str, file: str) -> None:
        content = self.hub.repositories[name].commits[commit][file]
        self._send(200, {"X-Repo-Commit": commit, "ETag": _git(content)}, content)

    def _store(self, sha256: str) -> None:
        """Answer as a store of signed addresses, which refuses tokens, and serves parts."""
        if self.headers.get("Authorization"):
            self._send(400, {}, b"Only one auth mechanism allowed")
            return
        content = self.hub.content(sha256)
        first = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        facts = {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes"}
        if first:
            facts["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        self._send(206 if first else 200, facts, content[first:], stops_after=self.hub.stops_after)

    def _error(self, status: int, code: str, message: str, more: dict[str, str] | None = None) -> None:
        self._send(status, {"X-Error-Code": code, "X-Error-Message": message, **(more or {})})

    def _send(self, status: int, headers: dict[str, str], body: bytes = b"", stops_after: int | None = None) -> None:
        self.send_response(status)
        lies, self.hub.honest = ({} if self.hub.honest else self.hub.lies), max(self.hub.honest - 1, 0)
        for name, value in {**headers, "Content-Length": str(len(body)), **lies}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            if stops_after is not None and len(body) > stops_after:
                self.wfile.write(body[:stops_after])
                self.hub.goes_on.wait(600)
                self.close_connection = True
                return
            self.wfile.write(body)
        except ConnectionError:  # the client was killed, as tests do
            self.close_connection = True


def _git(content: bytes) -> str:
    return f'"{hashlib.sha1(f"blob {len(content)}".encode() + bytes(1) + content).hexdigest()}"'


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Start a hub and the store of its files, on ports of their own."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
    hub.url, hub.store_url = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        hub.goes_on.set()
        for server in servers:
            server.shutdown()
            server.server_close()
