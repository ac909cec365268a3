"""A catalogue of PhotoPrism's photos: read, learned, written to label by label, corrected by a person, and undone."""

from __future__ import annotations

import copy
import itertools
import random
import shutil

import pytest

from command_line import visterm
from fakes import served
from fakes.photoprism import FakePhotoPrism
from remembered_library import N_PHOTOS, N_TAGGED, colour_of, connected, picture, tags_of
from tiny_catalogues import ENCODER as SETTINGS
from visterm import Catalogue
from visterm.connectors import json_answers
from visterm.connectors.photoprism import READ_ALL_SECONDS, SETTLED_SECONDS, PhotoPrismLibrary
from visterm.connectors.sync import PushSettings, sync, undo
from visterm.core import web_client
from visterm.core.errors import ServiceError
from visterm.core.web_client import Patience
from visterm.store.connected import ACTIVE, OFF

LOW = PushSettings(parent=None, precision=0.6)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A server of photos, most of them tagged by a person, a catalogue of them, and the server's state then."""
    folder = tmp_path_factory.mktemp("connected") / "catalogue"
    with FakePhotoPrism() as fake:
        fill(fake)
        connected(folder, library_of(fake)).stored.close()
        yield fake, folder, copy.deepcopy((fake.photos, fake.tags))


def as_made(made, folder):
    """Put the server back into its state, and open a copy of the catalogue."""
    fake, catalogue, state = made
    fake.photos, fake.tags = copy.deepcopy(state)
    fake.offset = 0.0
    fake.writes.clear()
    fake.traffic.clear()
    fake.forget_faults()
    shutil.copytree(catalogue, folder)
    return Catalogue.load(folder, n_jobs=1)


@pytest.fixture
def opened(made, tmp_path):
    catalogue = as_made(made, tmp_path / "catalogue")
    yield catalogue, made[0]
    catalogue.stored.close()


def fill(fake):
    for number in range(N_PHOTOS):
        tags = tags_of(number) if number < N_TAGGED else ()
        fake.add_photo(f"{number}.jpg", picture(colour_of(number), number), tuple(tags))


def library_of(fake, retries=3):
    return PhotoPrismLibrary(fake.url, fake.key, Patience(20.0, retries, 0.01))


def given(fake):
    """Return all labels with their sources and uncertainties."""
    return {
        photo.name: sorted((fake.tags[id].name, on.source, on.uncertainty) for id, on in photo.labels.items())
        for photo in fake.photos.values()
    }


def written(fake):
    return [(photo, label) for what, photo, label in fake.writes if what == "add"]


def test_predictions_become_labels_with_their_uncertainty_and_undo_takes_just_these(opened):
    catalogue, fake = opened
    before = given(fake)
    assert set(catalogue.tagger.vocabulary.tags) == {"Red", "Green", "Blue", "Grey", "Warm", "Cool"}
    done = sync(catalogue, library_of(fake), LOW)
    assert done.pushed.written == len(written(fake)) > 0
    after = given(fake)
    assert all(set(before[name]) <= set(after[name]) for name in before)
    ours = [label for name in after for label in set(after[name]) - set(before[name])]
    assert {source for _, source, _ in ours} == {"manual"}
    assert all(1 <= uncertainty < 60 for *_, uncertainty in ours)
    again = sync(catalogue, library_of(fake), LOW)
    assert (again.pushed.written, again.pushed.taken, again.pulled.taken_off, again.learned) == (0, 0, 0, None)
    undo(catalogue, library_of(fake))
    assert given(fake) == before
    assert sync(catalogue, library_of(fake), PushSettings(parent=None, precision=0.999)).pulled.taken_off == 0


def test_what_a_person_removes_is_learned_and_not_written_again(opened):
    catalogue, fake = opened
    sync(catalogue, library_of(fake), LOW)
    photo, label = min(written(fake))
    fake.person_untags(photo, label)
    assert sync(catalogue, library_of(fake), LOW).pulled.taken_off == 1
    assert [pair.text for pair in catalogue.stored.connected.pairs(OFF)] == [label]
    sync(catalogue, library_of(fake), LOW)
    assert written(fake).count((photo, label)) == 1
    assert label not in fake.tags_of(photo)


def test_what_somebody_removed_of_photoprisms_own_guesses_is_a_rejection(opened):
    catalogue, fake = opened
    photo = next(iter(fake.photos))
    fake.give(photo, "Green", "image", 30)
    fake.person_untags(photo, "Green")
    assert sync(catalogue, library_of(fake), LOW).pulled.taken_off == 1
    rows = catalogue.stored.database.rows("SELECT image_id FROM remote_photos WHERE remote_id = ?", (photo,))
    assert catalogue.image(rows[0][0]).verdicts == {"Green": -1}


def test_a_name_that_photoprism_writes_in_capitals_is_still_ours(opened):
    catalogue, fake = opened
    for number in range(0, N_TAGGED, 4):
        rows = catalogue.stored.database.rows("SELECT image_id FROM remote_photos WHERE name = ?", (f"{number}.jpg",))
        catalogue.give(rows[0][0], ["my own word"])
    catalogue.learn(full=True, use_even_if_worse=True)
    before = given(fake)
    sync(catalogue, library_of(fake), LOW)
    assert "My Own Word" in {label for _, label in written(fake)}
    again = sync(catalogue, library_of(fake), LOW)
    assert (again.pulled.taken_off, again.pushed.written) == (0, 0)
    assert not [tag for tag in catalogue.tags() if tag.tag == "My Own Word"]
    undo(catalogue, library_of(fake))
    assert given(fake) == before


def test_a_label_that_photoprisms_model_has_is_neither_written_nor_asked_for_again(opened):
    catalogue, fake = opened
    for number, photo in enumerate(fake.photos):
        if number >= N_TAGGED:
            fake.give(photo, colour_of(number), "image", 40)
    before = given(fake)
    assert not sync(catalogue, library_of(fake), LOW).pushed.reasons
    colours = {"Red", "Green", "Blue", "Grey"}
    assert not [label for _, label in written(fake) if label in colours]
    fake.traffic.clear()
    sync(catalogue, library_of(fake), LOW)
    assert fake.asked("POST .*") == 0
    undo(catalogue, library_of(fake))
    assert given(fake) == before


def test_a_label_of_ours_that_photoprisms_model_found_surer_was_not_taken_off_by_a_person(opened):
    catalogue, fake = opened
    sync(catalogue, library_of(fake), LOW)
    photo, label = min(written(fake))
    fake.give(photo, label, "image", 0)
    done = sync(catalogue, library_of(fake), LOW)
    assert (done.pulled.taken_off, done.pushed.written) == (0, 0)
    undo(catalogue, library_of(fake))
    assert label in fake.tags_of(photo)
    assert fake.rejected(photo) == set()


def test_what_comes_back_after_undo_is_not_learned(opened):
    catalogue, fake = opened
    sync(catalogue, library_of(fake), LOW)
    ours = {photo for photo, _ in written(fake)}
    with fake.saving(*ours):
        undo(catalogue, library_of(fake))
    assert any(uncertainty > 0 for labels in given(fake).values() for *_, uncertainty in labels)
    done = sync(catalogue, library_of(fake), PushSettings(parent=None, precision=0.999))
    assert (done.pulled.retagged, done.pulled.taken_off, done.learned) == (0, 0, None)


def test_labels_of_ours_that_somebody_renamed_are_not_taken_off_and_are_taken_back(opened):
    catalogue, fake = opened
    before = given(fake)
    sync(catalogue, library_of(fake), LOW)
    _, label = min(written(fake))
    fake.rename(label, "another name")
    fake.offset += READ_ALL_SECONDS + 1
    sync(catalogue, library_of(fake), LOW)
    assert catalogue.stored.connected.pairs(OFF) == []
    undo(catalogue, library_of(fake))
    fake.rename(label, label)
    assert given(fake) == before


def test_what_a_person_removes_from_several_photos_at_once_is_known_within_a_day(opened):
    catalogue, fake = opened
    sync(catalogue, library_of(fake), LOW)
    fake.offset += 2 * SETTLED_SECONDS
    sync(catalogue, library_of(fake), LOW)
    photo, label = min(written(fake))
    fake.edit_several([photo], remove=label)
    fake.offset += READ_ALL_SECONDS
    assert sync(catalogue, library_of(fake), LOW).pulled.taken_off == 1
    assert [(pair.remote_id, pair.text) for pair in catalogue.stored.connected.pairs(OFF)] == [(photo, label)]
    assert label not in fake.tags_of(photo)


def test_undo_takes_labels_out_of_the_archive_too(opened):
    catalogue, fake = opened
    before = given(fake)
    sync(catalogue, library_of(fake), LOW)
    photo, _ = min(written(fake))
    fake.trash(photo)
    undo(catalogue, library_of(fake))
    fake.trash(photo, back=True)
    assert given(fake) == before
    assert sync(catalogue, library_of(fake), PushSettings(parent=None, precision=0.999)).pulled.retagged == 0


class Killed(BaseException):
    """The end of a process, as far as one that goes on can show it."""


def break_off(fake, patch, rng):
    """Let one of the next requests fail: the client or the server is killed, or an answer is cut or lost."""
    what, nth = rng.choice(("client before", "client after", "server", "lost", "cut", "reset")), rng.randrange(1, 80)
    if what.startswith("client"):
        left = [nth]

        def ask(*arguments, **more):
            left[0] -= 1
            if left[0] == 0 and what == "client before":
                raise Killed
            answer = web_client.ask(*arguments, **more)
            if left[0] == 0:
                raise Killed
            return answer

        patch.setattr(json_answers, "ask", ask)
    elif what == "server":
        fake.dies_in = nth
    else:
        count = itertools.count(1)

        def fault(handler, work):
            (getattr(served, what) if next(count) == nth else answer)(handler, work)

        def answer(handler, work):
            handler.send(work())

        fake.fail(fault, times=10_000)


def people(fake):
    """Change photos in PhotoPrism: the same ones each time."""
    photos = list(fake.photos)
    fake.person_untags(photos[0], "Red")
    fake.person_tags(photos[155], "Sea")
    fake.give(photos[7], "Green", "image", 30)
    fake.person_untags(photos[7], "Green")
    fake.person_untags(*min(written(fake)))
    fake.trash(photos[9])


def rounds(catalogue, fake, folder, disturb):
    """Sync, let people change photos, and sync, each disturbed some times before; returns the catalogue."""
    for change in (lambda there: None, people):
        change(fake)
        for _ in range(disturb[1] if disturb else 0):
            with pytest.MonkeyPatch.context() as patch:
                break_off(fake, patch, disturb[0])
                try:
                    sync(catalogue, library_of(fake, retries=0), LOW)
                except (Killed, ServiceError):
                    catalogue.stored.close()
                    catalogue = Catalogue.load(folder, n_jobs=1)
            fake.kill()
            fake.forget_faults()
            fake.dies_in = None
            fake.start()
        sync(catalogue, library_of(fake), LOW)
    return catalogue


@pytest.fixture(scope="module")
def calm(made, tmp_path_factory):
    """What the server has, and what was written to it, after rounds that nothing disturbed."""
    fake, folder = made[0], tmp_path_factory.mktemp("calm") / "catalogue"
    rounds(as_made(made, folder), fake, folder, None).stored.close()
    return given(fake), sorted(written(fake))


def hold_after_kills(made, calm, folder, seed):
    fake, (wanted, writes) = made[0], calm
    opened = as_made(made, folder / "catalogue")
    opened = rounds(opened, fake, folder / "catalogue", (random.Random(seed), 4))
    assert given(fake) == wanted
    assert sorted(written(fake)) == writes
    undo(opened, library_of(fake))
    left = {name: [label for label in labels if 0 < label[2] < 100] for name, labels in given(fake).items()}
    assert not any(left.values())
    opened.stored.close()


@pytest.mark.parametrize("seed", range(4))
def test_after_kills_all_is_as_if_there_had_been_none(made, calm, tmp_path, seed):
    hold_after_kills(made, calm, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 29))
def test_after_a_hundred_kills_and_faults_all_is_as_if_there_had_been_none(made, calm, tmp_path, seed):
    hold_after_kills(made, calm, tmp_path, seed)  # 25 · 2 · 4 = 200 rounds are disturbed; 3 in 4 break off


class Persons:
    """A person who changes labels of random photos before some of the requests."""

    def __init__(self, fake, seed):
        self.fake, self.rng = fake, random.Random(seed)
        self.ever = {(photo, label) for photo in fake.photos for label in fake.tags_of(photo)}
        self.removed = set()

    def act(self):
        photo = self.rng.choice([photo for photo in self.fake.photos if self.fake.photos[photo].labels])
        label = self.rng.choice([*sorted(self.fake.tags_of(photo)), "Sea"])
        how = self.rng.choice(("tag", "untag", "add", "remove"))
        if how in ("tag", "add"):
            self.ever.add((photo, label))
            self.removed.discard((photo, label))
            self.fake.person_tags(photo, label) if how == "tag" else self.fake.edit_several([photo], add=label)
        elif label in self.fake.tags_of(photo):
            self.removed.add((photo, label))
            self.fake.person_untags(photo, label) if how == "untag" else self.fake.edit_several([photo], remove=label)

    def around(self, handler, work):
        if self.rng.random() < 0.05:
            self.act()
        handler.send(work())


def hold_beside_a_person(made, folder_of_test, seed):
    fake, catalogue = made[0], as_made(made, folder_of_test / "catalogue")
    person = Persons(fake, seed)
    for _ in range(2):
        fake.fail(person.around, times=100_000)
        sync(catalogue, library_of(fake), LOW)
        fake.forget_faults()
        fake.offset += READ_ALL_SECONDS + 1
    sync(catalogue, library_of(fake), LOW)
    rows = catalogue.stored.database.rows("SELECT remote_id, image_id FROM remote_photos WHERE image_id IS NOT NULL")
    images = {photo: catalogue.image(number) for photo, number in rows}
    denied = {(photo, tag) for photo, image in images.items() for tag, value in image.verdicts.items() if value == -1}
    again = {pair for pair in written(fake) if written(fake).count(pair) == 2}  # gone before the round read it again
    assert denied <= person.removed <= denied | again
    assert denied
    theirs = by_people(fake)
    assert theirs <= person.ever
    ours = {(pair.remote_id, pair.text) for pair in catalogue.stored.connected.pairs(*ACTIVE)}
    assert {(photo, tag) for photo, image in images.items() for tag in image.tags} == theirs - ours
    undo(catalogue, library_of(fake))
    assert by_people(fake) == theirs
    assert not [label for labels in given(fake).values() for label in labels if 0 < label[2] < 100]
    catalogue.stored.close()


@pytest.mark.parametrize("seed", range(2))
def test_beside_a_person_nothing_of_theirs_is_lost_and_no_correction_is_made_up(made, tmp_path, seed):
    hold_beside_a_person(made, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_beside_a_person_in_more_ways(made, tmp_path, seed):
    hold_beside_a_person(made, tmp_path, seed)


def by_people(fake):
    """Return the photos and labels that a person gave or confirmed."""
    return {
        (uid, fake.tags[number].name)
        for uid, photo in fake.photos.items()
        for number, on in photo.labels.items()
        if on.uncertainty == 0
    }


def test_the_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("VISTERM_CONNECTED", str(tmp_path / "connected.json"))
    with FakePhotoPrism() as fake:
        fill(fake)
        before = given(fake)
        key = tmp_path / "key"
        key.write_text(fake.key)
        key.chmod(0o600)
        settings = " ".join(f"--encoder-set {name}={value}" for name, value in SETTINGS.items())
        line = f"connect photoprism {fake.url} --key-file key -o catalogue --encoder visterms {settings} --model ridge"
        code, out, err = visterm(line, tmp_path)
        assert code == 0, (out, err)
        code, out, err = visterm("sync catalogue --dry-run --precision 0.6", tmp_path)
        assert (code, given(fake) == before) == (0, True), (out, err)
        code, out, err = visterm("sync catalogue --precision 0.6", tmp_path)
        assert code == 0, (out, err)
        assert written(fake)
        code, out, err = visterm("sync catalogue --parent auto", tmp_path)
        assert code == 2
        assert "PhotoPrism has no tags under others" in err
        code, out, err = visterm("sync catalogue --undo", tmp_path)
        assert (code, given(fake) == before) == (0, True), (out, err)
        assert fake.key not in out + err
