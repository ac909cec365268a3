"""Objects and their parts: what training steps do, labels of pairs of images, and what relations bring."""

from __future__ import annotations

import numpy as np
import pytest

from planted import plant_corpus
from refusals import refused
from visterm.core.errors import DataError, ShapeError
from visterm.models.parts.objects_and_parts import ObjectsAndParts, ranks_of_pairs
from visterm.models.ranking.wsabie import Wsabie

SMALL = {"dim": 8, "epochs": 10, "learning_rate": 0.02, "block": 16}
KINDS = pytest.mark.parametrize(
    ("shared", "directed"), [(True, False), (False, False), (True, True), (False, True)],
    ids=["shared", "unshared", "shared, directed", "unshared, directed"],
)  # fmt: skip


def single(tags, n_tags):
    return np.eye(n_tags, dtype=np.float32)[np.asarray(tags)]


@pytest.fixture(scope="module")
def alike():
    """Six objects and six parts, one tag an image; part j looks like part j + 3, but belongs to object j alone."""
    rng = np.random.default_rng(0)
    looks = np.eye(9, dtype=np.float32) * 2

    def draw(n):
        tags = rng.integers(0, 12, n)
        look = np.where(tags < 6, tags, 6 + tags % 3)
        return looks[look] + rng.standard_normal((n, 9)).astype(np.float32) * 0.3, tags

    X, tags = draw(600)
    part_of = np.array([[6 + j, j] for j in range(6)])
    model = ObjectsAndParts(part_of=part_of, shared=False, alpha=1.0, dim=16, epochs=60, learning_rate=0.02, block=32)
    return model.fit(X, single(tags, 12)), draw(400), part_of


def test_without_relations_it_is_wsabie_that_minds_the_top_only():
    planted = plant_corpus(n_tags=12, random_state=3)
    ours = ObjectsAndParts(**{**SMALL, "epochs": 3}).fit(planted.X_train, planted.Y_train)
    shared = {name: value for name, value in ours.get_params().items() if name in Wsabie().get_params()}
    other = Wsabie(**shared, step="sgd", bias=0, standardize=False).fit(planted.X_train, planted.Y_train)
    np.testing.assert_allclose(ours.image_map_, other.image_map_, atol=1e-5)
    np.testing.assert_allclose(ours.tag_rows_, other.tag_rows_, atol=1e-5)


@pytest.mark.parametrize("negative_weight", [1, 0.25])
@KINDS
def test_a_step_follows_the_gradient_of_the_quadruplet_score(shared, directed, negative_weight):
    """One pair, one draw, no norm limit: what changed is rate times the derivative of f(x) - f(x~), by differences."""
    n_tags, dim, alpha, rate = 3, 4, 0.5, 0.01
    X = np.array([[1.0, 2.0, -1.0]], np.float32)
    Y = single([1], n_tags)
    settings = {
        "part_of": [[0, 1]], "shared": shared, "directed": directed, "alpha": alpha, "dim": dim, "max_norm": 1e6,
        "negative_weight": negative_weight, "epochs": 1, "average": 1, "block": 1, "learning_rate": rate,
        "image_learning_rate": 3 * rate, "row_length": float(np.linalg.norm(X)), "init_scale": 0.3, "max_trials": 1,
    }  # fmt: skip
    before = ObjectsAndParts(**settings)
    rng = np.random.default_rng(5)
    before._check_features(X, reset=True)
    before._scale_features(X)
    image_map, rows = before._start(X, n_tags, rng)
    start = image_map.astype(float), rows.astype(float)
    after = ObjectsAndParts(**settings, random_state=5).fit(X, Y)
    moved = after.image_map_ - start[0], np.hstack([after.tag_rows_, after.relation_rows_]) - start[1]

    whole_at = 0 if shared else dim
    part_at = whole_at + dim if directed else whole_at
    part_image = np.array([3.0, -2.0, 5.0])  # whatever it shows, it must not matter

    def score(V, R, whole, part, alpha=alpha):
        f_l = R[whole, whole_at : whole_at + dim] @ R[part, part_at : part_at + dim]
        return X[0] @ V @ R[whole, :dim] + part_image @ V @ R[part, :dim] + alpha * f_l

    near = 2e-6 if negative_weight == 1 else 5e-4  # what is taken back is so from the row as it has moved meanwhile
    as_expected = []
    for other in (0, 2):  # whichever was drawn
        expected = []
        for array, size in zip(range(2), (3 * rate, rate), strict=True):
            gradient = np.zeros_like(start[array])
            for place in np.ndindex(gradient.shape):
                ends = []
                for sign in (1, -1):
                    weights = [part.copy() for part in start]
                    weights[array][place] += sign * 1e-4
                    ends.append(score(*weights, 1, 0) - score(*weights, other, 0, alpha * negative_weight))
                gradient[place] = (ends[0] - ends[1]) / 2e-4
            expected.append(size * gradient)
        as_expected.append(all(np.allclose(m, e, atol=near) for m, e in zip(moved, expected, strict=True)))
    assert max(np.abs(moved[0]).max(), np.abs(moved[1]).max()) > 1e-4
    assert as_expected.count(True) == 1


@KINDS
def test_pairs_of_labels_are_ranked_as_all_scores_say(shared, directed):
    rng = np.random.default_rng(1)
    X, tags = rng.standard_normal((60, 5)), rng.integers(0, 6, 60)
    model = ObjectsAndParts(part_of=[[0, 1], [2, 3]], shared=shared, directed=directed, alpha=0.1, **SMALL)
    model.fit(X, single(tags, 6))
    A, B = model.decision_function(X[:4]), model.decision_function(X[4:8])
    f_l = model.relation_scores(np.arange(6))
    scores = A[:, :, None] + B[:, None, :] + 0.1 * f_l
    found = model.annotate_pairs(X[:4], X[4:8], 5)
    best = np.argsort(-scores.reshape(4, 36), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(found.objects * 6 + found.parts, best)
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores.reshape(4, 36), best, axis=1), atol=1e-5)
    ranks = ranks_of_pairs(A, B, model.pair_scores(), found.objects[:, 3], found.parts[:, 3])
    assert ranks.tolist() == [3, 3, 3, 3]


def test_where_one_label_is_known_the_other_is_ranked_beside_it():
    rng = np.random.default_rng(1)
    X, tags = rng.standard_normal((60, 5)), rng.integers(0, 6, 60)
    model = ObjectsAndParts(part_of=[[0, 1], [2, 3]], directed=True, alpha=0.1, **SMALL).fit(X, single(tags, 6))
    A, B = model.decision_function(X[:2]), model.decision_function(X[2:4])
    f_l = 0.1 * model.relation_scores(np.arange(6))
    parts = model.annotate_pairs(X[:2], X[2:4], 6, objects=[1, 4])
    expected = A[[0, 1], [1, 4]][:, None] + B + f_l[[1, 4]]
    assert parts.objects.tolist() == [[1] * 6, [4] * 6]
    np.testing.assert_array_equal(parts.parts, np.argsort(-expected, axis=1))
    np.testing.assert_allclose(parts.scores, -np.sort(-expected, axis=1), atol=1e-5)
    objects = model.annotate_pairs(X[:2], X[2:4], 6, parts=[0, 5])
    expected = A + B[[0, 1], [0, 5]][:, None] + f_l[:, [0, 5]].T
    assert objects.parts.tolist() == [[0] * 6, [5] * 6]
    np.testing.assert_array_equal(objects.objects, np.argsort(-expected, axis=1))


def test_an_offset_leaves_only_known_relations_on_top():
    rng = np.random.default_rng(1)
    X, tags = rng.standard_normal((60, 5)), rng.integers(0, 6, 60)
    model = ObjectsAndParts(part_of=[[0, 1], [2, 3]], **SMALL).fit(X, single(tags, 6))
    found = model.annotate_pairs(X[:3], X[3:6], 3, words=False, offset=100.0)
    for row in range(3):
        assert {(p, o) for p, o in zip(found.parts[row, :2], found.objects[row, :2], strict=True)} == {(0, 1), (2, 3)}
        assert found.scores[row, 1] > 50 > found.scores[row, 2]


def test_the_label_of_an_object_tells_parts_apart_that_look_alike(alike):
    model, (X, tags), part_of = alike
    objects, parts = (np.flatnonzero(side) for side in (tags < 6, tags >= 6))
    whole_of = dict(part_of.tolist())
    by_object = [objects[tags[objects] == whole_of[tag]][0] for tag in tags[parts]]
    given = {"objects": tags[by_object]}
    seen = model.annotate_pairs(X[by_object], X[parts], 1, words=False, **given).parts[:, 0]
    told = model.annotate_pairs(X[by_object], X[parts], 1, **given).parts[:, 0]
    assert np.mean(seen == tags[parts]) < 0.7
    assert np.mean(told == tags[parts]) > 0.95


def test_related_tags_have_the_highest_scores_of_relation(alike):
    model, _, part_of = alike
    scores = model.relation_scores(part_of[:, 1])
    assert scores[:, 6:].argmax(axis=1).tolist() == list(range(6))


def test_it_stops_by_the_mean_rank_of_pairs_of_validation_images(alike):
    model, _, _ = alike
    ranks = [entry["mean_rank"] for entry in model.history_]
    assert {entry["map"] for entry in model.history_} == {None}
    assert model.n_epochs_ == int(np.argmin(ranks)) + 1
    assert min(ranks) < 0.2 * 71.5  # half of 144 pairs is what chance gives


def test_a_directed_model_knows_which_of_two_is_the_part(alike):
    _, (X, tags), part_of = alike
    model = ObjectsAndParts(
        part_of=part_of, shared=False, directed=True, alpha=1.0, dim=16, epochs=60, learning_rate=0.02, block=32
    ).fit(X, single(tags, 12))
    parts, wholes = part_of.T
    assert (
        model.relation_scores(wholes)[np.arange(6), parts] > model.relation_scores(parts)[np.arange(6), wholes]
    ).all()


@pytest.mark.parametrize(
    ("part_of", "error", "message"),
    [
        ([[0, 7]], ShapeError, "tag column 7"),
        ([[2, 2]], DataError, "part of itself"),
        ([0, 1], ShapeError, "pairs"),
        ([[0.5, 1.0]], ShapeError, "pairs"),
    ],
)
def test_relations_that_cannot_be_are_refused(part_of, error, message):
    with pytest.raises(error, match=message):
        ObjectsAndParts(part_of=part_of, **SMALL).fit(np.eye(4), single([0, 1, 2, 1], 3))


def test_labels_and_images_that_do_not_fit_are_refused():
    model = ObjectsAndParts(**SMALL).fit(np.eye(4), single([0, 1, 2, 1], 3))
    with pytest.raises(ShapeError, match="2 images of objects and 1 of parts"):
        model.annotate_pairs(np.eye(4)[:2], np.eye(4)[:1])
    with refused("parts", value=[1]):
        model.annotate_pairs(np.eye(4)[:1], np.eye(4)[:1], objects=[0], parts=[1])
    with pytest.raises(DataError, match=r"objects has the tag 3; expected 0 to 2"):
        model.annotate_pairs(np.eye(4)[:1], np.eye(4)[:1], objects=[3])
    with pytest.raises(ShapeError, match=r"parts has the shape \(1,\)"):
        model.annotate_pairs(np.eye(4)[:2], np.eye(4)[:2], parts=[1])


@pytest.mark.parametrize(
    "setting",
    [{"shared": "yes"}, {"alpha": -1}, {"negative_weight": 1.5}, {"image_learning_rate": 0}, {"weight": "best"}],
)
def test_settings_that_cannot_be_are_refused(setting):
    [(name, value)] = setting.items()
    with refused(name, value=value):
        ObjectsAndParts(**setting).check_settings()


def test_pairs_that_cannot_be_come_after_all_that_can():
    rng = np.random.default_rng(1)
    X, tags = rng.standard_normal((60, 5)), rng.integers(0, 6, 60)
    model = ObjectsAndParts(part_of=[[0, 1], [2, 3]], **SMALL).fit(X, single(tags, 6))
    possible = np.zeros((6, 6), bool)
    possible[1, 0] = possible[3, 2] = possible[3, 0] = True
    found = model.annotate_pairs(X[:2], X[2:4], 4, possible=possible)
    free = model.annotate_pairs(X[:2], X[2:4], 0)
    for row in range(2):
        kept = [(o, p) for o, p in zip(free.objects[row], free.parts[row], strict=True) if possible[o, p]]
        assert list(zip(found.objects[row, :3], found.parts[row, :3], strict=True)) == kept
        assert found.scores[row, 3] < -1e29
    parts = model.annotate_pairs(X[:1], X[2:3], 6, objects=[3], possible=possible)
    assert set(parts.parts[0, :2].tolist()) == {0, 2}
