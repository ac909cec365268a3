"""What every model promises: it learns, annotates and searches by one product, and repeats itself to the byte."""

from __future__ import annotations

import contextlib
import functools
from importlib.util import find_spec
from unittest import SkipTest

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import estimator_checks_generator

from planted import plant_corpus
from refusals import refused
from visterm.core import registry
from visterm.core.errors import DataError, DivergedError, ShapeError
from visterm.core.learned import check_learned
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.data.tag_queries import queries_of_tags
from visterm.models.abilities import AddsTags, FitsStreams, LearnsOn, LearnsQueries
from visterm.models.base import Annotator, SideKnowledge
from visterm.models.ranking.ranker import FINISH_EPOCHS
from visterm.models.ranking.training import Checkpoint
from visterm.models.stopping import OPEN

BRIEF = {"epochs": 3}
"""Settings where only bytes are compared, and nothing must be learned well."""

RESEARCH = False
"""Whether a module that has these tests runs them on the models of visterm-research, or on all others."""


@functools.cache
def installed(research):
    """List models of visterm-research or all others, without those whose extra (named as its main package) is missing.

    A model counts as of its package, whose own tests run these tests on it.
    """
    entries = [entry for entry in MODELS if (entry.package == registry.RESEARCH) == research]
    return [entry.name for entry in entries if not entry.extra or find_spec(entry.extra)]


def each(takes):
    """Mark a test that runs on each installed model that `takes` accepts by its name."""

    def mark(test):
        test.takes = takes
        return test

    return mark


models = each(lambda name: True)
models_that_learn_on = each(lambda name: issubclass(MODELS.load(name), LearnsOn))
models_that_add_tags = each(lambda name: issubclass(MODELS.load(name), AddsTags))
models_that_learn_queries = each(lambda name: issubclass(MODELS.load(name), LearnsQueries))
models_that_fit_streams = each(lambda name: issubclass(MODELS.load(name), FitsStreams))
learning_models = each(lambda name: MODELS.entry(name).learns)
models_that_take_side_knowledge = each(lambda name: bool(MODELS.load(name).takes))
models_with_epochs = each(lambda name: has_epochs(name))
models_without_epochs = each(lambda name: not has_epochs(name))
first_of_family = each(lambda name: name in firsts())


ADDING = [["ease", {"alpha": 1.0}], ["wsabie", {"dim": 16}]]
ADDS_TAGS = {"candidates": ADDING, "members": ADDING}
"""Settings of blends whose members can add tags."""


def has_epochs(name):
    return {"epochs", "patience"} <= set(MODELS.load(name)().get_params())


def pytest_generate_tests(metafunc):
    """Give each test the models that it is for, and the kinds of input that it tries on some or all of them."""
    takes, kinds = getattr(metafunc.function, "takes", None), getattr(metafunc.function, "kinds", None)
    names = installed(metafunc.module.RESEARCH)
    if takes is not None:
        metafunc.parametrize("name", [name for name in names if takes(name)])
    if kinds is not None:
        of_firsts, of_every_model = kinds
        pairs = [(name, kind) for kind in of_firsts for name in names if name in firsts()]
        metafunc.parametrize(("name", "kind"), pairs + [(name, kind) for kind in of_every_model for name in names])


INPUT_CHECKS = {
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_f_contiguous_array_estimator",
    "check_fit_score_takes_y",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
}
"""Checks of scikit-learn, slow ones, of how X and Y are taken in: of code that models of a family share."""

ORDER_CHECK = "check_methods_sample_order_invariance"
"""Asks that float32 scores agree to 1e-7 in any order of the rows, which matrix products of some processors do not;
`test_an_image_scores_the_same_alone_and_in_any_order` asks it to the 1e-5 that we promise."""


def family(name):
    """Return the classes that define what takes X and Y in: the same for models of one family.

    `_fit` and what is below it get float32 rows, C-contiguous or canonical CSR, signs of tags and a generator, whatever
    was given. Only indices of 64 bits and arrays that cannot be written reach them as they are.
    """
    bases = MODELS.load(name).__mro__
    methods = ("fit", "_fitting", "_check_features", "image_rows", "decision_function", "annotate", "__sklearn_tags__")
    return tuple(next(base for base in bases if method in vars(base)) for method in methods)


@functools.cache
def firsts():
    """Return the first model of each family; where visterm has models of a family, it is one of them."""
    names = [*installed(False), *installed(True)]
    return set({family(name): name for name in reversed(names)}.values())


def once_a_family(kinds, *, of_every_model=()):
    """Run a test on all kinds of input for a model of each family, and on some kinds for every model."""

    def mark(test):
        test.kinds = kinds, of_every_model
        return test

    return mark


def create(name, **params):
    cls = MODELS.load(name)
    known = cls().get_params()
    return cls(**{**cls.test_params, **{key: value for key, value in params.items() if key in known}})


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, random_state=3)


class FittedOnce(dict):
    """Models by name, each fitted on the same rows when it is first asked for."""

    def __init__(self, X, Y):
        super().__init__()
        self.rows = X, Y

    def __missing__(self, name):
        self[name] = create(name).fit(*self.rows)
        return self[name]


@pytest.fixture(scope="module")
def fitted(planted):
    """Each model fitted once on the planted corpus, by name; tests must not change them."""
    return FittedOnce(planted.X_train, planted.Y_train)


@pytest.fixture(scope="module")
def fitted_sparse(planted):
    """Each model fitted once on the same features as CSR, by name; tests must not change them."""
    return FittedOnce(sp.csr_array(planted.X_train), planted.Y_train)


@pytest.fixture(scope="module")
def few(planted):
    """A third of the training rows, for tests that only compare bytes."""
    return planted.X_train[:80], planted.Y_train[:80]


@pytest.fixture(scope="module")
def brief(few):
    """Each model fitted on few rows, once and briefly: function of its name and of dense, sparse or lit features."""
    X, Y = few
    forms = {"dense": X, "sparse": sp.csr_array(X), "lit": (X > 0.15).astype(np.float32)}
    return functools.cache(lambda name, form: create(name, **BRIEF).fit(forms[form], Y))


def learned_arrays(model):
    arrays = {}
    for key, value in vars(model).items():
        if key.endswith("_") and not key.startswith("_"):
            value = value.toarray() if sp.issparse(value) else value
            if isinstance(value, np.ndarray):
                arrays[key] = value
    return arrays


def assert_same_bytes(model, other):
    arrays, others = learned_arrays(model), learned_arrays(other)
    assert arrays.keys() == others.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, others[key], err_msg=key, strict=True)


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


def search(model, X):
    """Scores of images for each tag as a catalogue computes them, shape (n_tags, n_images)."""
    queries = model.query_rows(np.eye(model.n_tags_))
    return dense(queries @ model.image_rows(X).T)


def precision_at_3(scores, relevant):
    best = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    return np.take_along_axis(relevant, best, axis=1).mean()


@models
def test_a_model_keeps_the_rules_of_scikit_learn(name):
    for model, check in estimator_checks_generator(create(name, **BRIEF)):
        check_name = getattr(check, "func", check).__name__
        if check_name == ORDER_CHECK:
            continue
        if name in firsts() or check_name not in INPUT_CHECKS:
            with contextlib.suppress(SkipTest):
                check(model)


def test_each_family_has_a_model_that_keeps_every_rule_and_the_rules_left_out_elsewhere_exist():
    everyone = [*installed(False), *installed(True)]
    assert {family(name) for name in firsts()} == {family(name) for name in everyone}
    checks = [getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(create("prior"))]
    assert set(checks) >= INPUT_CHECKS | {ORDER_CHECK}


@learning_models
def test_a_model_tags_images_it_never_saw_much_better_than_the_tag_frequencies(name, planted, fitted):
    relevant = planted.Y_test.toarray() > 0
    prior = precision_at_3(fitted["prior"].decision_function(planted.X_test), relevant)
    found = precision_at_3(fitted[name].decision_function(planted.X_test), relevant)
    assert found >= 1.5 * prior


@learning_models
def test_a_model_finds_images_of_a_tag_much_better_than_chance(name, planted, fitted):
    relevant = planted.Y_test.toarray().T > 0
    found = precision_at_3(search(fitted[name], planted.X_test), relevant)
    assert found >= 1.5 * precision_at_3(search(fitted["prior"], planted.X_test), relevant)
    assert found >= 1.5 * relevant.mean()


@learning_models
def test_a_model_learns_from_sparse_features_as_well(name, planted, fitted, fitted_sparse):
    relevant = planted.Y_test.toarray() > 0
    prior = fitted["prior"].decision_function(planted.X_test)
    found = precision_at_3(fitted_sparse[name].decision_function(sp.csr_array(planted.X_test)), relevant)
    assert found >= 1.5 * precision_at_3(prior, relevant)


@models
def test_dense_and_sparse_features_give_the_same_scores(name, planted, fitted, fitted_sparse):
    X, X_sparse = planted.X_test, sp.csr_array(planted.X_test)
    from_sparse = fitted_sparse[name]
    expected = fitted[name].decision_function(X)
    for scores in (
        fitted[name].decision_function(X_sparse),
        from_sparse.decision_function(X_sparse),
        from_sparse.decision_function(X),
    ):
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


@models
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_scores_are_the_product_of_image_rows_and_tag_rows(name, form, planted, fitted, fitted_sparse):
    model = (fitted if form is np.asarray else fitted_sparse)[name]
    U = dense(model.image_rows(form(planted.X_test)))
    V = dense(model.query_rows(np.eye(12)))
    assert U.dtype == V.dtype == np.float32
    assert U.shape == (len(planted.X_test), V.shape[1])
    scores = model.decision_function(form(planted.X_test))
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, U @ V.T, rtol=1e-5, atol=1e-5)


@models
def test_a_query_is_the_weighted_sum_of_its_tags_rows(name, fitted):
    V = dense(fitted[name].query_rows(sp.eye_array(12, format="csr")))
    query = np.zeros(12)
    query[[2, 7]] = [0.5, 2.0]
    np.testing.assert_allclose(dense(fitted[name].query_rows(query))[0], 0.5 * V[2] + 2 * V[7], rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match="5 columns, but this model knows 12 tags"):
        fitted[name].query_rows(np.eye(5))


@models
@pytest.mark.parametrize(("k", "width"), [(1, 1), (5, 5), (12, 12), (50, 12), (0, 12)])
def test_annotate_gives_exactly_k_tags_best_first_and_ties_by_id(name, k, width, planted, fitted):
    scores = fitted[name].decision_function(planted.X_test)
    ranking = fitted[name].annotate(planted.X_test, k)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :width]
    np.testing.assert_array_equal(ranking.ids, expected)
    np.testing.assert_allclose(ranking.scores, np.take_along_axis(scores, expected, axis=1), rtol=1e-5, atol=1e-6)


@models
@pytest.mark.parametrize("k", [-1, 2.5, True, "5"])
def test_annotate_refuses_a_k_that_is_no_whole_number(name, k, planted, fitted):
    with refused("k"):
        fitted[name].annotate(planted.X_test, k)


@models
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_an_image_scores_the_same_alone_and_in_any_order(name, form, planted, fitted):
    X = form(planted.X_test[:10])
    together = fitted[name].decision_function(X)
    for i in range(10):
        np.testing.assert_allclose(fitted[name].decision_function(X[i : i + 1])[0], together[i], rtol=1e-5, atol=1e-5)
    order = np.random.default_rng(0).permutation(10)
    np.testing.assert_allclose(fitted[name].decision_function(X[order]), together[order], rtol=1e-5, atol=1e-5)


@models
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_the_same_seed_gives_the_same_bytes_for_any_number_of_threads(name, form, planted):
    X = form(planted.X_train)
    first, *others = (create(name, n_jobs=n_jobs, **BRIEF).fit(X, planted.Y_train) for n_jobs in (1, 2, 4))
    for again in others:
        assert_same_bytes(first, again)


@models
def test_a_second_fit_forgets_the_first(name, few, brief):
    other = plant_corpus(n_train=80, n_tags=7, n_features=25, random_state=8)
    model = create(name, **BRIEF).fit(sp.csr_array(other.X_train), other.Y_train).fit(*few)
    assert_same_bytes(model, brief(name, "dense"))


@models
def test_saving_and_loading_gives_bit_equal_scores_and_pickles_nothing(name, planted, fitted, tmp_path):
    save_estimator(fitted[name], MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    written = {file.name for file in tmp_path.iterdir()} - {"model.times.json"}
    assert written == {"model.json", "model.safetensors"}
    assert loaded.get_params() == fitted[name].get_params()
    for X in (planted.X_test, sp.csr_array(planted.X_test)):
        np.testing.assert_array_equal(loaded.decision_function(X), fitted[name].decision_function(X))


@models
def test_all_that_a_model_learns_is_declared_in_its_class_and_is_as_declared(name, planted, fitted):
    X, Y = planted.X_train[:60], planted.Y_train[:60]
    model = create(name, **BRIEF)
    taught = [fitted[name], create(name, **BRIEF).fit(sp.csr_array(X), Y), create(name, **BRIEF).fit(None, Y)]
    if isinstance(model, LearnsOn):
        taught.append(model.partial_fit(X, Y))
    for one in taught:
        check_learned(one)


@models
@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_features_of_any_reasonable_size_give_finite_weights_and_scores_or_an_error_with_advice(
    name, size, few, planted
):
    X = few[0] * np.float32(size)
    try:
        model = create(name).fit(X, few[1])
    except DivergedError as error:
        assert "scale the features" in str(error)  # noqa: PT017
        return
    assert all(np.isfinite(array).all() for array in learned_arrays(model).values())
    assert np.isfinite(model.decision_function(X)).all()


@models
def test_features_too_large_to_square_are_refused_with_advice(name, planted):
    with pytest.raises(DataError, match="Scale the features"):
        create(name).fit(planted.X_train * np.float32(1e20), planted.Y_train)


def test_weights_that_are_not_finite_are_refused_with_advice():
    class Exploding(Annotator):
        def _fit(self, X, Y, rng):
            self.tag_rows_ = np.array([[np.nan]], np.float32)

        def _image_rows(self, X):
            return np.ones((X.shape[0], 1), np.float32)

    with pytest.raises(DivergedError, match=r"Exploding.tag_rows_ became infinite or NaN"):
        Exploding().fit([[1.0], [2.0]], [[1], [0]])


@models
def test_a_tag_that_is_only_ever_denied_is_proposed_far_less_than_by_chance(name, planted):
    denied = sp.csr_array(np.full((planted.Y_train.shape[0], 1), -1.0))
    model = create(name).fit(planted.X_train, sp.hstack([denied, planted.Y_train]))
    assert (model.annotate(planted.X_test, 1).ids != 0).all()
    assert (model.annotate(planted.X_test, 3).ids == 0).any(axis=1).mean() < 0.5 * 3 / 13


@models
def test_an_image_without_features_gets_a_ranking_too(name, fitted):
    for X in (np.zeros((2, 40)), sp.csr_array((2, 40))):
        assert np.isfinite(fitted[name].annotate(X, 5).scores).all()


@once_a_family(["int", "bool", "float64", "lists", "Fortran order"], of_every_model=["read-only map"])
def test_dense_features_of_any_type_are_taken_at_their_value(name, kind, few, brief, tmp_path):
    lit = few[0] > 0.15
    expected = brief(name, "lit")
    if kind == "read-only map":
        np.save(tmp_path / "X.npy", lit.astype(np.float32))
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    else:
        X = {
            "int": lit.astype(np.int64),
            "bool": lit,
            "float64": lit.astype(np.float64),
            "lists": lit.astype(int).tolist(),
            "Fortran order": np.asfortranarray(lit, np.float32),
        }[kind]
    model = create(name, **BRIEF).fit(X, few[1])
    assert_same_bytes(model, expected)
    np.testing.assert_array_equal(model.decision_function(X), expected.decision_function(X))


@once_a_family(["csc", "coo", "old csr matrix", "float64", "unsorted"], of_every_model=["int64 indices", "read-only"])
def test_sparse_features_of_any_form_are_taken_at_their_value(name, kind, few, brief):
    X = sp.csr_array(few[0])
    given = X.copy()
    if kind in ("csc", "coo"):
        given = X.asformat(kind)
    elif kind == "old csr matrix":
        given = sp.csr_matrix(X)
    elif kind == "float64":
        given = X.astype(np.float64)
    elif kind == "int64 indices":
        given = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
    elif kind == "read-only":
        for array in (given.data, given.indices, given.indptr):
            array.flags.writeable = False
    else:
        first = slice(X.indptr[0], X.indptr[1])
        given.data[first], given.indices[first] = X.data[first][::-1], X.indices[first][::-1]
        given.has_sorted_indices = False
    assert_same_bytes(create(name, **BRIEF).fit(given, few[1]), brief(name, "sparse"))


@once_a_family(["dense", "int", "bool", "lists", "csc", "counts"])
def test_tags_of_any_type_are_taken_by_their_sign(name, kind, few, brief):
    X, Y = few
    given = {
        "dense": Y.toarray(),
        "int": Y.toarray().astype(np.int8),
        "bool": Y.toarray() > 0,
        "lists": Y.toarray().astype(int).tolist(),
        "csc": sp.csc_matrix(Y),
        "counts": Y * 7,
    }[kind]
    assert_same_bytes(create(name, **BRIEF).fit(X, given), brief(name, "dense"))


@first_of_family
def test_every_kind_of_random_state_is_taken_and_equal_states_give_equal_bytes(name, few):
    for make in (lambda: 5, lambda: np.int64(5), lambda: np.random.RandomState(5), lambda: np.random.default_rng(5)):
        first, second = (create(name, random_state=make(), **BRIEF).fit(*few) for _ in range(2))
        assert_same_bytes(first, second)
    create(name, random_state=None, **BRIEF).fit(*few)


@models
def test_images_known_only_by_number_need_no_features(name, planted):
    Y = planted.Y_train[:60]
    model = create(name, **BRIEF).fit(None, Y)
    same = create(name, **BRIEF).fit(sp.eye_array(60, format="csr"), Y)
    assert_same_bytes(model, same)
    scores = model.decision_function(None)
    assert scores.shape == Y.shape
    np.testing.assert_array_equal(scores, same.decision_function(sp.eye_array(60, format="csc")))
    np.testing.assert_array_equal(model.annotate(None, 4).ids, same.annotate(None, 4).ids)
    np.testing.assert_array_equal(dense(model.image_rows(None)), dense(same.image_rows(None)))
    assert model.annotate(np.eye(60)[7:8], 3).ids.tolist() == model.annotate(None, 3).ids[7:8].tolist()


@models
def test_no_image_known_only_by_number_is_held_out_for_nothing_would_be_known_of_it(name, planted):
    Y = planted.Y_train[:80]
    model = create(name, valid_share=0.5, **BRIEF).fit(None, Y)
    assert_same_bytes(model, create(name, valid_share=0.0, **BRIEF).fit(None, Y))
    assert model.get_params() == create(name, valid_share=0.5, **BRIEF).get_params()


@models
def test_no_features_for_a_model_of_features_are_refused_with_advice(name, fitted):
    for ask in (fitted[name].image_rows, fitted[name].annotate, fitted[name].decision_function):
        with pytest.raises(DataError, match=r"fitted on features \(40 per image\)"):
            ask(None)


@models_that_learn_on
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_model_can_be_taught_pass_by_pass_from_nothing(name, form, planted, fitted):
    model = create(name)
    epochs = getattr(model, "epochs", 1)
    for _ in range(epochs):
        model.partial_fit(form(planted.X_train), planted.Y_train)
    relevant = planted.Y_test.toarray() > 0
    prior = precision_at_3(fitted["prior"].decision_function(planted.X_test), relevant)
    assert precision_at_3(model.decision_function(form(planted.X_test)), relevant) >= 1.5 * prior
    if hasattr(model, "epochs"):
        assert model.n_epochs_ == len(model.history_) == epochs


@models_that_learn_on
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_learning_on_without_the_images_leaves_stored_image_rows_valid_and_moves_tags(name, form, planted):
    model = create(name).fit(form(planted.X_train), planted.Y_train)
    stored = dense(model.image_rows(form(planted.X_test))).copy()
    tags = dense(model.query_rows(np.eye(12))).copy()
    model.partial_fit(form(planted.X_train), planted.Y_train[:, ::-1], images=False)
    np.testing.assert_array_equal(dense(model.image_rows(form(planted.X_test))), stored)
    assert (dense(model.query_rows(np.eye(12))) != tags).any(axis=1).all()


@models_that_learn_on
def test_learning_on_gives_the_same_bytes_for_any_number_of_threads(name, planted):
    taught = [
        create(name, n_jobs=n_jobs, **BRIEF)
        .partial_fit(planted.X_train, planted.Y_train)
        .partial_fit(planted.X_train, planted.Y_train)
        for n_jobs in (1, 2, 4)
    ]
    for other in taught[1:]:
        assert_same_bytes(taught[0], other)


@models_that_learn_on
def test_learning_on_refuses_another_number_of_tags_or_features(name, planted):
    model = create(name).partial_fit(planted.X_train, planted.Y_train)
    with pytest.raises(ShapeError, match=r"Y has 5 tags, but this model knows 12. Add new tags with add_tags"):
        model.partial_fit(planted.X_train, planted.Y_train[:, :5])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(planted.X_train[:, :5], planted.Y_train)


@models_that_add_tags
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_new_tags_are_learned_and_all_else_stays_as_it_was_to_the_bit(name, form, planted):
    X, Y = form(planted.X_train), planted.Y_train
    model = create(name, **ADDS_TAGS).fit(X, Y[:, :9])
    before = {key: array.copy() for key, array in learned_arrays(model).items()}
    stored = dense(model.image_rows(form(planted.X_test))).copy()
    model.add_tags(X, Y[:, 9:])
    assert model.n_tags_ == 12
    np.testing.assert_array_equal(dense(model.image_rows(form(planted.X_test))), stored)
    for key, array in learned_arrays(model).items():
        grows = key.endswith(("_rows_", "tag_factors_", "tag_offsets_"))
        of_old_tags = array[: len(before[key])] if grows else array
        np.testing.assert_array_equal(of_old_tags, before[key])
    scores = model.decision_function(X)
    for tag in (9, 10, 11):
        has = Y[:, [tag]].toarray()[:, 0] > 0
        assert (scores[has, tag][:, None] > scores[~has, tag]).mean() > 0.65  # area under the ROC curve
        proposed = (model.annotate(X, 3).ids == tag).any(axis=1)
        assert proposed[has].mean() > 1.5 * proposed[~has].mean()


@models_that_add_tags
def test_new_tags_have_the_same_bytes_for_any_number_of_threads_and_are_saved(name, planted, tmp_path):
    X, Y = planted.X_train, planted.Y_train
    grown = [create(name, n_jobs=n, **BRIEF, **ADDS_TAGS).fit(X, Y[:, :9]).add_tags(X, Y[:, 9:]) for n in (1, 2, 4)]
    for other in grown[1:]:
        assert_same_bytes(grown[0], other)
    save_estimator(grown[0], MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    np.testing.assert_array_equal(loaded.decision_function(X), grown[0].decision_function(X))
    with pytest.raises(ShapeError):
        grown[0].add_tags(X, Y[:5])


@models_that_learn_queries
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_given_queries_are_learned_with_the_same_bytes_for_any_number_of_threads(name, form, planted, fitted):
    asked = queries_of_tags(planted.Y_train)
    X = form(planted.X_train)
    taught = [create(name, n_jobs=n).fit_queries(X, asked.words, asked.relevant) for n in (1, 2, 4)]
    again = create(name).fit(form(planted.X_test), planted.Y_test).fit_queries(X, asked.words, asked.relevant)
    for other in (*taught[1:], again):
        assert_same_bytes(taught[0], other)
    relevant = planted.Y_test.toarray().T > 0
    found = precision_at_3(search(taught[0], form(planted.X_test)), relevant)
    assert found >= 1.5 * precision_at_3(search(fitted["prior"], planted.X_test), relevant)


@models_that_learn_queries
def test_queries_of_any_type_are_taken_at_their_value(name, planted):
    asked = queries_of_tags(planted.Y_train)
    Q, R = asked.words, asked.relevant
    expected = create(name, **BRIEF).fit_queries(planted.X_train, Q, R)
    for given_Q, given_R in ((Q.toarray(), R.toarray() > 0), (Q.toarray().astype(int).tolist(), sp.csc_matrix(R))):
        assert_same_bytes(create(name, **BRIEF).fit_queries(planted.X_train, given_Q, given_R), expected)


class SlicedRows:
    """Rows as windows of 100 for `fit_stream`, in an order of their own in each epoch."""

    def __init__(self, X, Y):
        self.X, self.Y = X, sp.csr_array(Y)
        self.n_features, self.n_tags, self.n_pairs = X.shape[1], Y.shape[1], self.Y.nnz
        self.mean_length = float(np.sqrt((np.linalg.norm(dense(X), axis=1) ** 2).mean()))

    def epoch(self, epoch, first=0):
        starts = np.random.default_rng(epoch).permutation(np.arange(0, self.X.shape[0], 100))
        for start in starts[first:]:
            yield self.X[start : start + 100], self.Y[start : start + 100]


class Killed(BaseException):
    """Stands for a kill: nothing but `finally` sees it."""


class Notebook:
    """Keeps the last checkpoint, as bytes that nothing changes any more, and kills after so many."""

    def __init__(self, last=None, kill_at=None):
        self.kept, self.n, self.kill_at = last, 0, kill_at

    def last(self):
        return self.kept

    def offer(self, make):
        made = make()
        facts = {**made.facts, "history": list(made.facts["history"])}
        self.kept = Checkpoint(facts, {name: array.copy() for name, array in made.arrays.items()})
        self.n += 1
        if self.n == self.kill_at:
            raise Killed


@models_that_fit_streams
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_model_learns_from_windows_to_the_same_bytes_for_any_number_of_threads(name, form, planted, fitted):
    windows = SlicedRows(form(planted.X_train), planted.Y_train)
    model = create(name, n_jobs=1).fit_stream(windows)
    relevant = planted.Y_test.toarray() > 0
    prior = precision_at_3(fitted["prior"].decision_function(planted.X_test), relevant)
    assert precision_at_3(model.decision_function(planted.X_test), relevant) >= 1.5 * prior
    assert all(np.isfinite(array).all() for array in learned_arrays(model).values())
    assert_same_bytes(model, create(name, n_jobs=2).fit_stream(windows))
    assert len(model.history_) == model.n_epochs_ == model.epochs


@models_that_fit_streams
@pytest.mark.parametrize("kill_at", [1, 10])
@pytest.mark.parametrize("params", [{}, {"step": "adagrad", "schedule": "cosine"}], ids=["plain", "adagrad"])
def test_a_fit_on_windows_that_was_killed_goes_on_to_the_same_bytes(name, kill_at, params, planted):
    windows = SlicedRows(planted.X_train, planted.Y_train)
    valid = planted.X_test, planted.Y_test
    settings = {"epochs": 5, "patience": 2, **params}
    whole = create(name, **settings).fit_stream(windows, valid=valid)
    killed = Notebook(kill_at=kill_at)
    with pytest.raises(Killed):
        create(name, **settings).fit_stream(windows, valid=valid, checkpoints=killed)
    again = create(name, **settings).fit_stream(windows, valid=valid, checkpoints=Notebook(killed.kept))
    assert_same_bytes(whole, again)
    assert [entry["map"] for entry in again.history_] == [entry["map"] for entry in whole.history_]
    assert again.n_epochs_ == whole.n_epochs_


@models_that_fit_streams
def test_windows_without_any_tag_are_refused(name, planted):
    windows = SlicedRows(planted.X_train, sp.csr_array(planted.Y_train.shape, dtype=np.float32))
    with pytest.raises(DataError, match="nothing to learn"):
        create(name).fit_stream(windows)


def stop_after_two(record):
    return "stop" if record["epoch"] == 2 else None


@models_with_epochs
def test_a_callback_that_stops_after_the_second_epoch_gives_the_model_of_two_epochs(name, planted):
    settings = {"valid_share": 0, "schedule": "constant"}
    seen = []

    def callback(record):
        seen.append(record)
        return stop_after_two(record)

    stopped = create(name, epochs=9, **settings).fit(planted.X_train, planted.Y_train, on_epoch=callback)
    assert_same_bytes(stopped, create(name, epochs=2, **settings).fit(planted.X_train, planted.Y_train))
    assert stopped.n_epochs_ == 2
    assert seen == stopped.history_


@models_with_epochs
def test_a_callback_that_only_looks_on_changes_nothing_and_sees_both_trainings_of_a_fit_that_holds_images_out(
    name, planted
):
    seen = []
    settings = {"epochs": 2, "valid_share": 0.3}
    model = create(name, **settings).fit(planted.X_train, planted.Y_train, on_epoch=seen.append)
    assert_same_bytes(model, create(name, **settings).fit(planted.X_train, planted.Y_train))
    assert model.n_held_out_ > 0
    final = [1, 2][: model.n_epochs_]
    if (n_finished := 2 if getattr(model, "schedule", "") == OPEN else int(name == "mlp")) > 0:
        final = n_finished * [*range(1, FINISH_EPOCHS + 1)]
    assert [record["epoch"] for record in seen] == [1, 2, *final]


@models_with_epochs
def test_an_error_of_a_callback_ends_the_fit_and_the_next_fit_is_as_if_nothing_had_been(name, planted):
    model = create(name, epochs=2)
    settings = model.get_params()

    def callback(record):
        raise LookupError("no such plot")

    with pytest.raises(LookupError, match="no such plot"):
        model.fit(planted.X_train, planted.Y_train, on_epoch=callback)
    assert not hasattr(model, "n_epochs_")
    assert model.get_params() == settings
    again = model.fit(planted.X_train, planted.Y_train)
    assert_same_bytes(again, create(name, epochs=2).fit(planted.X_train, planted.Y_train))


@models_without_epochs
def test_a_model_without_epochs_ignores_the_callback(name, planted, fitted):
    model = create(name).fit(planted.X_train, planted.Y_train, on_epoch=stop_after_two)
    assert_same_bytes(model, fitted[name])


@models_that_fit_streams
def test_a_callback_ends_a_fit_on_windows_too(name, planted):
    windows = SlicedRows(planted.X_train, planted.Y_train)
    settings = {"schedule": "constant"}
    stopped = create(name, epochs=9, **settings).fit_stream(windows, on_epoch=stop_after_two)
    assert_same_bytes(stopped, create(name, epochs=2, **settings).fit_stream(windows))
    assert stopped.n_epochs_ == 2


@models_that_learn_queries
def test_a_callback_ends_a_fit_on_queries_too(name, planted):
    queries = queries_of_tags(sp.csr_array(planted.Y_train > 0), max_words=2)
    rows = (planted.X_train, queries.words, queries.relevant)
    settings = {"valid_share": 0, "schedule": "constant"}
    stopped = create(name, epochs=9, **settings).fit_queries(*rows, on_epoch=stop_after_two)
    assert_same_bytes(stopped, create(name, epochs=2, **settings).fit_queries(*rows))


@models_that_take_side_knowledge
def test_side_knowledge_teaches_what_settings_of_its_names_do_and_changes_none(name, few, tmp_path):
    (X, Y), rng = few, np.random.default_rng(5)
    width = getattr(create(name), "dim", None) or X.shape[1]
    known = {
        "part_of": [[0, 1], [2, 3], [4, 3]], "siblings": [[1, 3]], "tree": [[0, 1], [2, 1]],
        "word_vectors": rng.normal(size=(Y.shape[1], width)).astype(np.float32),
        "blocks": [X.shape[1] // 2, X.shape[1] - X.shape[1] // 2],
    }  # fmt: skip
    brief = {**BRIEF, "listed": 1.0}
    model = create(name, **brief)
    settings = model.get_params()
    model.fit(X, Y, side=SideKnowledge(**known))
    assert model.get_params() == settings
    expected = create(name, **brief, **{field: known[field] for field in model.takes}).fit(X, Y)
    assert_same_bytes(model, expected)
    save_estimator(model, MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    np.testing.assert_array_equal(loaded.decision_function(X), expected.decision_function(X))
    if hasattr(model, "pair_scores"):
        np.testing.assert_array_equal(loaded.pair_scores(), expected.pair_scores())
    model.fit(X, Y)
    assert_same_bytes(model, create(name, **brief).fit(X, Y))  # the second fit knows nothing of it
