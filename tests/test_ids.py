"""Images known only by number: learned from pairs, annotated by name, evaluated on tags held out."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from refusals import refused
from test_cli import lines, visterm
from visterm import Catalogue, Tagger
from visterm.core.checks import identity_rows, is_identity
from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT
from visterm.core.tables import ENCODERS, MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.evaluation.evaluate import evaluate_taggers
from visterm.features.training_rows import TrainingRows
from visterm.learning.validation import learn_by_number
from visterm.metrics import average_precisions
from visterm.models.base import Annotator
from visterm.tagging.annotating import new_tags


def write_pairs(path, pairs, header="image,tag"):
    path.write_text("\n".join([header, *(",".join(map(str, pair)) for pair in pairs)]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pairs():
    """Images 0 to 89 of three kinds: each has three of the four tags of its kind; the fourth is held out."""
    rng = np.random.default_rng(0)
    told, held = [], []
    for image in range(90):
        tags = rng.permutation([f"{'abc'[image % 3]}{i}" for i in range(4)])
        told += [(image, tag) for tag in tags[:3]]
        held.append((image, tags[3]))
    return told, held


@pytest.fixture(scope="module")
def run(pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ids")
    write_pairs(folder / "told.csv", pairs[0])
    write_pairs(folder / "held.csv", pairs[1])
    done = visterm("fit", "--tags", folder / "told.csv", "--encoder", "ids", "-o", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_run_is_made_of_pairs_without_images_and_annotates_by_name(run, pairs, tmp_path):
    [first, second] = lines(visterm("annotate", run, "7", "12", "-k", 4, "--json", cwd=tmp_path))
    assert [first["image"], second["image"]] == ["7", "12"]
    assert {tag["tag"][0] for tag in first["tags"]} == {"b"}
    assert {tag["tag"][0] for tag in second["tags"]} == {"a"}
    [facts] = lines(visterm("info", run, "--json"))
    assert (facts["images"], facts["tags"], facts["tags given"]) == (90, 12, 270)


def test_new_only_leaves_out_the_tags_that_an_image_had(run, pairs, tmp_path):
    told, held = pairs
    names = [str(image) for image, _ in held]
    answers = lines(visterm("annotate", run, *names, "-k", 2, "--new-only", "--json", cwd=tmp_path))
    had = {name: {tag for image, tag in told if str(image) == name} for name in names}
    assert all(len(a["tags"]) == 2 and not had[a["image"]] & {t["tag"] for t in a["tags"]} for a in answers)
    missing = {str(image): tag for image, tag in held}
    assert np.mean([a["tags"][0]["tag"] == missing[a["image"]] for a in answers]) > 0.5
    [everything] = lines(visterm("annotate", run, "7", "-k", 0, "--new-only", "--json", cwd=tmp_path))
    assert len(everything["tags"]) == 12 - 3


def test_evaluation_leaves_the_training_tags_out_of_the_rankings(run, tmp_path):
    options = ("--tags", run.parent / "held.csv", "--metric", "map", "--json")
    [found] = lines(visterm("evaluate", run, *options, cwd=tmp_path))
    tagger, held = Tagger.load(run), Corpus.read_names(run.parent / "held.csv")
    X, Y = tagger.encoder.transform(held.images), tagger.vocabulary.encode(held.tags)
    scores = tagger.model.decision_function(X)
    scores[tagger.given.toarray() != 0] = -np.inf
    ranks = (scores >= scores[Y.toarray() > 0][:, None]).sum(axis=1)
    assert found["map"] == pytest.approx(np.mean(1 / ranks))
    assert np.mean(average_precisions(tagger.model.decision_function(X), Y)) < 0.5 * found["map"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("annotate", "RUN", "7", "7000", "8"),
        ("evaluate", "RUN", "--tags", "FILE", "--metric", "map"),
        ("evaluate", "RUN", "--tags", "FILE", "--queries", "tags"),
    ],
)
def test_numbers_that_the_run_does_not_know_are_listed_and_the_others_gone_on_with(arguments, run, pairs, tmp_path):
    file = write_pairs(tmp_path / "some.csv", [("7000", "b1"), *pairs[1]])
    done = visterm(*({"RUN": run, "FILE": file}.get(part, part) for part in arguments), "--json", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "Skipped 1 photo (1 not among the 90 images that this run was fitted on)" in done.stderr
    assert "Skipped 7000: not among the 90 images" in done.stderr
    assert "fit again with the tags of this image" in done.stderr
    if arguments[0] == "annotate":
        assert [answer["image"] for answer in lines(done)] == ["7", "8"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "--tags", "FILE", "-o", "out"], "IMAGES is missing: the encoder 'visterms' looks at pixels"),
        (["fit", ".", "--tags", "FILE", "--encoder", "ids", "-o", "out"], "Leave IMAGES out"),
        (["fit", "--encoder", "ids", "-o", "out"], "--tags FILE"),
        (["annotate", "RUN", "7000"], "'7000' is not among the 90"),
        (["annotate", "RUN", "7000", "x"], "None of the 2 images is known"),
        (["evaluate", "RUN", "--tags", "STRANGERS"], "None of the 2 images is known"),
        (["evaluate", "RUN", "--tags", "STRANGERS", "--queries", "tags"], "None of the 2 images is known"),
        (["evaluate", "RUN", ".", "--tags", "FILE"], "Leave IMAGES out"),
        (["evaluate", "RUN", "--tags", "TOLD"], "map has nothing to average: no image has a relevant tag"),
    ],
)
def test_a_mistake_ends_in_one_line_and_exit_code_2(arguments, message, run, tmp_path):
    strangers = write_pairs(run.parent / "strangers.csv", [("x", "a0"), ("y", "a1")])
    places = {"RUN": run, "FILE": run.parent / "held.csv", "TOLD": run.parent / "told.csv", "STRANGERS": strangers}
    done = visterm(*[places.get(argument, argument) for argument in arguments], cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("visterm: ")
    assert message in last
    assert list(tmp_path.iterdir()) == []


def test_rows_of_one_image_are_joined_and_splits_part_the_tags_of_an_image(tmp_path):
    rows = [("u1", "sea", "train"), ("u2", "sky", "train"), ("u1", "-sky", "train"), ("u1", "sand", "test")]
    corpus = Corpus.read_names(write_pairs(tmp_path / "t.csv", rows, "image,tag,split"))
    assert corpus.images == corpus.names == ["u1", "u2", "u1"]
    assert corpus.tags == [["sea"], ["sky"], ["sand"]]
    assert corpus.negatives == [["sky"], [], []]
    assert corpus.splits == ["train", "train", "test"]


def test_python_takes_names_and_numbers_and_tags_side_by_side(pairs):
    told: dict[int, list[str]] = {}
    for image, tag in pairs[0]:
        told.setdefault(image, []).append(tag)
    tagger = Tagger(encoder="ids").fit(list(told), list(told.values()))
    [item] = tagger.annotate([7], k=1).images
    assert (item.image, item.tags) == ("7", tagger.annotate("7", k=1).images[0].tags)
    known = tagger.known_tags(tagger.encoder.transform([7])).toarray()[0]
    assert [tagger.vocabulary.tags[i] for i in np.flatnonzero(known)] == sorted(told[7])
    names = [str(image) for image, _ in pairs[1]]
    held = Corpus.of(names, names, [[tag] for _, tag in pairs[1]])
    assert evaluate_taggers([tagger], held, ["map"]).mean("map") > 0.9


def test_new_tags_can_only_be_requested_of_images_known_by_number(small_library):
    tagger = Tagger(model="prior", encoder_params={"codebook": 16})
    tagger.fit(sorted(small_library.images.iterdir())[:3], [["a"], ["b"], ["a"]])
    with refused("new_only", value=True):
        tagger.annotate([], new_only=True)
    with refused("images", value=None):
        Tagger().fit(None, "pairs.csv")
    with refused("tags", value=[["a"]]):
        Tagger(encoder="ids").fit(None, [["a"]])


def test_saved_and_loaded_a_run_knows_what_it_learned(run):
    tagger = Tagger.load(run)
    assert tagger.given.shape == (90, 12)
    assert (run / "given.safetensors").is_file()
    assert json.loads((run / "encoder.json").read_text())["values"]["names_"]["value"][:3] == ["0", "1", "2"]


TAGS = Vocabulary(["told", "right", "x", "y"])


class Counted(Annotator):
    """Ranks the tag 0 first, and the tag 1 behind two, one, none, one, two, two... of the others as epochs go on."""

    def __init__(self, *, epochs=9, patience=3, valid_share=0.5):
        self.epochs, self.patience, self.valid_share = epochs, patience, valid_share

    def _fit(self, X, Y, rng):
        raise NotImplementedError

    def _fit_monitored(self, X, Y, rng, valid, watch):
        assert valid is None
        assert self.share_to_hold_out == 0
        self.history_ = []
        for epoch in range(1, self.epochs + 1):
            self.n_epochs_, self.of_ = epoch, self.epochs
            right = 10 - abs(3 - epoch)
            self.tag_rows_ = np.array([[20], [right], [9.5], [8.5]], np.float32)[: Y.shape[1]]
            self.history_.append({"epoch": epoch, "loss": 1 / epoch, "map": None})
            watch.monitor.advance()
            if watch.on_epoch is not None and watch.on_epoch(self.history_[-1]) == "stop":
                break

    def _image_rows(self, X):
        return np.ones((X.shape[0], 1), np.float32)


def test_epochs_are_chosen_by_held_out_tags_of_a_split():
    told, held = (sp.csr_array(np.tile(np.float32(row), (120, 1))) for row in ([1, 0, 0, 0], [0, 1, 0, 0]))
    rows = TrainingRows(TAGS, identity_rows(120), told, (identity_rows(120), held), [], by_number=True)
    model = learn_by_number(Counted(), rows, SILENT)
    assert model.n_epochs_ == 3
    assert [entry["map"] for entry in model.history_] == pytest.approx([1 / 3, 1 / 2, 1, 1 / 2, 1 / 3, 1 / 3])
    assert model.get_params() == Counted().get_params()


def test_without_a_split_tags_are_held_out_to_choose_the_epochs_and_then_all_are_learned():
    given = sp.csr_array(np.tile(np.float32([1, 1, 0, 0]), (120, 1)))
    rows = TrainingRows(TAGS, identity_rows(120), given, None, [], by_number=True)
    model = learn_by_number(Counted(), rows, SILENT)
    assert model.n_epochs_ == 3
    assert len(model.history_) == 6
    assert model.history_[2]["map"] == 1
    assert model.of_ == 9, "a learning rate that falls over all epochs falls as it did"
    assert model.get_params() == Counted().get_params()
    few = rows._replace(X=identity_rows(40), Y=given[:40])
    assert learn_by_number(Counted(), few, SILENT).n_epochs_ == 9


def test_new_tags_are_ranked_as_the_model_ranks_them_without_those_known():
    model = Counted(epochs=3)
    model.n_features_in_, model.n_tags_ = 2, 4
    model.tag_rows_ = np.array([[4], [3], [2], [1]], np.float32)
    known = sp.csr_array([[1.0, 0, -1, 0], [0, 0, 0, 0]])
    first, second = new_tags(model, identity_rows(2), 2, known)
    assert first.ids.tolist() == [1, 3]
    assert second.ids.tolist() == [0, 1]
    assert [ranking.ids.tolist() for ranking in new_tags(model, identity_rows(2), 0, known)] == [[1, 3], [0, 1, 2, 3]]


def test_settings_that_are_not_given_suit_images_known_by_number():
    by_number, by_features = Tagger(encoder="ids", model="wsabie").model, Tagger(model="wsabie").model
    assert by_number.get_params()["schedule"] == "open"
    assert by_number.get_params() == by_features.get_params()
    assert Tagger(encoder="ids", model="prior").model.get_params() == Tagger(model="prior").model.get_params()
    assert Tagger(encoder="ids", model_params={"lift": 0.5}).model.get_params()["lift"] == 0.5


@pytest.mark.parametrize(("n_images", "few"), [(600, False), (60, True)])
def test_it_is_said_when_too_few_images_are_there_to_hold_tags_out(n_images, few, tmp_path):
    told = write_pairs(tmp_path / "told.csv", [(i, f"t{(i + j) % 7}") for i in range(n_images) for j in range(3)])
    done = visterm(
        "fit", "--tags", told, "--encoder", "ids", "--model", "wsabie", "-o", tmp_path / "run", "--set", "dim=4"
    )
    assert done.returncode == 0, done.stderr
    assert ("Fewer than 50 validation images" in done.stderr) == few


def test_a_catalogue_of_photos_takes_no_images_known_by_number():
    tagger = Tagger(encoder="ids", model="prior").fit(["1", "2"], [["a"], ["b"]])
    with pytest.raises(UserError, match="keeps photos, and this run has none"):
        Catalogue(tagger).add(["1"])


def test_only_the_sparse_identity_is_taken_for_numbers():
    assert is_identity(identity_rows(3))
    assert not is_identity(np.eye(3))
    assert not is_identity(identity_rows(3) * 2)
    assert not is_identity(identity_rows(3)[[1, 0, 2]])
    assert not is_identity(identity_rows(3)[:2])
    assert not is_identity(sp.csr_array(([1.0, 1, 1], [0, 1, 2], [0, 2, 2, 3]), shape=(3, 3)))


def test_each_image_has_the_row_of_the_identity_with_its_number():
    encoder = ENCODERS.create("ids").fit(["nowhere/1.jpg", 7, "Île"])
    np.testing.assert_array_equal(encoder.transform(["Île", "nowhere/1.jpg", "7"]).toarray(), np.eye(3)[[2, 0, 1]])


def test_an_encoder_of_names_is_not_fitted_on_pictures():
    with pytest.raises(DataError, match="looks up images by name"):
        Tagger(encoder="ids").fit([np.zeros((4, 4, 3), np.uint8)], [["a"]])


@pytest.mark.parametrize("encoder", [None, "ids"])
def test_the_model_is_auto_where_none_is_named(encoder):
    assert MODELS.name_of(Tagger(encoder=encoder).model) == "auto"


def test_fit_says_that_only_the_most_frequent_tags_predict(pairs, tmp_path):
    told = write_pairs(tmp_path / "told.csv", pairs[0])
    command = ("fit", "--tags", told, "--encoder", "ids", "-o", tmp_path / "run", "--overwrite", "--set")
    done = visterm(*command, 'candidates=[("ease", {"max_inputs": 10})]')
    assert done.returncode == 0, done.stderr
    assert "ease: only the 10 most frequent of 12 tags predict tags" in " ".join(done.stderr.split())
    assert "max_inputs" not in visterm(*command, "explainable=false").stderr
