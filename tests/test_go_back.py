"""Going back to an earlier run of a catalogue: one step or more, what it keeps, and what learning does afterwards."""

from __future__ import annotations

import shutil

import pytest

from command_line import visterm
from refusals import refused
from tiny_catalogues import draw_photos, fit_run, write_tags
from visterm import Catalogue, Tagger
from visterm.core.errors import StorageError, UserError
from visterm.core.progress import Progress
from visterm.library import learn as learning
from visterm.library import training
from visterm.library.info import describe
from visterm.library.learned import NOT_BETTER, WENT_BACK, Comparison, outcome_text
from visterm.library.training import is_held_out


class Tasks(Progress):
    """Keeps the tasks that were started, with their numbers of steps."""

    def __init__(self):
        self.started = []

    def start(self, task, total=None):
        self.started.append((task, total))


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A catalogue that has learned twice, from a tag more each time: it has three runs, and uses the third.

    They are compared on as few photos as there are.
    """
    folder = tmp_path_factory.mktemp("made")
    tags = draw_photos(folder / "photos", 24)
    run = fit_run(folder / "photos", tags, folder / "run")
    catalogue = Catalogue.create(folder / "catalogue", Tagger.load(run, n_jobs=1))
    catalogue.index(folder / "photos", tags=write_tags(folder / "tags.csv", tags))
    first = next(record.id for record in catalogue.records if not is_held_out(record))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "MIN_COMPARED_PHOTOS", 1)
        for tag in ("fog", "mist"):
            catalogue.give(first, [tag])
            catalogue.learn(full=True)
    catalogue.stored.close()
    return folder / "catalogue"


@pytest.fixture
def catalogue(learned, tmp_path, monkeypatch):
    """A copy of it, whose runs are compared on as few photos."""
    monkeypatch.setattr(training, "MIN_COMPARED_PHOTOS", 1)
    shutil.copytree(learned, tmp_path / "catalogue")
    return Catalogue.load(tmp_path / "catalogue", n_jobs=1)


def numbers(runs):
    return [shown.run.id for shown in runs]


def in_use(catalogue):
    return catalogue.stored.runs.current().id


def test_each_step_goes_back_by_one_run_and_keeps_what_people_said(catalogue):
    said = [catalogue.image(record.id).tags for record in catalogue.records]
    catalogue.judge(3, "mist", -1)
    assert numbers(catalogue.earlier_runs()) == [2, 1]
    assert catalogue.go_back().rows == 0  # the rows of the run before are still there
    assert in_use(catalogue) == 2
    assert numbers(catalogue.earlier_runs()) == [1]
    progress = Tasks()
    assert catalogue.go_back(progress=progress).rows == 24  # those of older runs are made anew
    assert progress.started[0] == ("make rows", 24)
    assert (in_use(catalogue), catalogue.earlier_runs()) == (1, [])
    with pytest.raises(UserError, match="no other run was in use before run 1"):
        catalogue.go_back()
    assert [catalogue.image(record.id).tags for record in catalogue.records] == said
    assert catalogue.image(3).verdicts == {"mist": -1}
    assert "mist" not in catalogue.tagger.vocabulary
    assert len(catalogue.search("red", 0).hits) == 24
    back = [(event.what, event.details["run"][:6]) for event in catalogue.stored.history.latest(2)]
    runs = {run.id: run.fingerprint[:6] for run in catalogue.stored.runs.all()}
    assert back == [("go back", runs[1]), ("go back", runs[2])]


def test_it_goes_back_further_by_number_and_forward_again_by_use(catalogue):
    with refused("run", value="3"):
        catalogue.go_back("3")
    catalogue.go_back("1")
    assert (in_use(catalogue), catalogue.earlier_runs()) == (1, [])
    catalogue.use("3")
    assert numbers(catalogue.earlier_runs()) == [1]
    catalogue.go_back()
    assert (in_use(catalogue), catalogue.earlier_runs()) == (1, [])


def test_there_and_back_ends_where_it_began(catalogue):
    catalogue.use("1")
    catalogue.use("3")
    assert numbers(catalogue.earlier_runs()) == [1, 2]
    steps = []
    while catalogue.earlier_runs():
        catalogue.go_back()
        steps.append(in_use(catalogue))
    assert steps == [1, 3, 2, 1]


def test_a_run_whose_files_are_gone_is_named_with_another_to_choose(catalogue):
    second = catalogue.stored.runs.all()[1].fingerprint
    shutil.rmtree(catalogue.stored.folder / "runs" / second)
    assert [shown.tags for shown in catalogue.earlier_runs()] == [None, 6]
    with pytest.raises(StorageError, match=r"The files of run 2 are no longer in .* visterm use .* 1 --back\."):
        catalogue.go_back()
    catalogue.go_back("1")
    assert in_use(catalogue) == 1


def test_the_same_run_learned_again_is_not_used_unless_that_is_asked_for(catalogue):
    third = catalogue.tagger.fingerprint
    catalogue.go_back()
    done = catalogue.learn(full=True)
    assert (done.run, done.in_use, done.why_not, in_use(catalogue)) == (third, False, WENT_BACK, 2)
    assert "The new run 3 is a run that a person went back from, so" in outcome_text(done, "catalogue")
    assert "visterm use catalogue 3" in outcome_text(done, "catalogue")
    assert numbers(catalogue.earlier_runs()) == [1]
    assert catalogue.learn(full=True, use_even_if_worse=True).in_use
    assert in_use(catalogue) == 3
    assert [catalogue.image(record.id).predicted[:1] != [] for record in catalogue.records] == [True] * 24
    catalogue.go_back()
    catalogue.use("3")  # a person wants it after all
    catalogue.use("2")
    assert catalogue.learn(full=True).in_use


def test_what_is_learned_by_itself_replaces_the_run_that_a_person_went_back_to_only_if_better(catalogue, monkeypatch):
    def measured(interval):
        monkeypatch.setattr(
            learning, "_comparison_facts",
            lambda *_: {"before": 0.5, "after": 0.6, "compared": 40, "interval": interval},
        )  # fmt: skip

    catalogue.go_back()
    catalogue.give(1, ["haze"])
    measured((-0.1, 0.3))
    done = catalogue.learn(full=True, by_itself=True)
    assert (done.in_use, done.why_not, in_use(catalogue)) == (False, NOT_BETTER, 2)
    assert "A person went back to run 2, and the new run 4 is not clearly better, so" in outcome_text(done, "catalogue")
    measured((0.05, 0.15))
    assert catalogue.learn(full=True, by_itself=True).in_use
    catalogue.give(1, ["smoke"])
    measured((-0.1, 0.3))
    assert catalogue.learn(full=True, by_itself=True).in_use  # nobody went back since


def test_the_comparison_stays_with_the_run(catalogue):
    runs = {run["number"]: run for run in describe(catalogue.stored.folder)["runs"].values()}
    assert "comparison" not in runs[1]
    kept = runs[3]["comparison"]
    assert kept["run_before"] == catalogue.stored.runs.all()[1].fingerprint
    assert kept["verdict"] == "too few photos"
    assert kept["difference"] == kept["after"] - kept["before"]
    assert kept["compared"] == sum(is_held_out(record) for record in catalogue.records)
    assert f"on {kept['compared']} photo" in kept["in_words"]


@pytest.mark.parametrize(
    ("interval", "verdict", "words"),
    [
        ((0.01, 0.19), "better", "+0.010 to +0.190) on 1,000 photos held out: the new run is better."),
        ((-0.19, -0.01), "worse", "-0.190 to -0.010) on 1,000 photos held out: the new run is worse."),
        ((-0.1, 0.3), "no clear difference", "-0.100 to +0.300) on 1,000 photos held out: no clear difference."),
        ((0.0, 0.2), "no clear difference", "+0.000 to +0.200) on 1,000 photos held out: no clear difference."),
        (None, "too few photos", "(+0.100) on 1,000 photos held out, too few to say which run is better (20 are"),
    ],
)
def test_a_comparison_says_what_its_interval_means(interval, verdict, words):
    found = Comparison.of({"before": 0.5, "after": 0.6, "compared": 1000, "interval": interval and list(interval)})
    assert found.verdict == verdict
    assert words in found.summary()
    assert found.summary().startswith("MAP 0.500 before, 0.600 now (+0.100")


def test_runs_without_a_comparison_have_none():
    assert Comparison.of({}) is None
    assert Comparison.of({"before": None, "after": None, "compared": 0, "interval": None}) is None


def test_the_command_lists_and_goes_back(catalogue, tmp_path):
    catalogue.stored.close()
    code, _, err = visterm("use catalogue --back", tmp_path)
    assert code == 0
    assert "catalogue is back to run 2, of 20" in err
    assert err.endswith("Tags and answers of people are kept. To use the later run again: visterm use catalogue 3")
    assert visterm("use catalogue 2", tmp_path) == (0, "", "catalogue uses run 2 already.")
    code, _, err = visterm("use catalogue 1 --back", tmp_path)
    assert (code, "is back to run 1" in err, "24 rows computed again." in err) == (0, True, True)
    code, _, err = visterm("use catalogue --back", tmp_path)
    assert code == 2
    assert "no other run was in use before run 1" in err
    code, out, _ = visterm("use catalogue", tmp_path)
    assert [line.split()[0] for line in out.splitlines()] == ["run", "1", "2", "3"]
    assert "in use" in out.splitlines()[1]
    assert out.splitlines()[3].endswith("too few photos")
    assert visterm("use catalogue 9 --back", tmp_path)[0] == 2


def test_it_goes_back_from_a_run_that_is_damaged(catalogue, tmp_path):
    (catalogue.stored.folder / "runs" / catalogue.tagger.fingerprint / "vocabulary.json").write_text("{")
    assert visterm("search catalogue red", tmp_path)[0] == 2
    assert visterm("use catalogue --back", tmp_path)[0] == 0
    assert visterm("search catalogue red", tmp_path)[0] == 0
