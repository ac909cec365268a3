"""A catalogue of PhotoPrism's photos: read, learned, written to label by label, corrected by a person, and undone."""

from __future__ import annotations

import random

import pytest

from fakes import served
from fakes.photoprism import FakePhotoPrism
from remembered_library import N_PHOTOS, N_TAGGED, colour_of, connected, picture, tags_of
from visterm.connectors.photoprism import PhotoPrism
from visterm.connectors.sync import Settings, sync, undo
from visterm.core.errors import ServiceError
from visterm.core.web_client import Patience
from visterm.store.connected import OFF

LOW = Settings(parent=None, precision=0.6)


@pytest.fixture
def opened(tmp_path):
    """A server of photos, most of them tagged by a person, and a catalogue of them."""
    with FakePhotoPrism() as fake:
        for number in range(N_PHOTOS):
            fake.add_photo(
                f"{number}.jpg", picture(colour_of(number), number), tuple(tags_of(number) if number < N_TAGGED else ())
            )
        catalogue = connected(tmp_path / "catalogue", library_of(fake))
        yield catalogue, fake
        catalogue.stored.close()


def library_of(fake, retries=3):
    return PhotoPrism(fake.url, fake.key, Patience(20.0, retries, 0.01))


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
    assert sync(catalogue, library_of(fake), Settings(parent=None, precision=0.999)).pulled.taken_off == 0


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


@pytest.mark.parametrize("seed", range(5))
def test_faults_and_deaths_lose_nothing_and_write_nothing_twice(opened, seed):
    catalogue, fake = opened
    rng = random.Random(seed)
    before = given(fake)
    wanted = None
    for _ in range(30):
        fake.fail(rng.choice([served.lost, served.cut, served.reset]), times=1, where="(POST|GET|DELETE) .*")
        fake.dies_in = rng.randrange(2, 60)
        try:
            wanted = sync(catalogue, library_of(fake, retries=0), LOW)
        except ServiceError:
            wanted = None
        fake.kill()
        fake.forget_faults()
        fake.start()
        if wanted is not None:
            break
    fake.dies_in = None
    assert sync(catalogue, library_of(fake), LOW).pulled.taken_off == 0
    assert len(set(written(fake))) == len(written(fake))
    after = given(fake)
    assert all(set(before[name]) <= set(after[name]) for name in before)
    undo(catalogue, library_of(fake))
    assert given(fake) == before
