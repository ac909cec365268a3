"""Catalogues of another program's library: read, learned from, written to and undone, whatever comes between."""

from __future__ import annotations

import pytest

import remembered_library
from command_line import visterm
from refusals import refused
from remembered_library import (
    LOW,
    N_PHOTOS,
    N_TAGGED,
    REQUEST,
    RememberedLibrary,
    connected,
    first_of_ours,
    picture,
    tags_of,
)  # fmt: skip
from visterm import Catalogue, Tagger
from visterm.connectors import keys
from visterm.connectors import pull as pulling
from visterm.connectors.connect import connect
from visterm.connectors.sync import PushSettings, connection_of, library_of, sync, undo
from visterm.core.errors import DataError, ServiceError, StorageError
from visterm.store.connected import OFF, WRITTEN, Connected

made, opened = remembered_library.made, remembered_library.opened  # fixtures


def image_of(catalogue, photo):
    """Return the view of a photo by its id there."""
    [image_id] = catalogue.stored.database.rows("SELECT image_id FROM remote_photos WHERE remote_id = ?", (photo,))[0]
    return catalogue.image(image_id)


def test_a_library_is_read_with_names_and_peoples_tags(opened):
    catalogue, library = opened
    assert len(catalogue) == N_PHOTOS
    view = image_of(catalogue, "p003")
    assert (view.record.name, view.tags) == ("p003.jpg", sorted(tags_of(3)))
    assert view.record.path.endswith("previews/000000/000000004.jpg")
    assert set(catalogue.tagger.vocabulary.tags) == {"red", "green", "blue", "grey", "warm", "cool"}
    assert library.writes == []


def test_tags_that_other_programs_wrote_for_themselves_are_nobodys(opened):
    catalogue, library = opened
    library.tag("p003", "darktable/exported", "_Digikam_Internal_Tags_/Color Label Red", "exported by Ann")
    sync(catalogue, library, LOW)
    assert image_of(catalogue, "p003").tags == sorted([*tags_of(3), "exported by Ann"])


def test_predictions_are_written_under_a_tag_of_our_own_and_only_once(opened):
    catalogue, library = opened
    before = library.state()
    done = sync(catalogue, library, LOW)
    assert done.pushed.written == len(library.ours()) == len(library.writes) > 0
    assert {photo: [tag for tag in tags if "/" not in tag] for photo, tags in library.state().items()} == before
    for photo, tag in library.ours():
        assert tag.removeprefix("visterm/") not in before[photo]
    again = sync(catalogue, library, LOW)
    assert (again.pushed.written, again.pushed.taken, again.learned) == (0, 0, None)
    assert sync(catalogue, library, LOW).line() == "nothing new"


def test_a_dry_run_says_what_would_be_written_and_asks_for_no_change(opened):
    catalogue, library = opened
    changes = sync(catalogue, library, LOW, dry_run=True).pushed.changes
    assert library.writes == []
    sync(catalogue, library, LOW)
    assert {(change.photo, change.tag) for change in changes} == library.ours()


def test_what_a_person_takes_off_is_rejected_learned_and_never_suggested_again(opened):
    catalogue, library = opened
    sync(catalogue, library, LOW)
    photo, text = first_of_ours(library)
    library.untag(photo, text)
    done = sync(catalogue, library, LOW)
    assert (done.pulled.taken_off, done.learned is not None) == (1, True)
    assert image_of(catalogue, photo).verdicts == {text.removeprefix("visterm/"): -1}
    assert [pair.text for pair in catalogue.stored.connected.pairs(OFF)] == [text]
    sync(catalogue, library, LOW)
    assert (photo, text) not in library.ours()
    assert library.writes.count(("add", photo, text)) == 1


@pytest.mark.parametrize("settings", [LOW, PushSettings(None, LOW.precision)], ids=["under ours", "as own"])
def test_what_a_person_takes_off_at_once_is_noticed_though_the_photo_is_as_before_it_was_written(opened, settings):
    catalogue, library = opened
    before = library.state()
    sync(catalogue, library, settings)
    photo, texts = next(
        (photo, sorted(set(tags) - set(before[photo])))
        for photo, tags in sorted(library.state().items())
        if set(tags) != set(before[photo])
    )
    for text in texts:
        library.untag(photo, text)
    assert library.state()[photo] == before[photo]
    assert sync(catalogue, library, settings).pulled.taken_off == len(texts)
    sync(catalogue, library, settings)
    assert [library.writes.count(("add", photo, text)) for text in texts] == [1] * len(texts)


def test_a_new_run_that_is_worse_on_few_photos_is_not_used_unasked(opened, monkeypatch):
    catalogue, library = opened
    sync(catalogue, library, LOW)
    run = catalogue.stored.origin.fingerprint
    for few in ({"before": 0.5, "after": 0.4}, {"before": 0.4, "after": 0.5}):
        found = {**few, "compared": 5, "interval": None}
        monkeypatch.setattr("visterm.library.learn._comparison_facts", lambda *_, found=found: found)
        photo, text = first_of_ours(library)
        library.untag(photo, text)
        done = sync(catalogue, library, LOW)
        assert ("did worse on these, so" in done.learned) == (few["after"] < few["before"])
        assert (catalogue.stored.origin.fingerprint == run) == (few["after"] < few["before"])


def test_that_nothing_is_sure_enough_is_said(opened):
    catalogue, library = opened
    done = sync(catalogue, library, PushSettings(precision=0.9999))
    assert (done.pushed.wanted, library.writes) == (0, [])
    assert any("No prediction is sure enough" in remark for remark in done.remarks)


def test_a_tag_of_a_person_that_is_taken_off_is_not_suggested_either_until_it_is_given_again(opened):
    catalogue, library = opened
    library.untag("p000", "red")
    sync(catalogue, library, LOW)
    assert image_of(catalogue, "p000").verdicts == {"red": -1}
    assert ("p000", "visterm/red") not in library.ours()
    library.tag("p000", "red")
    sync(catalogue, library, LOW)
    assert (image_of(catalogue, "p000").verdicts, "red" in image_of(catalogue, "p000").tags) == ({}, True)


def test_a_tag_that_a_person_gives_takes_the_place_of_ours(opened):
    catalogue, library = opened
    sync(catalogue, library, LOW)
    photo, text = first_of_ours(library)
    library.tag(photo, text.removeprefix("visterm/"))
    sync(catalogue, library, LOW)
    assert text not in library.photos[photo].tags
    assert text.removeprefix("visterm/") in library.photos[photo].tags


def test_what_is_rejected_in_the_catalogue_is_taken_back_there(opened):
    catalogue, library = opened
    sync(catalogue, library, LOW)
    photo, text = first_of_ours(library)
    catalogue.judge(image_of(catalogue, photo).record.id, text.removeprefix("visterm/"), -1)
    assert sync(catalogue, library, LOW).pushed.taken == 1
    assert text not in library.photos[photo].tags


def test_what_is_accepted_or_given_in_the_catalogue_is_written_there_and_stays(opened):
    catalogue, library = opened
    sync(catalogue, library, LOW)
    photo, text = first_of_ours(library)
    image_id = image_of(catalogue, photo).record.id
    catalogue.judge(image_id, text.removeprefix("visterm/"), 1)
    catalogue.give(image_id, ["holiday 1999"])
    sync(catalogue, library, PushSettings(precision=0.9999))
    assert library.ours() >= {(photo, text), (photo, "visterm/holiday 1999")}
    library.tag(photo, "holiday 1999")
    sync(catalogue, library, PushSettings(precision=0.9999))
    assert (photo, "visterm/holiday 1999") not in library.ours()


def test_a_photo_at_which_the_server_fails_is_skipped_and_a_server_that_is_away_ends_the_round(opened):
    catalogue, library = opened
    for name in ("bad", *(f"good{number}" for number in range(5))):
        library.put(name, preview=picture("red", len(name) + ord(name[-1])))
    preview = library.preview

    def failing(photo):
        if photo in bad:
            raise ServiceError("it answers with 500")
        return preview(photo)

    library.preview, bad = failing, {"bad"}
    done = sync(catalogue, library, LOW)
    assert (done.pulled.new, [item.image for item in done.pulled.skipped]) == (5, ["bad.jpg (bad)"])
    for number in range(5):
        library.put(f"later{number}", preview=picture("blue", number))
    bad = set(library.photos)
    with pytest.raises(ServiceError, match="500"):
        sync(catalogue, library, LOW)


def test_previews_are_noted_in_groups_and_those_before_a_failure_are_kept(opened, monkeypatch):
    catalogue, library = opened
    note, groups, preview = Connected.set_fetched, [], library.preview

    def noted(connected, versions):
        groups.append(len(versions))
        note(connected, versions)

    def failing(photo):
        if photo.startswith("bad"):
            raise ServiceError("it answers with 500")
        return preview(photo)

    monkeypatch.setattr(pulling, "PREVIEWS_PER_COMMIT", 2)
    monkeypatch.setattr(Connected, "set_fetched", noted)
    library.preview = failing
    for number, name in enumerate(["a", "b", "c", *(f"bad{number}" for number in range(4))]):
        library.put(name, preview=picture("red", number))
    with pytest.raises(ServiceError, match="500"):
        sync(catalogue, library, LOW)
    assert groups == [2, 1]
    assert [entry[1] for entry in catalogue.stored.connected.to_fetch()] == [f"bad{number}" for number in range(4)]


def test_predictions_below_a_higher_precision_are_taken_back(opened):
    catalogue, library = opened
    sync(catalogue, library, LOW)
    n_before = len(library.ours())
    done = sync(catalogue, library, PushSettings(precision=0.9999))
    assert done.pushed.taken == n_before - len(library.ours()) > 0


def test_undo_takes_back_what_we_wrote_and_nothing_that_was_there_before(opened):
    catalogue, library = opened
    library.tag("p001", "visterm/by another hand")
    before = library.state()
    sync(catalogue, library, LOW)
    assert [change.confidence for change in undo(catalogue, library, dry_run=True).changes] == [None] * (
        len(library.ours()) - 1
    )
    taken = undo(catalogue, library).taken
    assert library.state() == before
    assert taken == sum(what == "add" for what, *_ in library.writes) > 0
    assert "visterm/by another hand" not in [tag.tag for tag in catalogue.tags()]


def test_as_own_our_tags_have_the_library_s_spelling_and_are_never_a_person_s(opened):
    catalogue, library = opened
    for photo in library.photos.values():  # as another program may have written them
        photo.tags = [tag.upper() for tag in photo.tags]
    for photo in list(library.photos):
        library.put(photo)
    before = library.state()
    own = PushSettings(parent=None, precision=0.6)
    existing, given = library.existing, []

    def meanwhile(pairs):  # a person is quicker with one of them
        if not given:
            given.append((pairs[0].photo, pairs[0].tag))
            library.tag(*given[0])
        return existing(pairs)

    library.existing = meanwhile
    done = sync(catalogue, library, own)
    assert done.pushed.written > 0
    assert {tag for tags in library.state().values() for tag in tags} == {t for tags in before.values() for t in tags}
    given_since = {(photo, tag) for photo, tags in before.items() for tag in library.state()[photo] if tag not in tags}
    assert {(photo, tag) for _, photo, tag in library.writes} == given_since - {given[0]}
    undo(catalogue, library)
    after = {**before, given[0][0]: sorted([*before[given[0][0]], given[0][1]])}
    assert library.state() == after


def test_ours_move_to_another_parent(opened):
    catalogue, library = opened
    before = library.state()
    sync(catalogue, library, LOW)
    ours = {(photo, tag.replace("visterm/", "auto/")) for photo, tag in library.ours()}
    sync(catalogue, library, PushSettings(parent="auto", precision=0.6))
    assert {(p, tag) for p, tags in library.state().items() for tag in tags if tag not in before[p]} == ours


def test_new_changed_and_deleted_photos_are_followed(opened):
    catalogue, library = opened
    changed = image_of(catalogue, "p002").record
    library.put("new", preview=picture("red", 999), name="../../new.jpg")
    library.put("p002", preview=picture("red", 998), version=2)
    gone = library.photos.pop("p001")
    done = sync(catalogue, library, LOW)
    assert (done.pulled.new, done.pulled.changed, done.pulled.deleted) == (1, 1, 1)
    assert image_of(catalogue, "p002").record.sha256 != changed.sha256
    assert image_of(catalogue, "p002").record.id == changed.id
    assert image_of(catalogue, "new").record.name == "../../new.jpg"
    lost = image_of(catalogue, "p001")
    assert (lost.record.state, lost.tags) == ("gone", sorted(tags_of(1)))
    assert library.asked.count("ids") == 1
    library.photos["p001"] = gone
    assert sync(catalogue, library, LOW).pulled.deleted == 0
    sync(catalogue, library, LOW)
    assert image_of(catalogue, "p001").record.state == "here"
    assert sync(catalogue, library, LOW).line() == "nothing new"


def test_photos_without_a_preview_that_can_be_read_are_skipped_with_a_reason_and_tried_again(opened):
    catalogue, library = opened
    library.put("later")
    library.put("broken", preview=picture("red", 5)[:300])
    library.put("bomb", preview=b"<html>not a picture</html>")
    done = sync(catalogue, library, LOW)
    assert sorted(item.image for item in done.pulled.skipped) == [
        "bomb.jpg (bomb)", "broken.jpg (broken)", "later.jpg (later)"
    ]  # fmt: skip
    assert {item.image: item.reason for item in done.pulled.skipped}["later.jpg (later)"] == "it has no preview"
    for name in ("later", "broken", "bomb"):
        library.photos[name].preview = picture("red", len(name))
    done = sync(catalogue, library, LOW)
    assert (done.pulled.new, done.pulled.skipped) == (3, [])
    assert catalogue.skipped == []


def test_photos_that_are_too_young_are_left_alone_until_they_are_not(opened):
    catalogue, library = opened
    library.put("young", preview=picture("red", 77), ready=False)
    sync(catalogue, library, LOW)
    assert library.photos["young"].tags == []
    library.put("young", ready=True)
    sync(catalogue, library, LOW)
    assert "visterm/warm" in library.photos["young"].tags


def test_tags_that_the_server_loses_are_counted_and_written_again_and_are_no_rejections(opened):
    catalogue, library = opened
    library.loses = {f"p{number:03d}" for number in range(N_TAGGED, N_PHOTOS)}
    done = sync(catalogue, library, LOW)
    assert done.pushed.refused > 0
    assert catalogue.stored.connected.pairs(WRITTEN) == []
    library.loses = set()
    assert sync(catalogue, library, LOW).pushed.written == done.pushed.refused
    assert catalogue.stored.database.value("SELECT count(*) FROM verdicts") == 0


def test_rejections_of_the_program_are_taken_over_but_not_those_that_our_own_taking_back_left(opened):
    catalogue, library = opened
    sync(catalogue, library, LOW)
    photo, text = first_of_ours(library)
    undo(catalogue, library)
    library.put(photo, rejected=[text])
    library.put("p150", rejected=["green", "warm"])
    sync(catalogue, library, PushSettings(precision=0.9999))
    assert image_of(catalogue, photo).verdicts == {}
    assert image_of(catalogue, "p150").verdicts == {"green": -1, "warm": -1}
    library.put("p150", rejected=["green"])
    sync(catalogue, library, PushSettings(precision=0.9999))
    assert image_of(catalogue, "p150").verdicts == {"green": -1}


def test_what_cannot_be_a_tag_is_counted_and_named(opened):
    catalogue, library = opened
    library.tag("p150", "sea\u202eside", "x" * 300, "sea", " ")
    done = sync(catalogue, library, LOW)
    assert dict(done.pulled.unusable) == {"sea\u202eside": 1, "x" * 300: 1, " ": 1}
    assert image_of(catalogue, "p150").tags == ["sea"]


def test_without_confidences_nothing_is_written_and_a_remark_says_so(opened, tmp_path):
    _, library = opened
    tagger = Tagger(encoder="visterms", encoder_params=REQUEST.encoder_params, model="ridge", n_jobs=1)
    paths = [tmp_path / f"{number}.jpg" for number in range(12)]
    for number, path in enumerate(paths):
        path.write_bytes(library.photos[f"p{number:03d}"].preview)
    tagger.fit(paths, [tags_of(number) for number in range(12)], calibrate=False)
    catalogue, _ = connect(tmp_path / "other", library, key_file=None, run=tagger, request=REQUEST)
    done = sync(catalogue, library, LOW)
    assert done.remarks[0].startswith("No predictions are written: the run knows no confidences")
    assert library.writes == []


def test_a_catalogue_that_was_moved_goes_on(opened, tmp_path):
    catalogue, library = opened
    catalogue.stored.close()
    (tmp_path / "catalogue").rename(tmp_path / "moved")
    catalogue = Catalogue.load(tmp_path / "moved", n_jobs=1)
    library.untag("p000", "red")
    done = sync(catalogue, library, LOW)
    assert (done.pulled.new, done.pulled.changed, done.pulled.retagged) == (0, 0, 1)
    assert image_of(catalogue, "p000").record.path.startswith(str(tmp_path / "moved"))


def test_a_catalogue_of_another_library_or_of_files_is_refused(opened, tmp_path):
    catalogue, library = opened
    other = RememberedLibrary("http://elsewhere:2283")
    with refused("out", error=StorageError):
        connect(tmp_path / "catalogue", other, key_file=None, run=None, request=REQUEST)
    Catalogue.create(tmp_path / "files", catalogue.tagger)
    with refused("out", error=StorageError):
        connect(tmp_path / "files", library, key_file=None, run=None, request=REQUEST)
    with pytest.raises(StorageError, match="is not connected to a library"):
        sync(Catalogue.load(tmp_path / "files"), library, LOW)


def test_a_library_without_tags_needs_words_or_a_run_and_keeps_what_was_fetched(tmp_path):
    library = RememberedLibrary()
    for number in range(4):
        library.put(f"p{number}", preview=picture("red", number))
    with pytest.raises(DataError, match="none has a tag to learn from"):
        connected(tmp_path / "catalogue", library)
    assert not (tmp_path / "catalogue").exists()
    for number in range(4):
        library.tag(f"p{number}", "red", *(["dark"] if number % 2 else []))
    assert len(connected(tmp_path / "catalogue", library)) == 4
    assert library.asked.count("preview") == 4
    assert [path.name for path in tmp_path.iterdir()] == ["catalogue"]


def test_a_key_goes_only_to_a_server_that_was_named_with_it(opened, tmp_path, monkeypatch):
    catalogue, _ = opened
    monkeypatch.setenv(keys.ALLOWED_VARIABLE, str(tmp_path / "connected.json"))
    monkeypatch.setenv("IMMICH_API_KEY", "a-key")
    connection = connection_of(catalogue)
    with refused("url", value="http://nas:2283"):
        library_of(connection)
    keys.allow(connection.address, None)
    assert library_of(connection).address == "http://nas:2283"
    with refused("url", value="http://nas:2283"):
        library_of(connection._replace(key_file="/home/me/.ssh/id"))


def test_settings_that_cannot_be_are_refused():
    for program, parent in (("immich", "a//b"), ("photoprism", "visterm")):
        with refused("parent", value=parent):
            PushSettings().changed(program, parent=parent)


def test_info_says_what_a_catalogue_is_connected_to(opened, tmp_path):
    catalogue, library = opened
    sync(catalogue, library, LOW)
    code, out, _ = visterm("info catalogue", tmp_path)
    assert code == 0
    assert "connected to: immich at http://nas:2283" in out
    assert f"tags written there: {len(library.ours()):,}" in out
