"""A catalogue's run learns from what people say: tags moved or all anew, compared on images held out by content."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from refusals import refused
from tiny_catalogues import ENCODER, draw_photo, draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.cli.command_line import app
from visterm.core.errors import CorruptFileError, DataError, StorageError
from visterm.core.progress import Progress
from visterm.learning.relations import WordRelations
from visterm.library import learn as learning
from visterm.library import training
from visterm.library.dictionary import photos_of_tags, tree_level
from visterm.library.encoded_features import CatalogueFeatures
from visterm.library.info import describe
from visterm.library.learned import IS_WORSE, outcome_text
from visterm.library.training import is_held_out
from visterm.metrics import average_precisions
from visterm.store.filters import Filter

pytestmark = pytest.mark.usefixtures("plugin")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    tags = draw_photos(folder / "photos", 40, seed=7)
    return {
        model: fit_run(folder / "photos", tags, folder / model, model=model) for model in ("wsabie", "ridge", "auto")
    }


def made(run, tmp_path, n=60):
    tags = draw_photos(tmp_path / "photos", n)
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index(tmp_path / "photos", tags=write_tags(tmp_path / "tags.csv", tags))
    return catalogue


@pytest.fixture
def few_are_compared(monkeypatch):
    """Runs are compared on as few photos as there are here."""
    monkeypatch.setattr(training, "MIN_COMPARED_PHOTOS", 1)


def held_out(catalogue):
    return [record for record in catalogue.records if is_held_out(record)]


def test_a_small_change_moves_tags_and_leaves_the_rows_of_images(runs, tmp_path, monkeypatch):
    catalogue = made(runs["wsabie"], tmp_path)
    rows, old = catalogue.stored.current_rows().rows(np.arange(60)).copy(), catalogue.tagger
    greys = [hit.id for hit in catalogue.search("grey", 15).hits]
    for image_id in greys:
        catalogue.give(image_id, ["fog"])
    monkeypatch.setattr(type(old.encoder), "encode", lambda *_, **__: pytest.fail("encoded"))
    done = catalogue.learn()
    assert (done.full, done.new_tags, done.tags) == (False, 1, len(old.vocabulary) + 1)
    np.testing.assert_array_equal(catalogue.stored.current_rows().rows(np.arange(60)), rows)
    assert catalogue.tagger.fingerprint == done.run != old.fingerprint
    assert set(greys) & {hit.id for hit in catalogue.search("fog", 15).hits}
    X = CatalogueFeatures(catalogue.stored, old.encoder.fingerprint).rows([0])[1]
    [[best]] = catalogue.tagger.model.annotate(X, 1)[0]
    assert catalogue.image(0).predicted[0].tag == catalogue.tagger.vocabulary.tags[best]


@pytest.mark.usefixtures("few_are_compared")
@pytest.mark.parametrize("model", ["wsabie", "ridge"])
def test_a_full_fit_learns_from_all_but_those_held_out_and_is_measured_on_these(model, runs, tmp_path):
    catalogue = made(runs[model], tmp_path)
    out = held_out(catalogue)
    assert 2 <= len(out) <= 15
    old = catalogue.tagger
    first = catalogue.learn(full=True)
    assert (first.full, first.images, first.held_out) == (True, 60 - len(out), len(out))
    assert f"from {60 - len(out)} photos ({len(out)} more are held out to compare runs)" in first.summary
    assert first.compared <= len(out)
    said = outcome_text(replace(first, before=None, after=None, compared=0, interval=None), tmp_path / "catalogue")
    assert "; the runs are not compared: no tagged photo was held out from both. " in said
    second = catalogue.learn(full=True)
    assert second.compared == len(out)
    assert second.before == pytest.approx(second.after)
    X = catalogue.tagger.encoder.encode([record.path for record in out]).rows
    Y = catalogue.tagger.vocabulary.encode([catalogue.image(record.id).tags for record in out])
    scores = catalogue.tagger.model.decision_function(X)
    assert second.after == pytest.approx(np.mean(average_precisions(scores, Y > 0)))
    assert old.fingerprint != catalogue.tagger.fingerprint
    assert catalogue.stored.current_rows().rows([5]).shape[1] == catalogue.tagger.model.image_rows(X[:1]).shape[1]
    kept, expected = (
        sp.csr_array(rows).toarray()
        for rows in (
            catalogue.stored.current_rows().rows([record.id for record in out]),
            catalogue.tagger.model.image_rows(X),
        )
    )
    np.testing.assert_allclose(kept, expected, rtol=1e-5, atol=1e-6)


def test_what_is_held_out_stays_so_wherever_it_lies(runs, tmp_path):
    catalogue = made(runs["wsabie"], tmp_path)
    before = {record.id for record in held_out(catalogue)}
    for number in range(0, 60, 2):
        (tmp_path / "photos" / f"{number:03d}.png").rename(tmp_path / "photos" / f"moved{number}.png")
    draw_photo(tmp_path / "photos" / "new.png", "red", 5000)
    assert catalogue.index(tmp_path / "photos").moved == 30
    assert {record.id for record in held_out(catalogue)} - {60} == before


def test_rejected_and_accepted_tags_change_what_is_learned(runs, tmp_path):
    catalogue = made(runs["ridge"], tmp_path)
    reds = [record.id for record in catalogue.records if "red" in catalogue.image(record.id).tags]
    for image_id in reds:
        catalogue.judge(image_id, "red", -1)
        catalogue.judge(image_id, "crimson", 1)
    catalogue.learn(full=True)
    assert "red" not in catalogue.tagger.vocabulary
    assert "crimson" in [tag.tag for tag in catalogue.image(reds[0]).predicted][:3]
    assert {hit.id for hit in catalogue.search("crimson", 5).hits} <= set(reds)
    assert catalogue.image(reds[0]).tags == ["crimson", "warm"]


@pytest.mark.usefixtures("few_are_compared")
@pytest.mark.parametrize("model", ["wsabie", "ridge", "auto"])
@pytest.mark.parametrize("is_out", [True, False])
def test_a_tag_that_is_given_to_one_photo_is_learned_from_it(model, is_out, runs, tmp_path):
    catalogue = made(runs[model], tmp_path)
    out = [record.id for record in held_out(catalogue)]
    image_id = out[0] if is_out else next(record.id for record in catalogue.records if record.id not in out)
    catalogue.give(image_id, ["Nebel 霧"])
    assert [hit.id for hit in catalogue.search("nebel 霧", 1).hits] == [image_id]
    done = catalogue.learn(full=True, use_even_if_worse=True)
    assert (done.new_tags, done.new, done.held_out) == (1, ("Nebel 霧",), len(out) - is_out)
    assert "tags (1 new: Nebel 霧) from" in outcome_text(done, "catalogue")
    found = catalogue.search("nebel 霧", 0).hits
    assert found[0].id == image_id
    assert len(found) == 60


@pytest.mark.parametrize("model", ["wsabie", "ridge"])
def test_a_new_path_in_the_tree_lies_there_at_once_and_is_called_by_its_end_once_learned(model, tmp_path):
    tags = draw_photos(tmp_path / "photos", 60)
    params = {"dim": 4, "epochs": 2} if model == "wsabie" else {}
    tagger = Tagger(model=model, model_params=params, encoder="mean_colour", n_jobs=1)
    tree = [("red", "colour"), ("blue", "colour")]
    tagger.fit([tmp_path / "photos" / name for name in tags], list(tags.values()), tree=tree, calibrate=False)
    catalogue = Catalogue.create(tmp_path / "catalogue", tagger)
    catalogue.index(tmp_path / "photos", tags=write_tags(tmp_path / "tags.csv", tags))
    image_id = next(record.id for record in catalogue.records if not is_held_out(record) and record.id % 4 == 3)  # grey
    catalogue.give(image_id, ["colour/red/Röte"])
    for _ in range(2):
        for word in ("colour/red/röte", "röte", "red"):
            n_tagged = 16 if word == "red" else 1  # 15 of them by the tag file
            assert image_id in [hit.id for hit in catalogue.search(word, n_tagged).hits], word
            assert image_id in catalogue.ids(Filter(tags=(word,)))
        assert photos_of_tags(catalogue)["red"] == 16
        catalogue.learn(use_even_if_worse=True, full=model == "ridge")
    assert "Röte" in catalogue.tagger.vocabulary.tags
    assert catalogue.tagger.tree.words.path("röte") == ["colour", "red", "Röte"]
    assert [item.tag for item in tree_level(catalogue, "red")] == ["Röte"]


def test_all_is_learned_again_with_the_relations_of_the_run(tmp_path):
    tags = draw_photos(tmp_path / "learned", 40, seed=7)
    params = {"dim": 4, "epochs": 2, "valid_share": 0.0}
    tagger = Tagger(
        model="objects_and_parts", encoder="visterms", encoder_params=ENCODER, model_params=params, n_jobs=1
    )
    photos = [tmp_path / "learned" / name for name in tags]
    tagger.fit(photos, [*tags.values()], relations=WordRelations([("red", "warm")]), calibrate=False)
    tagger.save(tmp_path / "run")
    catalogue = made(tmp_path / "run", tmp_path)
    catalogue.give(next(record.id for record in catalogue.records if not is_held_out(record)), ["a new tag"])
    catalogue.learn(full=True, use_even_if_worse=True)
    vocabulary = catalogue.tagger.vocabulary
    assert "a new tag" in vocabulary.tags
    assert catalogue.tagger.model.part_of_.tolist() == [[vocabulary.index("red"), vocabulary.index("warm")]]


@pytest.mark.usefixtures("few_are_compared")
def test_no_tag_is_given_up_to_compare_runs(runs, tmp_path):
    catalogue = made(runs["ridge"], tmp_path)
    out = [record.id for record in held_out(catalogue)]
    for number, image_id in enumerate(out[1:]):
        catalogue.give(image_id, [f"new {number}", "on all of these"])
    catalogue.stored.tags.give(out[1], ["of a file"], "file")
    done = catalogue.learn(full=True, use_even_if_worse=True)
    given = {tag for record in catalogue.records for tag in catalogue.image(record.id).tags}
    assert given == set(catalogue.tagger.vocabulary.tags)
    assert done.held_out == 1
    assert "not learned" not in outcome_text(done, "catalogue")


def test_forty_answers_and_learning_keep_every_tag_and_hold_out_nothing_while_too_few_could_be_compared(runs, tmp_path):
    catalogue = made(runs["ridge"], tmp_path)
    for number, record in enumerate(catalogue.records):
        catalogue.stored.tags.give(record.id, [f"only here {number}"], "file")
    answered = [(record.id, tag) for record in catalogue.records for tag in ("red", "warm")][:40]
    for number, (image_id, tag) in enumerate(answered):
        catalogue.judge(image_id, tag, 1 if number % 2 else -1)
    given = {tag for record in catalogue.records for tag in catalogue.image(record.id).tags}
    for _ in range(2):
        done = catalogue.learn(full=True, use_even_if_worse=True)
        assert set(catalogue.tagger.vocabulary.tags) == given
        assert (done.images, done.held_out, done.comparison) == (60, 0, None)
        assert "fewer than 20 photos can be held out" in outcome_text(done, tmp_path / "catalogue")


def test_the_command_says_what_is_not_learned_before_it_learns_and_that_there_are_no_confidences(runs, tmp_path):
    catalogue = made(runs["ridge"], tmp_path, n=18)  # with 20 tagged photos there are confidences
    catalogue.give(0, ["rare"])
    for record in catalogue.records:
        catalogue.judge(record.id, "grey", -1)
    catalogue.stored.close()
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "catalogue"), "--full", "--min-count", "3"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stderr.split())
    assert "Not learned: rare (on fewer than 3 photos); grey (no photo of the catalogue has them)." in said
    assert said.index("Not learned: ") < said.index(" tags (0 new)")
    assert "all learned again; no confidences: too few tagged photos could be held out; the runs are" in said
    assert "not learned" not in said


def test_a_model_that_learns_all_at_once_is_not_replaced_by_one_of_few_images(runs, tmp_path):
    catalogue = made(runs["ridge"], tmp_path, n=12)
    with refused("full", value=False):
        catalogue.learn()
    assert catalogue.learn(full=True).full
    assert catalogue.learn().full


def test_nothing_to_learn_from_is_said(runs, tmp_path):
    draw_photos(tmp_path / "photos", 4)
    catalogue = Catalogue.create(tmp_path / "catalogue", Tagger.load(runs["wsabie"], n_jobs=1))
    catalogue.index(tmp_path / "photos")
    with pytest.raises(DataError, match="No image of the catalogue has a tag"):
        catalogue.learn()
    assert catalogue.stored.jobs.latest(1)[0].state == "failed"
    catalogue.judge(0, "red", -1)
    with pytest.raises(DataError, match="No image of the catalogue has a tag"):
        catalogue.learn()
    with pytest.raises(StorageError, match="in memory"):
        Catalogue(Tagger.load(runs["wsabie"])).learn()


class Cancelling(Progress):
    """Progress of a person who cancels the job after the first epoch."""

    def __init__(self, catalogue):
        self._catalogue = catalogue
        self.steps = 0

    def advance(self, steps=1, note=""):
        self.steps += steps
        self._catalogue.stored.jobs.cancel(self._catalogue.stored.jobs.latest(1)[0].id)


def test_a_fit_whose_job_is_cancelled_ends_after_the_epoch_under_way(runs, tmp_path):
    catalogue = made(runs["wsabie"], tmp_path)
    old, progress = catalogue.tagger.fingerprint, Cancelling(catalogue)
    assert catalogue.learn(full=True, progress=progress).cancelled
    assert progress.steps < catalogue.tagger.model.epochs
    assert catalogue.tagger.fingerprint == catalogue.stored.origin.fingerprint == old
    assert catalogue.stored.jobs.latest(1)[0].state == "cancelled"


def test_a_fit_that_is_stopped_changes_nothing(runs, tmp_path, monkeypatch):
    catalogue = made(runs["wsabie"], tmp_path)
    old = catalogue.tagger.fingerprint

    def stop(writer, chunk_size, job, progress):
        catalogue.stored.jobs.cancel(job.id)

    with monkeypatch.context() as patch:
        patch.setattr("visterm.library.learn.RowWriter.predict", stop)
        done = catalogue.learn()
    assert (done.cancelled, done.run) == (True, old)
    assert outcome_text(done, tmp_path) == "Stopped; nothing has changed."
    assert [run.fingerprint for run in catalogue.stored.runs.all()] == [old]
    assert [folder.name for folder in (tmp_path / "catalogue" / "runs").iterdir()] == [old]
    assert catalogue.tagger.fingerprint == old


def test_old_rows_are_dropped_and_the_catalogue_knows_which_run_made_which(runs, tmp_path):
    catalogue = made(runs["wsabie"], tmp_path, n=24)
    catalogue.learn()
    for _ in range(3):
        catalogue.give(0, [f"t{len(catalogue.stored.runs.all())}"])
        catalogue.learn(full=True)
    facts = describe(tmp_path / "catalogue")
    assert [run["rows"] for run in facts["runs"].values()] == [0, 0, 0, 24, 24]
    assert [run["current"] for run in facts["runs"].values()] == [False] * 4 + [True]
    assert facts["made by"] == "this catalogue"
    assert facts["tags of people"] == 3
    assert catalogue.stored.database.check() == []


def worsened(catalogue, monkeypatch):
    """Let the next full fit learn from shuffled tags, so that it ranks tags worse."""
    rows = learning._training_rows

    def shuffled(vocabulary, train, out):
        order = np.random.default_rng(0).permutation(len(train))
        return rows(vocabulary, replace(train, tags=[train.tags[i] for i in order]), out)

    monkeypatch.setattr(learning, "_training_rows", shuffled)


@pytest.mark.usefixtures("few_are_compared")
def test_too_few_photos_held_out_call_no_run_worse(runs, tmp_path, monkeypatch):
    catalogue = made(runs["ridge"], tmp_path, n=120)
    catalogue.learn(full=True)
    worsened(catalogue, monkeypatch)
    done = catalogue.learn(full=True)
    assert 1 < done.compared < 20
    assert done.after < done.before
    assert (done.in_use, done.interval) == (True, None)
    said = catalogue.stored.jobs.latest(1)[0].message
    assert f"on {done.compared} photos held out, too few to say which run is better (20 are needed). " in said
    cautious = replace(done, in_use=False, why_not=IS_WORSE)
    assert f". The new run {done.number} did worse on these, so " in outcome_text(cautious, "catalogue")
    assert "is worse" not in outcome_text(cautious, "catalogue")


def test_a_worse_run_is_kept_but_not_used_unless_that_is_asked_for(runs, tmp_path, monkeypatch):
    catalogue = made(runs["ridge"], tmp_path, n=300)
    old = catalogue.learn(full=True).run
    before = [hit.id for hit in catalogue.search("red", 0).hits]
    worsened(catalogue, monkeypatch)
    done = catalogue.learn(full=True)
    assert (done.in_use, done.run_before) == (False, old)
    low, high = done.interval
    assert low <= done.after - done.before <= high < 0
    assert catalogue.tagger.fingerprint == catalogue.stored.origin.fingerprint == old
    assert [hit.id for hit in catalogue.search("red", 0).hits] == before
    said = catalogue.stored.jobs.latest(1)[0].message
    assert f"MAP {done.before:.3f} before, {done.after:.3f} now" in said
    assert f"visterm use {tmp_path / 'catalogue'} {done.number}" in said
    assert "held out: the new run is worse. " in said
    assert catalogue.learn(full=True, use_even_if_worse=True).in_use
    assert catalogue.tagger.fingerprint == done.run
    assert catalogue.image(0).predicted


def test_another_run_replaces_one_that_is_damaged(runs, tmp_path):
    catalogue = made(runs["wsabie"], tmp_path, n=24)
    old = catalogue.tagger.fingerprint
    catalogue.give(0, ["new"])
    learned = catalogue.learn(full=True).run
    folder = tmp_path / "catalogue"
    for run in (learned, old):
        (folder / "runs" / run / "model.safetensors").rename(folder / "runs" / run / "away")
        assert isinstance(CliRunner().invoke(app, ["search", str(folder), "red"]).exception, CorruptFileError)
        if run == learned:
            done = CliRunner().invoke(app, ["use", str(folder), old[:12]])
            assert done.exit_code == 0, done.output
            assert CliRunner().invoke(app, ["search", str(folder), "red"]).exit_code == 0
    done = CliRunner().invoke(app, ["index", str(runs["ridge"]), str(tmp_path / "photos"), "-o", str(folder)])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, ["search", str(folder), "red"]).exit_code == 0


def test_one_command_goes_back_to_the_run_before(runs, tmp_path):
    catalogue = made(runs["wsabie"], tmp_path, n=24)
    old, before = catalogue.tagger.fingerprint, [hit.id for hit in catalogue.search("red", 0).hits]
    predicted = catalogue.image(3).predicted
    for number in range(3):
        catalogue.give(number, [f"new {number}"])
        catalogue.learn(full=True)
    done = CliRunner().invoke(app, ["use", str(tmp_path / "catalogue"), old[:12]])
    assert done.exit_code == 0, done.output
    assert "uses run 1, of 20" in done.stderr
    assert f"To go back: visterm use {tmp_path / 'catalogue'} --back\n" in done.stderr
    assert catalogue.refresh()
    assert catalogue.tagger.fingerprint == old
    assert catalogue.image(3).predicted == predicted
    assert [hit.id for hit in catalogue.search("red", 0).hits] == before
    other = next(run for run in catalogue.stored.runs.all() if not run.current)
    job_id = catalogue.stored.jobs.start("go back")  # as the page's button does
    command = [sys.executable, "-m", "visterm.web.job_process", str(tmp_path / "catalogue"), str(job_id), "go back"]
    with subprocess.Popen([*command, str(other.id)], stdin=subprocess.PIPE) as process:
        assert process.wait() == 0
    assert catalogue.stored.origin.fingerprint == other.fingerprint
    assert catalogue.stored.jobs.get(job_id).message == "Back to run 2; 24 rows, 0 encoded"
    with refused("run", value="zz") as info:
        catalogue.use("zz")
    assert f"1 ({old[:12]}), 2 " in info.value.expected


def test_the_command_learns_and_says_what_it_changed(runs, tmp_path):
    catalogue = made(runs["wsabie"], tmp_path, n=24)
    path = str(tmp_path / "catalogue")
    done = CliRunner().invoke(app, ["fit", path, "--full"])
    assert done.exit_code == 0, done.output
    assert "all learned again" in done.output
    assert catalogue.refresh()
    for wrong in (["-o", "x"], ["--model", "ridge"], ["--tags", "auto"]):
        refused = CliRunner().invoke(app, ["fit", path, *wrong])
        assert refused.exit_code != 0
    assert CliRunner().invoke(app, ["fit", "photos", "--full", "-o", "x"]).exit_code != 0
