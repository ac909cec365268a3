"""Who may do what: readers look, reviewers judge and tag, owners do all; and what people said carries their names."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from refusals import refused
from tiny_catalogue import make_tiny_catalogue
from visterm.cli import serve as command
from visterm.web.app import create_app
from visterm.web.roles import COOKIE, ROUTES, Access, AccessToken, Role, role_for
from visterm.web.security import OPEN_FOLDER, OPEN_PATHS

HERE = "http://127.0.0.1:8080"
API = "/api/v1"
TOKENS = [AccessToken(f"the token of {name}", role, name) for name, role in
          (("rita", Role.READER), ("vera", Role.REVIEWER), ("olga", Role.OWNER))]  # fmt: skip
EXAMPLES = {"/api/v1/images/tags": {"images": [3], "give": ["seen"]}, "/api/v1/jobs": {"kind": "index"}}


def routes():
    """List (method, path) of all routes of all modules of the service."""
    listed = []
    for name, module in list(sys.modules.items()):
        if name.startswith("visterm.web.") and hasattr(module, "router"):
            prefix = "/api/v1" if name.startswith("visterm.web.api.") else ""
            listed += [(method, prefix + route.path) for route in module.router.routes for method in route.methods]
    return sorted({(method, path) for method, path in listed if method != "HEAD"})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("roles"))


@pytest.fixture
def tiny(made, tmp_path):
    return made._replace(folder=shutil.copytree(made.folder, tmp_path / "catalogue"))


class Sender:
    """Sends requests with a token, through the one client of a service."""

    def __init__(self, client, token):
        self.app, self._client, self._headers = client.app, client, {"authorization": f"Bearer {token.text}"}

    def request(self, method, path, headers=None, **content):
        return self._client.request(method, path, headers=self._headers | (headers or {}), **content)

    def get(self, path, **content):
        return self.request("GET", path, **content)

    def post(self, path, **content):
        return self.request("POST", path, **content)


@contextmanager
def senders(tiny, **settings):
    """Yield a sender for each role, of one service that runs."""
    access = Access.of("127.0.0.1", TOKENS, **settings)
    with TestClient(create_app(tiny.folder, access=access), base_url=HERE) as client:
        yield {token.role: Sender(client, token) for token in TOKENS}


@pytest.fixture
def people(tiny):
    with senders(tiny) as people:
        yield people


def test_every_route_has_a_role_and_every_role_is_that_of_a_route():
    listed = {(method, path) for (_, method), paths in ROUTES.items() for path in paths.split()}
    plain = {(method, "/".join("{id}" if part.startswith("{") else part for part in path.split("/"))): path
             for method, path in routes()}  # fmt: skip
    is_open = {key for key in plain if key[1] in OPEN_PATHS or key[1].startswith(OPEN_FOLDER)}
    assert len(plain) > 60
    assert plain.keys() - is_open == listed - {("GET", "/api/v1/openapi.json")}


def test_an_address_that_is_not_listed_needs_an_owner():
    assert role_for("GET", "/api/v1/nothing") == role_for("DELETE", "/api/v1/images/3") == Role.OWNER
    assert role_for("PUT", "/api/v1/search") == Role.OWNER
    assert role_for("HEAD", "/api/v1/search") == role_for("GET", "/api/v1/images/3") == Role.READER
    assert role_for("POST", "/api/v1/images/tags") == role_for("POST", "/api/v1/images/3/tags") == Role.REVIEWER
    assert role_for("GET", "/image/3/alike/more") == role_for("GET", "/image//alike") == Role.OWNER


def test_a_request_of_too_low_a_role_changes_nothing_and_is_told_so(people):
    refusals = []
    for method, path in routes():
        needed = role_for(method, path)
        for role in [role for role in Role if role < needed and path not in OPEN_PATHS and OPEN_FOLDER not in path]:
            answer = people[role].request(method, path.replace("{image_id}", "3"), json=EXAMPLES.get(path))
            assert answer.status_code == 403, (role, method, path, answer.text)
            assert answer.json()["error"]["code"] == "role"
            assert f"one of a {needed.name.lower()}" in answer.json()["error"]["message"]
            refusals.append(path)
    assert len(refusals) > 20
    stored = people[Role.OWNER].app.state.service.catalogue.stored
    assert (stored.tags.feedback(), stored.jobs.latest()[1:], stored.tags.verdicts(3)) == ([], [], {})


def test_each_role_does_what_it_may(people):
    reader, reviewer, owner = people.values()
    for sender, name, role in ((reader, "rita", "reader"), (reviewer, "vera", "reviewer"), (owner, "olga", "owner")):
        about = sender.get(f"{API}/about").json()
        assert (about["who"], about["role"]) == (name, role)
        assert sender.get(f"{API}/search", params={"q": "dots"}).status_code == 200
        page = sender.get("/", headers={"accept": "text/html"})
        assert (page.status_code, f'data-role="{role}"' in page.text) == (200, True)
    for sender, status in ((reader, 403), (reviewer, 200), (owner, 200)):
        assert sender.post(f"{API}/images/3/tags", json={"give": ["seen"]}).status_code == status
    for sender, status in ((reader, 403), (reviewer, 403), (owner, 202)):
        assert sender.post(f"{API}/jobs", json={"kind": "duplicates"}).status_code == status
    for sender, status in ((reader, 403), (reviewer, 403), (owner, 201)):
        assert sender.post("/label-studio/webhook", json={"action": "START_TRAINING"}).status_code == status


def test_a_page_says_that_a_role_is_too_low_and_a_script_gets_the_message(people):
    reader = people[Role.READER]
    page = reader.post("/library/jobs", data={"kind": "fit"}, headers={"accept": "text/html"})
    assert (page.status_code, "Your token is one of a reader" in page.text) == (403, True)
    part = reader.post("/image/3/tags", data={"tag": "x", "do": "give"}, headers={"x-part": "1"})
    assert (part.status_code, part.json()["message"]) == (
        403, "Your token is one of a reader; this needs one of a reviewer."
    )  # fmt: skip


def test_the_api_tells_who_said_what(people):
    _, reviewer, owner = people.values()
    reviewer.post(f"{API}/images/3/tags", json={"give": ["seen"]})
    verdict = reviewer.post(f"{API}/images/3/feedback", json={"tag": "dots", "verdict": 1}).json()
    owner.post(f"{API}/images/3/feedback", json={"tag": "stripes", "verdict": -1})
    step = owner.post(f"{API}/images/tags", json={"images": [1, 2], "give": ["both"]}).json()["step"]
    image = owner.get(f"{API}/images/3").json()
    assert verdict["who"] == "vera"
    assert {tag["tag"]: tag["who"] for tag in image["given"]} == {"dots": "", "rare one": "", "seen": "vera"}
    assert image["judged_by"] == {"dots": "vera", "stripes": "olga"}
    stored = owner.app.state.service.catalogue.stored
    assert stored.history.get(step).details["who"] == "olga"
    assert "added by vera" in owner.get("/image/3").text


def test_the_history_tells_who_started_a_job_that_another_process_runs(people):
    owner = people[Role.OWNER]
    job = owner.post(f"{API}/jobs", json={"kind": "index"}).json()["id"]
    while not (ended := owner.get(f"{API}/jobs/{job}").json())["finished"]:
        time.sleep(0.1)
    assert ended["state"] == "done", ended
    entry = owner.app.state.service.catalogue.stored.history.latest(1)[0]
    assert (entry.id, entry.what, entry.details.get("who")) == (2, "index", "olga")


def test_a_browser_keeps_the_role_of_its_token_until_it_logs_out(tiny):
    app = create_app(tiny.folder, access=Access.of("127.0.0.1", TOKENS))
    with TestClient(app, base_url=HERE) as browser:
        for token in TOKENS:
            assert browser.get(f"{API}/about").status_code == 401
            browser.post("/login", data={"token": token.text})
            assert browser.get(f"{API}/about").json()["who"] == token.name
            assert browser.cookies[COOKIE] == token.cookie != token.text
            foreign = browser.post(f"{API}/images/3/tags", json={"give": ["x"]}, headers={"origin": "http://evil"})
            assert foreign.json()["error"]["code"] == "cross_site"
            browser.post("/logout")
    assert len({token.cookie for token in TOKENS}) == len(TOKENS)


def test_a_header_of_a_proxy_names_the_person_only_if_it_is_named_and_gives_no_rights(tiny, people):
    sent = {"remote-user": "  J\u00fcrgen\u202e  M ".encode()}
    assert people[Role.READER].get(f"{API}/about", headers=sent).json()["who"] == "rita"
    with senders(tiny, person_header="Remote-User") as named:
        about = named[Role.READER].get(f"{API}/about", headers=sent).json()
        assert (about["who"], about["role"]) == ("J\u00fcrgen\ufffd M", "reader")
        assert named[Role.READER].get(f"{API}/about").json()["who"] == "rita"
        assert named[Role.READER].post(f"{API}/jobs", json={"kind": "fit"}, headers=sent).status_code == 403
        wrong = sent | {"authorization": "Bearer wrong"}
        assert named[Role.READER].get(f"{API}/about", headers=wrong).status_code == 401


def test_without_tokens_everybody_is_an_owner(tiny):
    with TestClient(create_app(tiny.folder), base_url=HERE) as client:
        about = client.get(f"{API}/about").json()
        assert (about["who"], about["role"]) == ("", "owner")


def test_a_reviewer_s_answers_start_no_learning(people, monkeypatch):
    started = []

    async def start(*job):
        started.append(job)

    _, reviewer, owner = people.values()
    monkeypatch.setattr("visterm.web.pages.review.ROUND_ANSWERS", 1)
    monkeypatch.setattr("visterm.web.pages.review.RelearnsTags", object)
    monkeypatch.setattr(owner.app.state.service.jobs, "start", start)
    for sender in (reviewer, owner):
        for image_id in range(3):
            answer = {"do": "right", "image": image_id, "tag": "dots", "trail": "[]"}
            assert sender.post("/review", data=answer).status_code == 200
        assert bool(started) == (sender is owner)


def test_token_files_name_roles_and_people(tmp_path):
    for name in ("anna", "reader"):
        (tmp_path / f"{name}.txt").write_text(f"a token of {name} with many letters\n")
        (tmp_path / f"{name}.txt").chmod(0o600)
    anna, reader = tmp_path / "anna.txt", tmp_path / "reader.txt"
    tokens = command._read_tokens([str(reader), f"reviewer:{anna}"])
    assert [(token.role, token.name) for token in tokens] == [(Role.OWNER, "reader"), (Role.REVIEWER, "anna")]
    with refused("token_file", value=str(anna)):
        command._read_tokens([f"reader:{anna}", str(anna)])
    with refused("token_file", value=tmp_path / "editor:anna.txt"):
        command._read_tokens([f"{tmp_path}/editor:anna.txt"])
