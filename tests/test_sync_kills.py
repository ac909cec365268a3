"""Kills of rounds with another program's library: in this process at requests, and of client and server by SIGKILL."""

from __future__ import annotations

import copy
import os
import random
import shutil

import pytest

import remembered_library
from remembered_library import LOW, N_PHOTOS, connected, first_of_ours, full_library, picture
from sync_kills import killing
from visterm import Catalogue
from visterm.connectors.sync import sync, undo
from visterm.core.errors import ServiceError
from visterm.store.connected import WRITTEN

SEEDS = (0, 1)

made, opened = remembered_library.made, remembered_library.opened  # fixtures


class Killed(BaseException):
    """The end of a process, as far as one that goes on can show it."""


def kill_at(library, rng, most):
    """Let the process end at one of the next requests: before the server does anything, or before its answer."""
    left = [rng.randrange(1, most)]
    after = rng.random() < 0.5

    def count(what):
        left[0] -= 1
        if left[0] == 0:
            raise rng.choice((Killed, ServiceError))(what)

    library.before = (lambda what: None) if after else count
    library.after = count if after else (lambda what: None)


def people(there):
    """Let people tag, take off tags, one of ours too, and add a photo."""
    there.put("new", preview=picture("red", 999))
    there.untag("p000", "red")
    there.tag("p155", "blue", "sea")
    photo, text = first_of_ours(there)
    there.untag(photo, text)


CHANGES = (lambda there: None, people)


@pytest.fixture(scope="module")
def calm(made, tmp_path_factory):
    """The library after rounds that nothing disturbed."""
    folder, library = tmp_path_factory.mktemp("calm") / "catalogue", copy.deepcopy(made[1])
    shutil.copytree(made[0], folder)
    undisturbed = Catalogue.load(folder, n_jobs=1)
    for change in CHANGES:
        change(library)
        sync(undisturbed, library, LOW)
    undisturbed.stored.close()
    return library


def hold_after_kills(opened, calm, folder, seed):
    catalogue, library = opened
    rng = random.Random(seed)
    for change in CHANGES:
        change(library)
        for _ in range(8):
            kill_at(library, rng, 12)
            try:
                sync(catalogue, library, LOW)
            except (Killed, ServiceError):
                catalogue.stored.close()
                catalogue = Catalogue.load(folder, n_jobs=1)
        library.before = library.after = lambda what: None
        sync(catalogue, library, LOW)
    assert library.state() == calm.state()
    assert sorted(library.writes) == sorted(set(library.writes))
    assert {(p.remote_id, p.text) for p in catalogue.stored.connected.pairs(WRITTEN)} == library.ours()
    undo(catalogue, library)
    assert library.ours() == set()


@pytest.mark.parametrize("seed", range(5))
def test_after_kills_at_any_request_all_is_as_if_there_had_been_none(opened, calm, tmp_path, seed):
    hold_after_kills(opened, calm, tmp_path / "catalogue", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 30))
def test_after_more_kills_at_any_request_all_is_as_if_there_had_been_none(opened, calm, tmp_path, seed):
    hold_after_kills(opened, calm, tmp_path / "catalogue", seed)


@pytest.mark.parametrize("seed", range(2))
def test_connect_goes_on_where_it_was_killed(tmp_path, seed):
    library, rng = full_library(), random.Random(seed)
    for _ in range(4):
        kill_at(library, rng, 60)
        try:
            connected(tmp_path / "catalogue", library)
        except (Killed, ServiceError):
            continue
    library.before = library.after = lambda what: None
    assert len(connected(tmp_path / "catalogue", library)) == N_PHOTOS
    assert [path.name for path in tmp_path.iterdir()] == ["catalogue"]
    assert library.asked.count("preview") < 2 * N_PHOTOS


def test_connect_writes_into_an_empty_folder_also_where_the_system_replaces_none(tmp_path, monkeypatch):
    rename = os.rename

    def as_on_windows(old, new):
        assert not os.path.exists(new)
        rename(old, new)

    monkeypatch.setattr(os, "rename", as_on_windows)
    (tmp_path / "catalogue").mkdir()
    assert len(connected(tmp_path / "catalogue", full_library())) == N_PHOTOS


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    with killing(tmp_path_factory.mktemp("kills")) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_after_kills_of_client_and_server_all_is_as_if_there_had_been_none(kills, seed):
    kills.seed(seed)
