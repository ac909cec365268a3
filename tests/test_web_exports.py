"""Tags written by jobs of the service: who may, what a dry run says, undo, kills; and downloads of chosen photos."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import time
import zipfile

import pytest
from starlette.testclient import TestClient

from test_export import files, packet
from tiny_catalogue import make_tiny_catalogue
from visterm.library.catalogue import Catalogue
from visterm.store.catalogue import StoredCatalogue
from visterm.web.app import create_app
from visterm.web.exports import EXPORT
from visterm.web.roles import Access

HERE = "http://127.0.0.1:8080"
PART = {"x-part": "1"}
SECONDS = 600.0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_tiny_catalogue(tmp_path_factory.mktemp("exports"), n_images=110).folder.parent


@pytest.fixture(scope="module")
def copied(made, tmp_path_factory):
    """A copy of the catalogue, made before this process opens it: closing a file takes SQLite's locks on it away."""
    return shutil.copytree(made / "catalogue", tmp_path_factory.mktemp("copied") / "catalogue").parent


@pytest.fixture(scope="module")
def service(made, copied):
    """The service, for one test after the other, each of which undoes what it writes."""
    with client_of(made) as client:
        yield client


def client_of(folder, client="127.0.0.1", **access):
    app = create_app(folder / "catalogue", access=Access(**access))
    return TestClient(app, base_url=HERE, client=(client, 5000), follow_redirects=False)


def ended(service, answer):
    assert answer.status_code in (202, 303), answer.text
    number = answer.json()["id"] if answer.status_code == 202 else int(answer.headers["location"].rpartition("/")[2])
    end = time.monotonic() + SECONDS
    while not (job := service.get(f"/api/v1/jobs/{number}").json())["finished"]:
        assert time.monotonic() < end, job
        time.sleep(0.05)
    return job


def export(service, **request):
    job = ended(service, service.post("/api/v1/exports", json=request))
    assert job["state"] == "done", job
    return job["message"]


def test_what_a_dry_run_shows_is_written_and_removed_again(made, service):
    before = files(made / "photos")
    shown = export(service, parent="visterm")
    assert shown.startswith("Would add ")
    assert " right; with precision 0.9: " in shown
    assert files(made / "photos") == before
    written = export(service, parent="visterm", dry_run=False)
    assert written.split(";")[0].rstrip(".") == shown.replace("Would add", "Added").split(";")[0]
    xmp = sorted((made / "photos").glob("*.xmp"))
    assert len(xmp) > 50
    assert any(b"visterm|" in path.read_bytes() for path in xmp)
    assert export(service, undo=True, dry_run=False).startswith("Removed ")
    assert files(made / "photos") == before


@pytest.mark.parametrize(
    ("access", "client", "headers", "status"),
    [
        ({}, "192.168.1.7", {}, 403),
        ({}, "127.0.0.1", {"x-forwarded-for": "192.168.1.7"}, 403),
        ({"hosts": frozenset({"photos.home"})}, "127.0.0.1", {"host": "photos.home"}, 403),
        ({"writes_from_anywhere": True}, "192.168.1.7", {}, 202),
    ],
)
def test_from_another_machine_nothing_but_a_dry_run_is_allowed(made, access, client, headers, status):
    with client_of(made, client, **access) as service:
        body = {"to": "txt", "undo": True, "dry_run": False}
        answer = service.post("/api/v1/exports", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        if status == 403:
            assert "--may-write" in answer.json()["error"]["message"]
            assert "only shows" in service.get("/write", headers=headers).text
            page = service.post("/write", data={"to": "xmp", "do": "undo"}, headers=headers)
            assert page.status_code == 403
        assert service.post("/api/v1/exports", json={"to": "txt"}, headers=headers).status_code == 202


def test_photos_themselves_are_changed_only_after_a_second_question(made, service):
    if shutil.which("exiftool") is None:
        pytest.skip("wants exiftool (Debian: libimage-exiftool-perl)")
    answer = service.post("/api/v1/exports", json={"to": "lightroom", "dry_run": False})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "into_photos"
    assert export(service, to="lightroom").startswith("Would add ")


def test_the_page_writes_only_what_it_has_shown_last(made, service):
    shown = service.post("/write", data={"to": "xmp", "do": "try", "precision": "0.9", "branch": "1"})
    job = ended(service, shown)
    part = service.get(f"/library/jobs/{job['id']}", headers=PART).text
    assert "Write these tags" in part
    assert service.post(f"/write/{job['id'] - 1}").status_code == 409
    written = ended(service, service.post(f"/write/{job['id']}"))
    assert written["message"].startswith("Added ")
    assert "Write these tags" not in service.get(f"/library/jobs/{job['id']}", headers=PART).text
    assert service.post(f"/write/{job['id']}").status_code == 409
    ended(service, service.post("/write", data={"to": "xmp", "do": "undo"}))
    assert not [*(made / "photos").glob("*.xmp")]
    assert "undo export" in service.get("/library").text


def test_photos_outside_of_the_indexed_folders_are_not_written(made, copied, tmp_path):
    elsewhere = shutil.copyfile(made / "photos" / "000.jpg", tmp_path / "000.jpg")
    catalogue = Catalogue.load(copied / "catalogue")
    catalogue.stored.database.write("UPDATE images SET path = ? WHERE id = 0", (str(elsewhere),))
    catalogue.stored.close()
    with client_of(copied) as service:
        assert "1 outside of the indexed folders" in export(service, take_off=True)


def test_a_keyword_that_was_taken_off_is_named_and_goes_if_that_is_asked_for(made, service):
    sidecar = made / "photos" / "000.xmp"
    sidecar.write_bytes(packet("beach"))
    service.post("/api/v1/images/0/tags", json={"take": ["beach"]})
    service.post("/api/v1/images/0/feedback", json={"tag": "beach", "verdict": -1})
    assert "1 keyword that you rejected stays in 1 file: beach (1)." in export(service)
    assert "1 keyword removed" in export(service, take_off=True, dry_run=False)
    assert b"<rdf:li>beach</rdf:li>" not in sidecar.read_bytes()
    assert "1 keyword put back" in export(service, undo=True, dry_run=False)
    assert sidecar.read_bytes() == packet("beach")
    sidecar.unlink()


def test_a_job_that_is_killed_while_it_writes_loses_nothing(made):
    stored = StoredCatalogue.open(made / "catalogue")
    request = {"to": "xmp", "limits": [0, None, None]}

    def start(**more):
        number = stored.jobs.start(EXPORT, waiting=True)
        command = [sys.executable, "-m", "visterm.web.job_process", str(made / "catalogue"), str(number), EXPORT]
        return subprocess.Popen([*command, json.dumps(request | more)], stdin=subprocess.PIPE)

    def sidecars():
        return [*(made / "photos").glob("*.xmp")]

    before = files(made / "photos")
    with start() as killed:
        end = time.monotonic() + SECONDS
        while len(sidecars()) < 10:
            assert time.monotonic() < end
            assert killed.poll() is None
        killed.kill()
    n_written = len(sidecars())
    with start() as job:
        assert job.wait(SECONDS) == 0
    assert n_written < len(sidecars())
    assert not [*(made / "photos").glob(".*")]
    with start(undo=True) as job:
        assert job.wait(SECONDS) == 0
    assert files(made / "photos") == before
    stored.close()


def test_chosen_photos_are_downloaded_as_they_are_or_as_a_list(made, service):
    answer = service.post("/chosen/download", data={"image": ["3", "5", "3"], "as": "zip"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["003.jpg", "005.jpg"]
        assert archive.read("003.jpg") == (made / "photos" / "003.jpg").read_bytes()
    assert answer.headers["content-disposition"] == 'attachment; filename="photos.zip"'
    table = service.post("/chosen/download", data={"image": ["3", "5"], "as": "csv"}).text
    rows = [*csv.DictReader(io.StringIO(table))]
    assert [(row["file_name"], row["tags"]) for row in rows] == [
        ("003.jpg", "dots;rare one"),
        ("005.jpg", "dots;thing"),
    ]


def test_photos_that_are_gone_are_named_in_the_download(made, service):
    path = made / "photos" / "007.jpg"
    path.rename(path.with_name("moved"))
    try:
        content = service.post("/chosen/download", data={"image": ["7", "8", "99999"], "as": "zip"}).content
    finally:
        path.with_name("moved").rename(path)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["008.jpg", "left out.txt"]
        left_out = archive.read("left out.txt").decode()
    assert "There is no photo 99999" in left_out
    assert "007.jpg can't be read" in left_out


@pytest.mark.parametrize("form", [{}, {"image": ["1"], "as": "exe"}, {"image": ["x"], "as": "zip"}])
def test_a_download_of_nothing_is_refused(service, form):
    assert service.post("/chosen/download", data=form).status_code == 422


def test_pages_of_other_sites_start_no_export(service):
    headers = {"origin": "http://evil.example"}
    assert service.post("/write", data={"to": "xmp", "do": "undo"}, headers=headers).status_code == 403
    assert service.post("/api/v1/exports", json={}, headers=headers).status_code == 403
