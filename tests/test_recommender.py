"""Recommenders: pairs in, items out; folding in, adding items, splits and metrics."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, cross_val_score

import visterm
from command_line import visterm as command
from refusals import refused
from visterm.data.pairs import Pairs
from visterm.data.tag_queries import hold_one_out
from visterm.metrics import evaluate
from visterm.models import Ease, Wsabie

N_USERS, N_ITEMS, N_KINDS = 120, 30, 5


def drawn_pairs(seed=0):
    """People like two of five kinds of items; the first items of a kind are the famous ones."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(N_ITEMS) % N_KINDS
    pairs = []
    for user in range(N_USERS):
        liked = np.isin(kinds, rng.choice(N_KINDS, 2, replace=False))
        chance = np.where(liked, 1.0, 0.05) / (1 + np.arange(N_ITEMS) // N_KINDS)
        items = rng.choice(N_ITEMS, 6, replace=False, p=chance / chance.sum())
        pairs += [{"user": f"u{user}", "item": int(item), "day": day} for day, item in enumerate(items)]
    return pd.DataFrame(pairs)


@pytest.fixture(scope="module")
def frame():
    return drawn_pairs()


@pytest.fixture(scope="module")
def ease(frame):
    return visterm.fit_pairs(frame, model="ease")


def test_pairs_are_read_from_frames_files_and_matrices(frame, tmp_path):
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    frame.to_json(tmp_path / "pairs.jsonl", orient="records", lines=True)
    expected = Pairs.of(frame)
    assert expected.weights.nnz == 6 * N_USERS
    assert expected.items.tolist() == sorted(frame["item"].unique().tolist())
    for source in (frame.to_dict("records"), frame.to_dict("list"), tmp_path / "pairs.csv", tmp_path / "pairs.jsonl"):
        pairs = Pairs.of(source)
        assert pairs.users.tolist() == expected.users.tolist()
        order = np.argsort(pairs.items.astype(int))
        np.testing.assert_array_equal(pairs.weights.toarray()[:, order], expected.weights.toarray())
    matrix = Pairs.of(expected.weights, users=expected.users)
    assert matrix.users.tolist() == expected.users.tolist()
    assert not matrix.has_weights


def test_repeated_pairs_are_one_with_the_sum_of_weights_and_the_last_time():
    rows = {
        "user": ["a", "a", "b"],
        "item": [7, 7, 8],
        "n": [1.5, 2, 1],
        "at": ["2026-01-02", "2026-01-05", "2026-01-03"],
    }
    pairs = Pairs.of(rows, weight="n", time="at")
    assert pairs.weights.toarray().tolist() == [[3.5, 0], [0, 1]]
    assert pairs.times.tolist() == [3, 2]  # of (a, 7) and (b, 8)
    assert Pairs.of(rows).weights.toarray().tolist() == [[1, 0], [0, 1]]


def test_numbers_and_texts_of_the_same_digits_are_one_name():
    pairs = Pairs.of({"user": ["b", "a", 7, "7"], "item": [1, 2, 1, 3]})
    assert pairs.users.tolist() == ["7", "a", "b"]
    assert pairs.weights.toarray().tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_the_run_is_made_at_first_use_and_only_of_the_users_of_the_fit(frame):
    recommender = visterm.fit_pairs(frame, model="ease")
    recommender.recommend(k=3)
    assert "run_" not in vars(recommender)
    assert recommender.run_.facts["images"] == N_USERS
    assert recommender.run_.learned_images.count(recommender.users_.tolist()) == N_USERS
    folded = recommender.fold_in({"user": ["new"], "item": [1]})
    with pytest.raises(visterm.VistermError, match="recommender of new users"):
        assert folded.run_
    recommender.add_items({"user": ["u1"], "item": [1000]})
    assert len(recommender.run_.vocabulary) == N_ITEMS + 1


@pytest.mark.parametrize(
    ("source", "options", "part"),
    [
        ({"user": ["a"], "thing": [1]}, {}, "no column of items named 'item'"),
        ({"user": ["a", None], "item": [1, 2]}, {}, "has no user in row 2"),
        ({"user": ["a"], "item": [1], "w": [0]}, {"weight": "w"}, "has the weight 0"),
        ({"user": ["a"], "item": [1], "w": ["x"]}, {"weight": "w"}, "has texts"),
        ({"user": ["a"], "item": [1.5]}, {}, "has the number 1.5"),
        ({"user": ["a"], "item": [1], "t": ["soon"]}, {"time": "t"}, "expected numbers, dates"),
        (sp.csr_array((3, 4)), {}, "values above 0"),
        (sp.csr_array(np.eye(2)), {"items": ["a", "a"]}, "Two of the items are named 'a'"),
        ({"day": [1], "thing": [2]}, {}, "no column of users"),
    ],
)
def test_invalid_pairs_are_refused(source, options, part):
    with pytest.raises(visterm.VistermError, match=part):
        Pairs.of(source, **options)


def test_recommended_items_are_new_and_best_first(frame, ease):
    seen = frame.groupby("user")["item"].agg(set)
    result = ease.recommend(["u3", "u0"], k=8)
    assert result.users.tolist() == ["u3", "u0"]
    assert result.items.dtype.kind == "i"
    for user, items, scores in zip(*result, strict=True):
        assert not seen[user] & set(items.tolist())
        assert (np.diff(scores) <= 0).all()
    table = result.to_pandas()
    assert table.columns.tolist() == ["user", "rank", "item", "score"]
    assert len(table) == 16
    with_seen = ease.recommend(["u3"], k=N_ITEMS, exclude_seen=False)
    assert set(with_seen.items[0].tolist()) == set(ease.items_.tolist())
    assert set(ease.recommend(["u3"], k=5, among=[1, 2, 3]).items[0].tolist()) <= {1, 2, 3}


def test_no_users_are_refused(ease):
    with refused("users", value=[]):
        ease.recommend([])


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_results_become_frames(ease, library):
    pytest.importorskip(library)
    result = ease.recommend(["u3", "u0"], k=2)
    table = result.to_frame(library)
    columns = table.to_dict("list") if library == "pandas" else table.to_pydict() if library == "pyarrow" else table
    assert list(columns["user"]) == ["u3", "u3", "u0", "u0"]
    assert list(columns["rank"]) == [1, 2, 1, 2]
    assert list(columns["item"]) == result.items.ravel().tolist()
    assert result.rows()[3] == {name: list(columns[name])[3] for name in ("user", "rank", "item", "score")}


def test_names_that_differ_only_in_case_are_items_but_not_tags_of_a_run(tmp_path):
    recommender = visterm.fit_pairs({"user": ["a", "a", "b"], "item": ["X", "x", "X"]}, model="ease")
    assert recommender.recommend(["b"], k=1).items.tolist() == [["x"]]
    with pytest.raises(visterm.VistermError, match="case is ignored"):
        recommender.save(tmp_path / "run")
    (tmp_path / "pairs.csv").write_text("user,item\na,X\na,x\n", encoding="utf-8")
    code, _, err = command("fit --pairs pairs.csv -o run --model ease", tmp_path)
    assert code == 2
    assert "case is ignored" in err


def test_a_user_with_few_items_left_gets_no_others(ease):
    left = len(ease.items_) - 6
    assert len(ease.recommend(["u3"], k=N_ITEMS).rows()) == left


def test_ease_by_pairs_is_ease_on_the_matrix(ease):
    Y = ease.pairs_.weights
    scores = Ease().fit(None, Y).decision_function(None)
    np.testing.assert_array_equal(ease.scores(np.arange(N_USERS)), scores)


@pytest.mark.parametrize("model", ["auto", "ease", "knn", "wsabie", "vse_ens"])
def test_models_recommend_better_than_the_most_frequent_items(frame, model):
    result = visterm.evaluate_pairs(frame, [model, "prior"], metrics=["mrr"]).to_pandas()
    assert result["value"][0] > result["value"][1] + 0.05
    assert (result["low"] < result["value"]).all()


@pytest.mark.parametrize("model", ["auto", "ease", "knn", "wsabie", "als"])
def test_folded_users_get_nearly_the_items_of_a_fit(frame, model):
    if model == "als":
        pytest.importorskip("implicit")
    recommender = visterm.fit_pairs(frame, model=model)
    folded = recommender.fold_in(recommender.pairs_.weights[:40])
    expected = recommender.recommend(recommender.users_[:40], k=5).items
    same = [
        len(set(a) & set(b)) / 5 for a, b in zip(folded.recommend(k=5).items.tolist(), expected.tolist(), strict=True)
    ]
    assert np.mean(same) > (0.99 if model in ("ease", "knn") else 0.6)


def test_new_users_fold_in_by_name(ease):
    folded = ease.fold_in({"user": ["new", "new"], "item": [0, 5]})
    assert folded.users_.tolist() == ["new"]
    liked = folded.recommend(k=4).items[0]
    assert np.mean(liked % N_KINDS == 0) >= 0.5
    with refused("items", value=999):
        ease.fold_in({"user": ["new"], "item": [999]})


def test_items_are_added_for_the_users_that_have_them(frame):
    recommender = visterm.fit_pairs(frame, model="ease")
    before = recommender.scores(np.arange(N_USERS))
    fans = frame.loc[frame["item"] == 0, "user"].tolist()
    recommender.add_items({"user": fans, "item": [1000] * len(fans)})
    after = recommender.scores(np.arange(N_USERS))
    np.testing.assert_array_equal(after[:, :-1], before)
    likers = np.isin(recommender.users_, fans)
    assert after[likers, -1].mean() > after[~likers, -1].mean()
    assert 1000 not in recommender.recommend(fans, k=N_ITEMS).to_pandas().query("score > -inf")["item"].tolist()
    with refused("pairs"):
        recommender.add_items({"user": fans, "item": [1000] * len(fans)})


def test_similar_items_are_of_the_same_kind(ease):
    result = ease.similar_items([0, 1], k=3)
    assert result.users.tolist() == [0, 1]
    assert np.mean(result.items % N_KINDS == result.users[:, None]) > 0.6
    assert ease.similar_users(["u0"], k=3).items.shape == (1, 3)


def test_weights_are_used_or_refused(frame):
    weighed = frame.assign(weight=np.where(frame["item"] % 2, 5.0, 1.0))
    for model in ("ease", "knn", "wsabie", "auto"):
        plain, weighted = (visterm.fit_pairs(weighed, model=model, weight=w) for w in (None, "weight"))
        assert weighted.recommend(k=5).items[:, 0].mean() != plain.recommend(k=5).items[:, 0].mean()
    with refused("weight"):
        visterm.fit_pairs(weighed, model="prior", weight="weight")


def test_features_of_users_reach_models_that_take_them(frame):
    user_features = np.random.default_rng(0).normal(size=(N_USERS, 3)).astype(np.float32)
    recommender = visterm.fit_pairs(frame, model="wsabie", user_features=user_features)
    assert recommender.run_.model.n_features_in_ == N_USERS + 3
    with refused("path"):
        recommender.save("run")
    with refused("user_features"):
        visterm.fit_pairs(frame, model="ease", user_features=user_features)


def test_features_in_a_frame_whose_index_has_names_are_matched_by_name(frame):
    pairs = Pairs.of(frame)
    features = np.eye(N_KINDS)[pairs.items % N_KINDS]
    shuffled = pd.DataFrame(features, index=pairs.items).sample(frac=1, random_state=0)
    named = visterm.fit_pairs(frame, model="ease", item_features=pd.concat([shuffled, shuffled[:1].set_axis([999])]))
    ordered = visterm.fit_pairs(frame, model="ease", item_features=features)
    np.testing.assert_array_equal(named.scores(np.arange(N_USERS)), ordered.scores(np.arange(N_USERS)))
    with refused("item_features"):
        visterm.fit_pairs(frame, model="ease", item_features=shuffled[1:])
    with refused("item_features"):
        visterm.fit_pairs(frame, model="ease", item_features=pd.concat([shuffled, shuffled[:1]]))


def test_scores_take_positions_and_refuse_names(ease):
    with refused("users"):
        ease.scores(["ann"])


@pytest.mark.parametrize("model", ["ease", "wsabie"])
def test_features_of_items_recommend_items_that_nobody_has(frame, model):
    pairs = Pairs.of(frame)
    new = int(np.flatnonzero(pairs.items == 0)[0])
    weights = pairs.weights.tolil()
    weights[:, new] = 0  # nobody has the item of kind 0
    features = np.eye(N_KINDS)[pairs.items % N_KINDS]
    with_features = visterm.fit_pairs(sp.csr_array(weights), item_features=features, model=model, n_jobs=1)
    likers = (pairs.weights.toarray()[:, pairs.items % N_KINDS == 0]).sum(axis=1) >= 2
    scores = with_features.scores(np.arange(N_USERS))
    assert scores.shape == (N_USERS, N_ITEMS)
    assert scores[likers, new].mean() > scores[~likers, new].mean()
    assert with_features.fold_in(sp.csr_array(weights)[:5]).recommend(k=2).items.shape == (5, 2)
    with refused("path"):
        with_features.save("run")
    with refused("item_features"):
        visterm.fit_pairs(pairs, item_features=-features, model=model)


def test_new_users_are_folded_in_and_items_added_only_by_the_recommender_of_the_fit(ease):
    folded = ease.fold_in({"user": ["new"], "item": [1]})
    for call in (folded.fold_in, folded.add_items):
        with pytest.raises(visterm.VistermError, match="recommender of new users"):
            call({"user": ["new"], "item": [99]})


def test_saved_recommenders_recommend_the_same(frame, ease, tmp_path):
    ease.save(tmp_path / "run")
    loaded = visterm.Recommender.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.recommend(k=5).items, ease.recommend(k=5).items)
    tagged = visterm.Tagger.load(tmp_path / "run").annotate(["u3"], k=3, new_only=True).images[0]
    assert [int(tag.tag) for tag in tagged.tags] == ease.recommend(["u3"], k=3).items[0].tolist()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_recommendations_are_written(ease, tmp_path, suffix):
    path = tmp_path / f"top.{suffix}"
    ease.write(path, k=3)
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
        rows = pd.read_parquet(path).to_dict("records")
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 3 * N_USERS
    assert [row["item"] for row in rows[:3]] == ease.recommend(k=3).items[0].tolist()
    with refused("path"):
        ease.write(tmp_path / "top.xls")


@pytest.mark.parametrize("split", ["leave-one-out", "random", "temporal"])
def test_splits_hold_out_pairs_that_models_have_not_learned(frame, split):
    for by in ("user", "item"):
        rows = visterm.evaluate_pairs(frame, ["ease"], split=split, by=by, time="day").to_pandas()
        values = dict(zip(rows["metric"], rows["value"], strict=True))
        assert 0.3 < values["recall@10"] < 0.999
        assert 0 < values["popularity@10"] < 1
        assert 0.3 < values["coverage@10"] <= 1


def test_a_temporal_split_holds_out_the_latest_pairs(frame):
    from visterm.evaluation.pairs import _split

    train, held_out = _split(Pairs.of(frame, time="day"), "temporal", 0.2, np.random.default_rng(0))
    latest = frame[frame["day"] == 5]
    users, items = held_out.nonzero()
    names = set(zip(train.users[users].tolist(), train.items[items].tolist(), strict=True))
    assert names == set(zip(latest["user"], latest["item"], strict=True))
    with refused("time"):
        visterm.evaluate_pairs(frame, ["ease"], split="temporal")


def test_tastes_that_drift_are_harder_to_predict_from_the_past():
    rng = np.random.default_rng(0)
    kinds, rows = np.arange(N_ITEMS) % N_KINDS, []
    for user in range(N_USERS):
        early, late = rng.choice(N_KINDS, 2, replace=False)
        for kind, first_day in ((early, 0), (late, 4)):
            items = rng.choice(np.flatnonzero(kinds == kind), 4, replace=False)
            rows += [{"user": user, "item": item, "day": first_day + day} for day, item in enumerate(items)]
    recall = {
        split: visterm.evaluate_pairs(rows, "ease", split=split, share=0.5, time="day", metrics=["recall@5"]).rows()[0]
        for split in ("random", "temporal")
    }
    assert recall["temporal"]["high"] < recall["random"]["low"]


def test_the_interface_returns_the_quality_of_the_calls_below_it(frame):
    pairs = Pairs.of(frame)
    hidden = hold_one_out(pairs.weights, np.random.default_rng(0))
    model = Wsabie(dim=8, epochs=3, n_jobs=1).fit(None, hidden.rest)
    rows = sp.eye_array(N_USERS, format="csr", dtype=np.float32)[hidden.images]
    below = evaluate(partial(model.score_blocks, rows), hidden.held, ["mrr", "r@5"], exclude=hidden.known)
    ours = visterm.evaluate_pairs(pairs, Wsabie(dim=8, epochs=3, n_jobs=1), metrics=["mrr", "recall@5"]).rows()
    assert [row["value"] for row in ours] == pytest.approx(list(below.values()), abs=1e-12)


def test_a_fitted_recommender_is_measured_as_a_copy(frame, ease):
    visterm.evaluate_pairs(frame, ease, metrics=["mrr"])
    assert ease.pairs_.weights.nnz == len(frame)


def test_a_test_of_ones_own_is_measured(frame):
    train, test = frame[frame["day"] < 5], frame[frame["day"] == 5]
    test = test[test["item"].isin(train["item"])]
    own = visterm.evaluate_pairs(train, ["ease"], test=test, metrics=["mrr"]).rows()[0]
    assert own["n"] == test["user"].nunique()
    assert 0.1 < own["value"] < 1


def test_metrics_by_user_are_those_of_a_plain_program(frame):
    row = visterm.evaluate_pairs(frame, ["ease"], metrics=["recall@5", "mrr"], random_state=3).rows()
    from visterm.evaluation.pairs import _split

    train, held_out = _split(Pairs.of(frame), "leave-one-out", 0.2, np.random.default_rng(3))
    scores = Ease(random_state=3).fit(None, train.weights).decision_function(None)
    scores[train.weights.toarray() > 0] = -np.inf
    ranks = 1 + (scores > scores[held_out.toarray() > 0][:, None]).sum(axis=1)
    assert row[0]["value"] == pytest.approx(np.mean(ranks <= 5))
    assert row[1]["value"] == pytest.approx(np.mean(1 / ranks))


@pytest.mark.parametrize("metric", ["sampled_ndcg@10", "coverage", "nothing"])
def test_sampled_and_unknown_metrics_are_refused(frame, metric):
    with pytest.raises(visterm.VistermError):
        visterm.evaluate_pairs(frame, ["ease"], metrics=[metric])


def test_scikit_learn_chooses_settings(ease):
    Y = ease.pairs_.weights
    values = cross_val_score(visterm.Recommender(model="ease"), Y, cv=3)
    assert (values > 0.1).all()
    grid = {"model_params": [{"alpha": 0.001}, {"alpha": 10.0}]}
    search = GridSearchCV(visterm.Recommender(model="ease"), grid, cv=2).fit(Y)
    assert search.best_params_["model_params"]["alpha"] == 10.0
    assert visterm.Recommender(model=Wsabie(dim=8)).fit(Y).run_.model.dim == 8


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch):
    text = (Path(__file__).parents[1] / "docs" / "recommenders.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    rng = np.random.default_rng(0)
    ratings, is_test = rng.integers(-20, 6, (451, 40)).clip(0), rng.random((451, 40)) < 0.2
    films = {"train": sp.coo_matrix(ratings * ~is_test), "test": sp.coo_matrix(ratings * is_test)}
    films["item_labels"] = np.array(["Chasing Amy"] * 40)
    exec(compile("\n".join(blocks), "recommenders.md", "exec"), {"data": films})
    assert (tmp_path / "top.jsonl").stat().st_size


def test_the_command_line_learns_from_pairs(frame, tmp_path):
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    code, _, err = command("fit --pairs pairs.csv -o run --model ease", tmp_path)
    assert code == 0, err
    assert f"{N_ITEMS} items from {N_USERS} users" in err
    assert "Not used: the column day." in err
    code, out, _ = command("annotate run u3 --new-only -k 3", tmp_path)
    assert code == 0
    assert len(out.split(",")) == 3
    code, _, err = command("fit --pairs pairs.csv -o other --tags tags.csv", tmp_path)
    assert code == 2
    assert "--tags does not go with --pairs" in err
