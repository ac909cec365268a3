"""As in a notebook: cross_val_score, GridSearchCV and pipelines over taggers and models, a frame in and a frame out."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from PIL import Image
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    label_ranking_average_precision_score,
    ndcg_score,
    roc_auc_score,
)
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MultiLabelBinarizer

import visterm
import visterm.encoders
import visterm.metrics
from refusals import refused
from tiny_catalogues import ENCODER, draw_photos
from visterm import Tagger
from visterm.core.errors import DataError, UnknownNameError, UserError
from visterm.core.vocabulary import Vocabulary
from visterm.encoders import FeatureRows, Visterms
from visterm.models import Knn, Ridge

SMALL = {"encoder": "visterms", "encoder_params": ENCODER, "model": "ridge", "n_jobs": 1}
PIXELS = {**ENCODER, "random_state": 0, "n_jobs": 1}
FOLDS = KFold(2, shuffle=True, random_state=0)


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    """Paths and lists of tags of 24 photos, with an index that doesn't count from 0."""
    folder = tmp_path_factory.mktemp("notebook") / "photos"
    tags = draw_photos(folder)
    rows = [
        {"path": str(folder / name), "tags": own, "year": 2000 + n % 3} for n, (name, own) in enumerate(tags.items())
    ]
    return pd.DataFrame(rows, index=range(100, 124))


@pytest.fixture(scope="module")
def features(frame):
    return Visterms(**PIXELS).fit_transform(frame["path"])


def test_cross_val_score_of_a_tagger_over_a_frame(frame):
    tagger = Tagger(**SMALL)
    scores = cross_val_score(tagger, frame["path"], frame["tags"], cv=FOLDS)
    assert scores.shape == (2,)
    assert (scores > cross_val_score(Tagger(**{**SMALL, "model": "prior"}), frame, cv=FOLDS)).all()
    assert np.array_equal(cross_val_score(tagger, frame, cv=FOLDS), scores)
    assert np.array_equal(cross_val_score(tagger, list(frame["path"]), list(frame["tags"]), cv=FOLDS), scores)
    assert np.array_equal(cross_val_score(tagger, frame, cv=FOLDS, params={"calibrate": False}), scores)
    half, rest = next(FOLDS.split(frame))
    assert scores[0] == Tagger(**SMALL).fit(frame.iloc[half], calibrate=False).score(frame.iloc[rest])


def test_grid_search_chooses_the_model_and_its_settings_and_tags_new_photos(frame):
    grid = [{"model": ["ridge"], "model__alpha": [0.1, 10.0]}, {"model": ["prior"]}]
    search = GridSearchCV(Tagger(**SMALL), grid, cv=FOLDS).fit(frame["path"], frame["tags"])
    assert search.best_params_["model"] == "ridge"
    assert search.cv_results_["mean_test_score"].argmin() == 2
    tags = search.best_estimator_.annotate(frame, k=2).to_pandas()
    assert list(tags.columns) == ["image", "rank", "tag", "confidence", "score"]
    best = frame.merge(tags[tags["rank"] == 1], left_on="path", right_on="image")
    assert [tag in own for tag, own in zip(best["tag"], best["tags"], strict=True)] == [True] * 24
    assert search.score(frame["path"], frame["tags"]) > 0.9


def test_a_pipeline_learns_photos_and_lists_of_tags_and_is_measured_by_any_metric(frame):
    pipeline = make_pipeline(Visterms(**PIXELS), MaxAbsScaler(), Ridge())
    metrics = {"map": visterm.scorer(), "p@1": visterm.scorer("p@1")}
    found = cross_validate(pipeline, frame["path"], frame["tags"], cv=FOLDS, scoring=metrics)
    assert (found["test_p@1"] == 1).all()
    fitted = pipeline.fit(frame["path"], frame["tags"])
    assert fitted.classes_ == ["blue", "cool", "green", "grey", "red", "warm"]
    measured = metrics["map"](fitted, frame["path"], frame["tags"])
    assert fitted.score(frame["path"], frame["tags"]) == pytest.approx(measured)
    out = pd.DataFrame(fitted.decision_function(frame["path"]), frame.index, fitted.classes_)
    assert out.idxmax(axis=1).isin(["cool", "red", "warm"]).all()


def test_photos_and_other_columns_of_a_frame_are_learned_together(frame):
    both = ColumnTransformer([("photo", Visterms(**PIXELS), "path"), ("rest", MaxAbsScaler(), ["year"])])
    pipeline = make_pipeline(both, Knn(n_neighbors=3)).fit(frame, frame["tags"])
    assert pipeline[-1].n_features_in_ == pipeline[:-1].transform(frame).shape[1] > 1
    assert visterm.scorer("p@1")(pipeline, frame, frame["tags"]) > 0.9


HELD = {
    "array": lambda X: X.toarray(),
    "sparse": lambda X: X,
    "frame": lambda X: pd.DataFrame(X.toarray()).add_prefix("f"),
}
TAGS = {
    "lists": list, "series": lambda tags: tags, "matrix": lambda tags: matrix_of(tags).to_numpy(),
    "frame": lambda tags: matrix_of(tags), "sparse": lambda tags: sp.csr_array(matrix_of(tags)),
}  # fmt: skip


def matrix_of(tags):
    binarizer = MultiLabelBinarizer()
    return pd.DataFrame(binarizer.fit_transform(tags), columns=binarizer.classes_)


@pytest.mark.parametrize("rows", HELD)
@pytest.mark.parametrize("form", TAGS)
def test_a_model_is_measured_alike_whatever_its_features_and_tags_are_held_in(rows, form, frame, features):
    """`cross_val_score` itself refuses sparse tags; `GridSearchCV` takes them."""
    search = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=FOLDS, scoring=visterm.scorer("map"))
    found = search.fit(HELD[rows](features), TAGS[form](frame["tags"])).best_score_
    assert found == pytest.approx(
        cross_val_score(Ridge(alpha=1.0), features, matrix_of(frame["tags"]), cv=FOLDS).mean()
    )


def test_settings_of_a_tagger_are_read_set_and_copied():
    tagger = Tagger(**SMALL, min_count=2)
    assert tagger.get_params(deep=False) == {**SMALL, "min_count": 2, "model_params": None, "seed": 0}
    assert tagger.get_params()["model__alpha"] == tagger.model.alpha
    assert tagger.set_params() is tagger
    changed = clone(tagger).set_params(model="knn", model__n_neighbors=3, encoder__codebook=8, seed=1)
    assert (changed.model.n_neighbors, changed.encoder.codebook, changed.seed) == (3, 8, 1)
    assert (tagger.encoder.codebook, type(tagger.model).__name__) == (12, "Ridge")
    assert clone(changed).get_params(deep=False) == changed.get_params(deep=False)
    assert pickle.loads(pickle.dumps(tagger)).get_params(deep=False) == tagger.get_params(deep=False)
    with pytest.raises(UnknownNameError, match=r"Unknown setting of a Tagger 'modle'|has no setting"):
        tagger.set_params(model__alfa=1)
    with pytest.raises(ValueError, match="Unknown setting of a Tagger 'modle'"):
        tagger.set_params(modle="knn")


def test_a_copy_of_a_fitted_or_opened_tagger_has_learned_nothing_and_learns_the_same(frame, tmp_path):
    fitted = visterm.fit(frame, **SMALL, calibrate=False)
    fitted.save(tmp_path / "run")
    for tagger in (fitted, Tagger.load(tmp_path / "run", n_jobs=1)):
        copy = clone(tagger)
        with pytest.raises(UserError, match="learned nothing yet"):
            copy.score(frame)
        assert copy.fit(frame, calibrate=False).fingerprint == fitted.fingerprint
    assert fitted.set_params(seed=1).facts == {}


def test_a_ranking_has_the_tags_of_a_model_that_learned_lists_and_says_so_where_there_are_none(frame, features):
    ranking = Ridge().fit(features, frame["tags"]).annotate(features, k=2)
    ids, scores = ranking
    assert ranking.tags.shape == ids.shape == scores.shape == (24, 2)
    words = ["blue", "cool", "green", "grey", "red", "warm"]
    assert ranking.tags.tolist() == [[words[i] for i in row] for row in ids]
    with pytest.raises(AttributeError, match="fitted on a matrix of tags"):
        _ = Ridge().fit(features, matrix_of(frame["tags"])).annotate(features).tags


def test_texts_in_place_of_lists_are_refused_with_the_line_that_splits_them(frame, features):
    model = Ridge().fit(features, frame["tags"])
    for separator in (",", ";"):
        texts = frame["tags"].str.join(separator)
        for work in (model.score, Ridge().fit):
            for given in (texts, list(texts), texts.to_numpy(str), texts.mask(frame["year"] == 2000)):
                with refused("y", error=DataError) as info:
                    work(features, given)
                assert f'frame["tags"].str.split("{separator}")' in str(info.value)


def test_a_missing_list_of_tags_is_no_tag(frame, features):
    few = frame["tags"].mask(frame["year"] == 2000)
    lists = [[] if year == 2000 else tags for year, tags in zip(frame["year"], frame["tags"], strict=True)]
    scores = [Ridge().fit(features, tags).decision_function(features) for tags in (few, lists)]
    assert np.array_equal(*scores)


def test_folds_of_images_known_by_number_warn_that_they_measure_nothing(frame):
    Y = matrix_of(frame["tags"]).to_numpy()
    for eye in (np.eye(24), sp.eye_array(24, format="csr")):
        with pytest.warns(UserWarning, match=r"knows nothing of these.*visterm\.metrics\.evaluate"):
            cross_val_score(Knn(n_neighbors=3), eye, Y, cv=FOLDS)
    Knn(n_neighbors=3).fit(None, Y).score(sp.eye_array(24, format="csr")[[2, 5]], Y[[2, 5]])


def test_words_are_kept_with_a_model_and_asked_for_where_it_has_none(frame, features):
    lists = list(frame["tags"])
    model = Ridge().fit(features, lists, valid=(features, lists))
    matrix = Vocabulary(model.classes_).encode(lists)
    assert model.score(features, lists) == model.score(features, matrix)
    again = Ridge().fit(features, matrix)
    assert not hasattr(again, "classes_")
    with pytest.raises(UserError, match="fitted on a matrix: pass a matrix, or fit on lists"):
        again.score(features, lists)
    assert not hasattr(model.fit(features, matrix), "classes_")


def test_a_scorer_refuses_what_it_cannot_measure(frame, features):
    assert repr(visterm.scorer("P@3")) == "scorer('P@3')"
    with pytest.raises(UnknownNameError, match=r"Unknown metric 'mapp'. Did you mean 'map'"):
        visterm.scorer("mapp")
    with pytest.raises(UserError, match="which tags are siblings"):
        visterm.scorer("psib@5")
    with pytest.raises(UserError, match=r"A MaxAbsScaler has no scores of tags\. scorer\('map'\) measures taggers"):
        visterm.scorer()(MaxAbsScaler(), features, frame["tags"])
    with pytest.raises(NotFittedError):
        visterm.scorer()(Ridge(), features, frame["tags"])
    with pytest.raises(DataError, match="nothing to average"):
        visterm.scorer()(Tagger(**SMALL).fit(frame, calibrate=False), frame["path"], [["unheard"]] * 24)


def test_metrics_are_scikit_learn_s_as_the_page_of_models_says():
    rng = np.random.default_rng(0)
    scores, Y = rng.normal(size=(40, 9)), rng.random((40, 9)) < 0.3
    Y[:, 3] = False  # a tag that no photo has
    Y = Y[Y.any(axis=1)]
    scores = scores[: len(Y)]
    found = visterm.metrics.evaluate(scores, Y, ["map", "auc", "ndcg@4", "word_map"])
    assert found["map"] == pytest.approx(label_ranking_average_precision_score(Y, scores))
    assert found["auc"] == pytest.approx(roc_auc_score(Y, scores, average="samples"))
    assert found["ndcg@4"] == pytest.approx(ndcg_score(Y, scores, k=4))
    some = Y.any(axis=0)
    assert found["word_map"] == pytest.approx(average_precision_score(Y[:, some], scores[:, some], average="macro"))


def test_a_scorer_measures_scikit_learn_s_own_estimators_and_scikit_learn_s_rankings_measure_models(frame, features):
    Y = matrix_of(frame["tags"]).to_numpy()
    assert visterm.scorer("p@1")(OneVsRestClassifier(RidgeClassifier()).fit(features, Y), features, Y) == 1
    for metric in ("roc_auc", "average_precision"):
        assert np.isfinite(cross_val_score(Ridge(), features, Y, cv=FOLDS, scoring=metric)).all()


def test_folds_of_photos_known_by_number_are_refused_with_what_to_do():
    names, tags = [f"user {n}" for n in range(9)], [["a", "b"], ["b"], ["c"]] * 3
    tagger = Tagger(encoder="ids", model="wsabie", model_params={"epochs": 1}, n_jobs=1)
    with pytest.raises(DataError, match=r"None of the 3 photos .*'user 0'.* by number only.* hide some tags"):
        cross_val_score(tagger, names, tags, cv=3, error_score="raise")


FEATURES = {"array": lambda X: X, "sparse": sp.csr_array, "frame": lambda X: pd.DataFrame(X).add_prefix("f")}


@pytest.mark.parametrize("held", FEATURES)
def test_a_matrix_of_features_in_place_of_photos_is_learned_tagged_measured_saved_and_loaded(held, tmp_path):
    X, Y = planted_rows()
    rows = FEATURES[held](X)
    tagger = visterm.fit(rows[:200], Y[:200], model="ridge", n_jobs=1)
    assert tagger.encoder.get_params() == {}
    model = Ridge(random_state=0).fit(X[:200], Y[:200])
    assert np.allclose(tagger.model.decision_function(X), model.decision_function(X), atol=1e-5)
    assert tagger.annotate(rows[:2]).images[1].image == "row 1"
    assert (tagger.transform(rows) != np.float32(X)).sum() == 0
    tagger.save(tmp_path / "run")
    loaded = Tagger.load(tmp_path / "run")
    assert np.array_equal(loaded.predict(rows[200:]), tagger.predict(rows[200:]))
    assert visterm.evaluate(loaded, rows[200:], Y[200:], metrics=["map"]).values["map"] > 0.8
    search = GridSearchCV(Tagger(model="ridge", n_jobs=1), {"model__alpha": [1, 10]}, cv=2).fit(rows, Y)
    assert search.best_score_ > 0.8
    assert loaded.explain(X[0], "3").score == pytest.approx(
        float(tagger.model.decision_function(X[:1])[0, 3]), abs=1e-5
    )


@pytest.mark.parametrize("form", [np.array, sp.csr_array, sp.csr_matrix, sp.coo_array])
def test_the_encoder_of_features_takes_any_matrix_itself(form):
    X = np.float32([[1, 0, 2], [0, 0, 3]])
    encoder = FeatureRows().fit(form(X))
    assert (encoder.transform(form(X)) != X).sum() == 0
    assert encoder.encode(form(X)).kept.tolist() == [0, 1]


def test_a_setting_of_fit_is_not_one_of_the_tagger_and_the_error_says_so():
    with refused("calibrate", value=False) as info:
        Tagger(calibrate=False)
    assert info.value.advice == "Pass it to `fit`."
    assert "encoder" in inspect.signature(Tagger).parameters


def test_features_and_photos_are_not_taken_for_each_other(frame):
    X, Y = planted_rows()
    of_rows, of_photos = visterm.fit(X, Y, model="ridge", n_jobs=1), visterm.fit(frame, **SMALL, calibrate=False)
    for images in (frame["path"], frame["path"].iloc[0], X[0]):
        with refused("images", error=DataError) as info:
            of_rows.predict(images)
        assert info.value.expected == "a matrix, (n_images, n_features)"
    with refused("images", error=DataError, value=(300, 5)):
        of_rows.predict(X[:, :5])
    with refused("images", error=DataError) as info:
        of_rows.predict(np.where(X[7, 2] == X, np.nan, X))
    assert "Row 7 has NaN" in str(info.value)
    for rows in (X, sp.csr_array(X)):
        for work in (of_photos.annotate, visterm.Catalogue(of_photos).add):
            with pytest.raises(DataError, match=r"fit a run on one: visterm\.fit\(X, tags\)"):
                work(rows)
    with pytest.raises(UserError, match=r"A catalogue keeps photos.*rows"):
        visterm.Catalogue(of_rows).add(X)


def planted_rows():
    """Features (300, 20), and a matrix of 12 tags, each a linear function of them with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    return X, (X @ rng.normal(size=(20, 12)) + rng.normal(size=(300, 12)) > 3).astype(int)


def test_tags_are_predicted_as_a_matrix_by_the_cut_offs_of_the_tagger():
    X, Y = planted_rows()
    tagger = Tagger(model="ridge", n_jobs=1)
    assert cross_val_predict(tagger, X, Y, cv=3).shape == Y.shape
    assert cross_val_score(tagger, X, Y, cv=3, scoring="f1_micro").min() > 0.7  # 0.5 at random
    names = [f"tag {n}" for n in range(11, -1, -1)]
    tagger.fit(X[:200], pd.DataFrame(Y[:200], columns=names))
    assert tagger.classes_ == names  # in the order of the matrix, as scikit-learn's metrics need it
    predicted = tagger.predict(X[200:])
    assert f1_score(Y[200:], predicted, average="micro") > 0.7
    for row, image in zip(predicted, tagger.annotate(X[200:], best_f1=True).images, strict=True):
        assert {names[column] for column in np.flatnonzero(row)} == {tag.tag for tag in image.tags}
    with refused("calibrate"):
        tagger.fit(X, Y, calibrate=False).predict(X)


def test_predictions_and_confidences_of_tags_under_tags_are_those_of_annotate():
    X, Y = planted_rows()
    tags = [[f"tag {column}" for column in np.flatnonzero(row)] for row in Y]
    tree = [(f"tag {n}", f"tag {n % 2}") for n in range(2, 12)]
    tagger = visterm.fit(X, tags, tree=tree, model="ridge", n_jobs=1)
    for row, image in zip(tagger.predict_proba(X[:50]), tagger.annotate(X[:50], k=0).images, strict=True):
        given = {tag.tag: tag.confidence for tag in image.tags}
        assert row == pytest.approx([given[tag] for tag in tagger.classes_])
    for row, image in zip(tagger.predict(X[:50]), tagger.annotate(X[:50], best_f1=True).images, strict=True):
        assert {tagger.classes_[column] for column in np.flatnonzero(row)} == {tag.tag for tag in image.tags}


def test_a_model_has_no_predict_and_says_what_has_it():
    assert not hasattr(Ridge(), "predict")
    with pytest.raises(AttributeError, match=r"annotate\(X, k\).*visterm\.fit\(X, tags, model=Ridge\(alpha=3\)\)"):
        Ridge(alpha=3).predict  # noqa: B018


class Brightness(visterm.encoders.Encoder):
    """An encoder of one's own, which returns lists; `extra` rows are too many."""

    def __init__(self, *, extra=0):
        self.extra = extra

    def _encode_batch(self, batch):
        return [[pixels.mean(), pixels.std()] for pixels in [*batch, *batch[: self.extra]]]


def test_an_encoder_of_ones_own_may_return_lists_and_needs_a_row_for_each_photo(frame):
    assert Brightness().fit_transform(frame["path"]).dtype == np.float32
    with pytest.raises(DataError, match=r"Brightness returned the shape \(25, 2\) for 24 images; expected a row"):
        Brightness(extra=1).fit_transform(frame["path"])


def test_what_beginners_pass_by_mistake_is_refused_with_what_is_accepted(frame, tmp_path):
    with refused("tags", value="keywords"):
        visterm.fit(frame, tags="keywords")
    with pytest.raises(DataError, match=r"The tags of an image are 1; expected a list of tags, such as \['1'\]"):
        visterm.fit(frame["path"], [1] * 24)
    with refused("tagger", value="run"):
        visterm.Catalogue.create(tmp_path / "catalogue", "run")


def test_pillow_images_are_explained_as_their_files(frame):
    path, tagger = frame["path"].iloc[0], visterm.fit(frame, **SMALL, calibrate=False)
    explanations = [tagger.explain(photo, "red") for photo in (path, Image.open(path))]
    assert explanations[0].score == explanations[1].score
    assert explanations[0].places == explanations[1].places
    assert len(repr(explanations[0])) < 500


def test_photos_without_any_visterm_that_sets_them_apart_are_warned_of():
    plain, tags = [np.full((40, 40, 3), 90, np.uint8)] * 4, [["a"], ["b"]] * 2
    with pytest.warns(UserWarning, match=r"Training photos: 4 of 4 photos: 'visterms' sees nothing"):
        tagger = visterm.fit(plain, tags, encoder="visterms", model="ridge", calibrate=False)
    for work in (tagger.transform, Visterms().fit_transform):
        with pytest.warns(UserWarning, match=r"1 of 1 photo: 'visterms' sees nothing that sets them apart"):
            work(plain[:1])
    lines = []
    visterm.fit(plain, tags, encoder="visterms", model="ridge", calibrate=False, say=lines.append)
    assert [line for line in lines if "4 of 4 photos" in line]


def test_the_blocks_of_the_page_for_python_run_one_after_another_in_ten_lines_each(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert [len(block.splitlines()) <= 10 for block in blocks] == [True] * 7
    tags = draw_photos(tmp_path / "photos")
    (tmp_path / "tags.csv").write_text(
        "file_name,tags\n" + "".join(f"{n},{';'.join(own)}\n" for n, own in tags.items())
    )
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:
        exec(block, names)
    assert names["search"].best_score_ > 0.5
    assert names["tags"].iloc[0] == ["red", "warm"]
    assert names["of_rows"].predict(names["vectors"]).shape == (24, 6)
    assert names["train"].count_nonzero() + names["hidden"].count_nonzero() == names["Y"].nnz
    assert names["by_number"].encoder.by_number
    assert "photos/000.png" in capsys.readouterr().out


def test_a_tagger_encodes_what_can_be_read_and_lists_what_cannot(frame):
    tagger = visterm.fit(frame, **SMALL, calibrate=False)
    rows, kept, skipped = tagger.encode([frame["path"].iloc[0], "missing.png", frame["path"].iloc[2]])
    assert kept.tolist() == [0, 2]
    assert [item.image for item in skipped] == ["missing.png"]
    assert (rows != tagger.transform(frame["path"])[[0, 2]]).sum() == 0


def test_a_tagger_has_the_names_of_a_classifier(tmp_path):
    tags = draw_photos(tmp_path / "photos")
    photos = [tmp_path / "photos" / name for name in tags]
    tagger = visterm.fit(photos, list(tags.values()), model=Ridge(alpha=2.0), encoder="visterms", n_jobs=1)
    rows, chances = tagger.transform(photos[:3]), tagger.predict_proba(photos[:3])
    assert rows.shape == (3, tagger.model.n_features_in_)
    assert chances.shape == (3, len(tagger.classes_))
    for row, annotated in zip(chances, tagger.annotate(photos[:3], k=0).images, strict=True):
        given = {tag.tag: tag.confidence for tag in annotated.tags}
        assert row == pytest.approx([given[tag] for tag in tagger.classes_])
    explanation = tagger.explain(str(photos[0]), tagger.classes_[0])
    assert explanation.score == pytest.approx(float(tagger.model.decision_function(rows)[0, 0]), abs=1e-5)
    assert tagger.model.alpha == 2.0
    without = visterm.fit(photos, list(tags.values()), model="ridge", calibrate=False)
    with refused("calibrate"):
        without.predict_proba(photos[:1])
    with refused("model", value=Ridge):
        visterm.fit(photos, list(tags.values()), model=Ridge)
    with refused("encoder", value=3):
        visterm.fit(photos, list(tags.values()), encoder=3)
