"""The queue of probable mistakes: looked for by a job, answered by plain forms, each answer counted at once."""

from __future__ import annotations

import html
import json
import re
import time

import httpx

from served_library import served
from tiny_catalogue import make_tiny_catalogue
from visterm import Catalogue
from visterm.library.mistakes import MISTAKES_FILE


def hidden(page, name):
    return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', page)[1])


def asked(page):
    return int(hidden(page, "image")), hidden(page, "tag")


def test_probable_mistakes_are_looked_for_and_answered(tmp_path):
    folder = make_tiny_catalogue(tmp_path, "ridge", n_images=60).folder
    with served(folder) as address, httpx.Client(base_url=address, timeout=600, follow_redirects=True) as client:
        assert "No more probable mistakes" in client.get("/review?queue=mistakes").text
        assert client.get("/api/v1/mistakes").json() == {
            "mistakes": [], "n_mistakes": None, "note": None, "next": None,
        }  # fmt: skip
        client.post("/library/jobs", data={"kind": "mistakes"}).raise_for_status()
        while (job := client.get("/api/v1/jobs").json()["jobs"][0])["state"] not in ("done", "failed"):
            time.sleep(0.05)
        assert (job["kind"], job["state"]) == ("mistakes", "done"), job["error"]
        assert (job["done"], job["total"]) == (5, 5)
        catalogue = Catalogue.load(folder, n_jobs=1)
        listed = client.get("/api/v1/mistakes?limit=2").json()
        assert listed["mistakes"] == [mistake.as_dict() for mistake in catalogue.mistakes(2)]
        page = client.get("/api/v1/mistakes", params={"limit": 2, "cursor": listed["next"]}).json()
        assert page["mistakes"] == [mistake.as_dict() for mistake in catalogue.mistakes(4)[2:]]
        tag = catalogue.mistakes(1, kind="wrong")[0].tag
        wrong = client.get("/api/v1/mistakes", params={"kind": "wrong", "limit": 200, "tag": tag.upper()}).json()
        assert {(each["kind"], each["tag"]) for each in wrong["mistakes"]} == {("wrong", tag)}
        assert wrong["n_mistakes"] == len(catalogue.mistakes(200, kind="wrong", tag=tag))
        assert client.get("/api/v1/mistakes?kind=odd").status_code == 422
        first = client.get("/review?queue=mistakes").text
        pair, kind = asked(first), re.search(r'class="mistake (\w+)"', first)[1]
        image, tag = pair
        found = catalogue.mistakes(1)[0]
        assert (found.image_id, found.tag, found.kind) == (*pair, kind)
        form = {"image": image, "tag": tag, "trail": "[]", "queue": "mistakes"}
        answered = client.post("/review", data={**form, "do": "wrong"}).text
        assert asked(answered) != pair
        assert hidden(answered, "queue") == "mistakes"
        assert catalogue.image(image).verdicts[tag] == -1
        assert tag not in catalogue.stored.tags.held([image]).get(image, [])
        again = client.post(
            "/review", data={"trail": hidden(answered, "trail"), "queue": "mistakes", "do": "undo"}
        ).text
        assert asked(again) == pair
        assert tag not in catalogue.image(image).verdicts
        assert client.get("/review?queue=odd").status_code == 422
        assert client.post("/api/v1/jobs", json={"kind": "mistakes"}).json()["kind"] == "mistakes"


def test_m_leads_from_frequent_tags_through_all_kinds_of_questions_and_back(tmp_path):
    with served(make_tiny_catalogue(tmp_path).folder) as address, httpx.Client(base_url=address, timeout=600) as client:
        here, seen = "/review", []
        for _ in range(4):
            page = client.get(here).text.partition('class="tabs"')[2]
            seen.append(re.search(r'<a href="[^"]*" aria-current="page">([^<]*)</a>\n', page)[1])
            [here] = re.findall(r'<a href="([^"]*)" data-key="m">', page)
        assert seen == ["Frequent tags", "What teaches most", "Probable mistakes", "Sure ones"]
        assert here == "/review?queue=frequent"


def test_what_is_only_unusual_has_no_percentage_and_features_that_tell_nothing_are_said_to(tmp_path):
    folder = make_tiny_catalogue(tmp_path, "ridge", n_images=60).folder
    catalogue = Catalogue.load(folder, n_jobs=1)
    image = next(record.id for record in catalogue.records if "rare one" in catalogue.image(record.id).tags)
    kept = {"images": 60, "mistakes": [[image, "rare one", "wrong", None, None, None]], "note": ""}
    with served(folder) as address, httpx.Client(base_url=address, timeout=600) as client:
        (folder / MISTAKES_FILE).write_text(json.dumps(kept))
        question = re.search(r'<p class="mistake wrong">(.*?)</p>', client.get("/review?queue=mistakes").text)[1]
        assert question == "<b>Perhaps wrong</b>: unusual for this tag"
        [listed] = client.get("/api/v1/mistakes").json()["mistakes"]
        assert (listed["chance"], listed["low"], listed["high"], listed["reason"]) == (
            None, None, None, "unusual for this tag",
        )  # fmt: skip
        (folder / MISTAKES_FILE).write_text(
            json.dumps({"images": 60, "mistakes": [], "note": "The features tell nothing."})
        )
        assert "<p>The features tell nothing.</p>" in client.get("/review?queue=mistakes").text
        assert client.get("/api/v1/mistakes").json()["note"] == "The features tell nothing."
