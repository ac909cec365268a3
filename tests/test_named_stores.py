"""Object stores are opened only where a person named them, whatever a catalogue or a list of photos says."""

from __future__ import annotations

import os

import pytest

from command_line import run_command
from visterm.core.errors import ImageError, UserError
from visterm.core.remote import STORES_VARIABLE, RemotePath, only_named_stores
from visterm.data import images
from visterm.data.image_folders import find_images
from visterm.data.images import fetch


@pytest.fixture
def reached(monkeypatch):
    """The addresses that a store was asked of."""
    asked = []

    def store_of(address):
        asked.append(address)
        raise OSError("no network in tests")

    monkeypatch.setattr("visterm.core.remote._store_of", store_of)
    return asked


FOREIGN = ["http://169.254.169.254/latest", "ftp://host/1.jpg", "s3://other/1.jpg", "zip://1.jpg::http://host/a.zip"]


@pytest.mark.parametrize("address", FOREIGN)
def test_an_address_in_a_store_that_nobody_named_is_refused_before_anything_is_reached(address, reached):
    with only_named_stores(["index", "run", "s3://mine/photos"]), pytest.raises(UserError, match="not opened"):
        fetch(address)
    assert reached == []


@pytest.mark.parametrize("words", [["s3://mine/photos"], ["--store=lance:s3://mine/rows"], ["--tags", "S3://mine"]])
def test_all_of_a_store_that_is_named_anywhere_on_the_command_line_is_opened(words, reached):
    with only_named_stores(words), pytest.raises(Exception, match="no network in tests"):
        fetch("s3://mine/others/1.jpg")
    assert reached == ["s3://mine/others/1.jpg"]


def test_the_environment_names_stores_too_and_is_what_it_was_afterwards(reached, monkeypatch):
    monkeypatch.setenv(STORES_VARIABLE, "s3://a s3://b")
    with only_named_stores(["s3://c"]):
        assert os.environ[STORES_VARIABLE].split() == [
            "s3://c",
            "s3://a",
            "s3://b",
        ]  # as processes that are started see it
    assert os.environ[STORES_VARIABLE] == "s3://a s3://b"
    monkeypatch.delenv(STORES_VARIABLE)
    with only_named_stores([]):
        assert os.environ[STORES_VARIABLE] == ""
    assert STORES_VARIABLE not in os.environ


def test_a_command_opens_the_store_that_it_names_and_says_how_to_name_another(reached, tmp_path):
    told = run_command(["encode", "s3://mine/photos", "-o", tmp_path / "features"]).stderr
    assert "no network in tests" in told
    assert reached
    assert STORES_VARIABLE not in os.environ
    with only_named_stores([]), pytest.raises(UserError, match="VISTERM_STORES=s3://mine visterm"):
        find_images("s3://mine/photos")


def test_rows_in_lance_tables_of_a_store_that_nobody_named_are_not_opened():
    from visterm.store.lance_rows import _connected

    with only_named_stores([]), pytest.raises(UserError, match="not opened"):
        _connected("s3://other/rows")


def test_a_picture_that_is_too_large_is_not_fetched(monkeypatch):
    place = RemotePath("memory://bounded/1.jpg")
    place.write_bytes(b"x" * 100)
    assert fetch(str(place)) == b"x" * 100
    monkeypatch.setattr(images, "MAX_FETCH_BYTES", 99)
    with pytest.raises(ImageError, match="too large: 100 bytes"):
        fetch(str(place))
