"""Requests as somebody might make them up: every address and form field, with numbers, texts and bodies of any sort."""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple
from urllib.parse import quote

from hypothesis import strategies as st

from fuzzed_files import case
from visterm.web import app, label_studio
from visterm.web.api import about, images, jobs, tags, vision
from visterm.web.api import search as searches
from visterm.web.pages import browse, duplicates, library, picture, render, review, search, write
from visterm.web.pages import tags as tag_pages

API = "/api/v1"
OF_API = (about, images, jobs, tags, searches, vision)
OTHERS = (
    label_studio, app, browse, duplicates, library, picture, render, review, search, tag_pages, write,
)  # fmt: skip
ROUTES = [
    (method, API * (part in OF_API) + route.path, tuple(each.alias for each in route.dependant.query_params),
     tuple(each.alias for each in route.dependant.body_params))
    for part in (*OF_API, *OTHERS) for route in part.router.routes for method in sorted(route.methods)
]  # fmt: skip
"""Every method and address of the service, with the names of its settings and of the fields of its form."""

FIELDS = (
    "q", "like", "tag", "without", "predicted", "min_predicted", "sure", "folder", "taken_from", "taken_to", "min_mb",
    "min_bytes", "max_bytes", "max_mb", "file_type", "type", "unreviewed", "limit", "cursor", "combine", "cutoff", "k",
    "min_confidence", "start", "order", "sort", "find", "name", "prefix", "size", "distance", "precision", "best_f1",
    "drawn", "next", "token", "kind", "full", "do", "image", "trail", "into", "verdict", "give", "take", "tasks", "v",
    "label_config", "project", "schema", "action", "task", "annotation", "result", "value", "choices", "data",
    "images", "url", "view", "under", "n", "to", "as", "branch", "take_off", "parent", "into_photos", "dry_run",
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 25, -1, 160, 320, 2**31, 2**63 - 1, 2**63, 10**30, -(10**30), 0.5, 1e308, 1e-320)
TEXTS = (
    "", " ", "dots", "stripes", "rare one", "dots -stripes", '"', "-", "visterm:3", "visterm:99", "2024", "2024-13",
    "9999-12-31", "1e999", "-1e999", "nan", "inf", "1" * 5000, "x" * 5000, "\0", "\x1b[0m", "\u200b", "\u202e", "ß",
    "日本", "🏖" * 60, "%", "_", "*", "'; DROP TABLE images; --", "../../etc/passwd", "<script>", "true", "null",
    "[[1e999]]", "[" * 3000, '[[1, "a", "skip"]]', '[[99999999999999999999, "a", "skip"]]', "right", "wrong", "undo",
    "accept", "reject", "index", "fit", "give", "ANNOTATION_CREATED", "START_TRAINING", "data:image/png;base64,AAAA",
    "http://evil.example/a.jpg", "d29yZHM6OTk5",
    '<View><Image name="a" value="$image"/><Choices name="b" toName="a"><Choice value="dots"/></Choices></View>',
)  # fmt: skip
KINDS = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "image/png",
    "text/plain",
    "",
)
HEADERS = {
    "accept": ("text/html", "*/*", "\xff"),
    "authorization": ("Bearer x", "Basic eA==", "Basic \xe9", "Bearer", "\xe9"),
    "cookie": ("visterm_session=x", "a=b; =;;", "visterm_session=\xe9"),
    "if-none-match": ('"x"', "*"),
    "x-part": ("1",),
    "origin": ("null", "http://127.0.0.1", "http://evil.example", "\xe9"),
    "sec-fetch-site": ("cross-site", "same-origin"),
    "range": ("bytes=0-0", "bytes=9-1"),
}

texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
numbers = st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats())
values = st.one_of(texts, numbers.map(str))
fields = st.sampled_from(FIELDS)
scalars = st.one_of(texts, numbers, st.booleans(), st.none())
LIKELY = {
    "do": ("accept", "reject", "back", "give", "take", "right", "wrong", "skip", "undo"),
    "tag": ("dots", "rare one"),
    "into": ("stripes", "dots"),
    "name": ("dots", "rare one"),
    "kind": ("index", "fit", "duplicates", "mistakes", "wrong", "missing"),
    "trail": ("[]", '[[1, "dots", "skip"]]', '[[2, "dots", "right"]]'),
    "to": ("xmp", "txt"),
    "as": ("zip", "csv"),
    "view": ("tree", "list"),
    "under": ("dots", "rare one"),
    "order": ("images", "name", "precision", "predicted"),
    "sort": ("name", "given", "predicted"),
}
"""Values of fields that are accepted."""


@cache
def pairs_of(names: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Fill in the fields of an address or a form, and others that it does not know."""
    ids = st.integers(0, 25).map(str)
    known = [st.tuples(st.just(name), st.sampled_from(LIKELY[name]) if name in LIKELY else ids) for name in names]
    wrong = [st.tuples(st.just(name), values) for name in names]
    each = [st.one_of(good, good, bad) for good, bad in zip(known, wrong, strict=True)]
    more = st.lists(st.tuples(fields, values), max_size=2)
    return st.builds(lambda first, rest: [*first, *rest], st.tuples(*each), more)


documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields | texts, inner, max_size=4),
    max_leaves=8,
)
choices = st.lists(texts, max_size=3)
tasks = st.fixed_dictionaries({"data": st.fixed_dictionaries({"image": st.sampled_from(["visterm:3", "4"]) | scalars})})
results = st.lists(st.fixed_dictionaries({"value": st.fixed_dictionaries({"choices": choices})}), max_size=2)
actions = st.sampled_from(["ANNOTATION_CREATED", "ANNOTATION_UPDATED", "START_TRAINING", "x"])
likely = st.one_of(
    st.fixed_dictionaries({"tag": texts, "verdict": st.integers(-2, 2)}),
    st.fixed_dictionaries({"give": choices, "take": choices}),
    st.fixed_dictionaries({"kind": texts}, optional={"full": scalars}),
    st.fixed_dictionaries({"tasks": st.lists(tasks, max_size=3)}),
    st.fixed_dictionaries({"action": actions, "task": tasks, "annotation": st.fixed_dictionaries({"result": results})}),
)
"""JSON in the forms that are taken, with all sorts of texts."""


class MadeUpRequest(NamedTuple):
    """A request; an address and headers hold no line ends, as the library that sends them refuses those."""

    method: str
    address: str
    headers: dict[str, str]
    body: bytes


def _quoted(value: str) -> str:
    return quote(value.encode("utf-8", "surrogatepass"), safe="")


def _form(pairs: list[tuple[str, str]]) -> bytes:
    return "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in pairs).encode()


def _parts(pairs: list[tuple[str, str]], picture: bytes) -> bytes:
    part = b'--x\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    found = [part % (_quoted(name).encode(), b"", value.encode("utf-8", "surrogatepass")) for name, value in pairs]
    return b"".join([*found, part % (b"image", b'; filename="a.jpg"', picture), b"--x--\r\n"])


@st.composite
def requests(draw: st.DrawFn) -> MadeUpRequest:
    """Make up a request to one of the addresses of the service."""
    method, path, settings, form = draw(st.sampled_from(ROUTES))
    if draw(st.integers(0, 19)) == 0:
        method = draw(st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "MADEUP"]))
    while "{" in path:
        before, _, rest = path.partition("{")
        number = st.integers(0, 25).map(str)
        path = before + _quoted(draw(number | values)) + rest.partition("}")[2]
    query = draw(pairs_of(settings))
    given = draw(st.sets(st.sampled_from(sorted(HEADERS)), max_size=2))
    headers = {name: draw(st.sampled_from(HEADERS[name])) for name in sorted(given)}
    body = b""
    if method == "POST":
        kind = draw(st.sampled_from(KINDS[1:3] if form else KINDS))
        headers["content-type"] = kind
        if draw(st.integers(0, 9)) == 0:  # a body of another kind than it is said to be
            kind = draw(st.sampled_from(KINDS))
        if kind.endswith("json"):
            body = json.dumps(draw(likely | documents)).encode()
        elif kind.endswith("urlencoded"):
            body = _form(draw(pairs_of(form)))
        elif kind.startswith("multipart"):
            body = _parts(draw(pairs_of(form)), case(draw(st.integers(0, 300))).content)
        elif kind.startswith("image"):
            body = case(draw(st.integers(0, 300))).content
        else:
            body = draw(st.binary(max_size=40))
    return MadeUpRequest(method, path + ("?" + _form(query).decode() if query else ""), headers, body)
