"""Trees of tags: read from paths and tables, photos of a child have its parents, and chances never contradict it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from refusals import refused
from visterm import Catalogue, Tagger
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.relations import TREE_FILE, read_related
from visterm.data.tag_formats.record import likely_paths
from visterm.data.tag_tree import TagTree, TreeColumns, tree_of_paths
from visterm.evaluation.evaluate import evaluate_taggers
from visterm.evaluation.query_evaluation import evaluate_queries
from visterm.learning.fit_request import FitRequest
from visterm.learning.tune import tune
from visterm.metrics import measure
from visterm.models.ranking.training import positive_tags
from visterm.models.ranking.wsabie import Wsabie, store_unknown_descendants
from visterm.store.filters import Filter

pytestmark = pytest.mark.usefixtures("plugin")

ANIMALS = [("husky", "dog"), ("poodle", "dog"), ("dog", "animal"), ("cat", "animal")]
COLOURS = {"husky": (0, 0, 255), "poodle": (0, 90, 200), "cat": (0, 200, 0), "sky": (230, 230, 230)}
MEAN_COLOUR = {"encoder": "mean_colour"}
PATHS = {"husky": "animal/dog/husky", "poodle": "Animal/dog/poodle", "cat": "animal/cat", "sky": "sky"}


def test_paths_are_called_by_their_ends_and_by_more_where_several_end_alike():
    tree, called = tree_of_paths(
        [["animals/dog/husky", "Husky", "sky"], ["Animals / Cat"], ["birds/crane"], ["jobs/crane"]]
    )
    assert tree.pairs == [
        ("dog", "animals"), ("husky", "dog"), ("Cat", "animals"), ("birds/crane", "birds"), ("jobs/crane", "jobs")
    ]  # fmt: skip
    assert called["animals/dog/husky"] == "husky"
    assert called["animals/dog"] == "dog"  # of which no photo has the path alone
    assert called["Animals / Cat"] == called["Animals/Cat"] == "Cat"
    assert "sky" not in called


def test_a_bar_in_a_path_stands_for_a_slash_in_a_name():
    assert tree_of_paths([["music/AC|DC"]])[0].pairs == [("AC/DC", "music")]


def test_only_tags_that_begin_alike_look_like_paths():
    assert likely_paths([["AC/DC", "24/7", "animals/dog"], ["Animals/cat", "/sky"]]) == ["animals/dog", "Animals/cat"]
    assert likely_paths([["AC/DC"], ["ac/dc"]]) == []


def test_spellings_and_aliases_fold_in_a_tree():
    tree = TagTree([("Husky", "dog"), ("husky", "Dog"), ("chien", "animal")], {"Chien": "dog"})
    assert tree.pairs == [("Husky", "dog"), ("dog", "animal")]
    assert tree.with_parents(["HUSKY", "sky"]) == ["animal", "dog", "HUSKY", "sky"]
    assert tree.path("husky") == ["animal", "dog", "Husky"]
    assert (tree.children("ANIMAL"), tree.parents("chien"), tree.below("animal")) == (
        ["dog"],
        ["animal"],
        ["dog", "Husky"],
    )
    assert TagTree().above("dog") == []


def test_new_paths_grow_at_their_places_and_are_called_by_their_ends():
    tree = TagTree(ANIMALS, {"animal/dog": "dog"}, grows=True)
    paths = ["animal/dog/Pug/Möpschen", "animal/dog/cat", "plants/oak", "AC/DC", "animal/鳥"]
    assert tree.new_names(paths) == {
        "animal/dog/Pug": ("Pug", "dog"), "animal/dog/Pug/Möpschen": ("Möpschen", "Pug"),
        "animal/dog/cat": ("dog/cat", "dog"), "animal/鳥": ("鳥", "animal"),
    }  # fmt: skip
    grown = tree.with_paths(paths)
    assert "animal/dog/Pug/Möpschen" in grown.below("dog")
    assert grown.paths_of("pug") == ["animal/dog/Pug"]
    assert (tree.with_paths(["AC/DC"]), tree.paths_of("pug")) == (tree, [])


def test_a_tag_under_two_others_has_both_and_the_first_leads_its_path():
    tree = TagTree([("dog", "pet"), ("dog", "animal"), ("pet", "friend")])
    assert tree.with_parents(["dog"]) == ["friend", "animal", "pet", "dog"]
    assert tree.path("dog") == ["friend", "pet", "dog"]


@pytest.mark.parametrize(
    ("pairs", "circle"), [([("a", "b"), ("b", "c"), ("c", "A")], "a < b < c < a"), ([("a", "a")], "a < a")]
)
def test_a_circle_is_named(pairs, circle):
    with pytest.raises(DataError, match=circle):
        TagTree([("x", "a"), *pairs])


def test_a_hundred_levels_are_a_tree_and_more_are_refused_in_a_line():
    chain = [(f"tag {level}", f"tag {level + 1}") for level in range(50_000)]
    assert len(TagTree(chain[:99]).above("tag 0")) == len(TagTree(chain[:99]).paths()) == 99
    for n_levels in (101, 400, 50_000):
        with pytest.raises(DataError, match=r"^[^\n]{1,200}$") as refused:
            TagTree(chain[: n_levels - 1])
        assert f"The tag 'tag 0' is on level {n_levels:,} of the tree; expected at most 100" in str(refused.value)


def test_a_tag_that_is_a_path_of_more_than_a_hundred_levels_is_refused():
    path = "/".join(map(str, range(150)))
    with pytest.raises(DataError, match="'149' is on level 150 of the tree; expected at most 100"):
        tree_of_paths([[path]])
    alike, called = tree_of_paths([["/".join("a" * 100)]])
    assert len(alike.paths()) == 99
    assert len(set(called.values())) == 99


def test_new_paths_grow_the_tree_to_a_hundred_levels_and_no_further():
    tree = TagTree([("dog", "animal")], grows=True)
    for n_levels, n_above in ((100, 99), (101, 0), (150, 0)):
        path = "/".join(["animal", *("x" * (n_levels - 1))])
        assert len(tree.above(path)) == n_above
        assert len(tree.with_paths([path]).pairs) == max(n_above, 1) + bool(n_above)


def test_of_a_large_circle_the_ends_and_the_size_are_named():
    circle = [(f"tag {i}", f"tag {(i + 1) % 50_000}") for i in range(50_000)]
    with pytest.raises(DataError, match="circle of 50,000: tag 0 < tag 1 < tag 2 < … < tag 49998 < tag 49999 < tag 0"):
        TagTree(circle)


def test_values_rise_to_those_under_them_past_words_that_are_no_tags():
    columns = TreeColumns(TagTree(ANIMALS), Vocabulary(["animal", "cat", "husky", "poodle", "sky"]))  # without dog
    values = np.array([[0.1, 0.2, 0.7, 0.3, 0.9], [0.8, 0.2, 0.1, 0.3, 0.0]])
    assert columns.raised(values).tolist() == [[0.7, 0.2, 0.7, 0.3, 0.9], [0.8, 0.2, 0.1, 0.3, 0.0]]
    assert values[0, 0] == 0.1
    assert columns.raised(values[0]).tolist() == [0.7, 0.2, 0.7, 0.3, 0.9]


def test_tags_of_photos_are_completed_upwards_and_what_they_have_not_downwards():
    columns = TreeColumns(TagTree(ANIMALS), Vocabulary(["animal", "dog", "husky", "sky"]))
    Y = sp.csr_array(np.array([[0, 0, 1, 0], [0, -1, 0, 1], [-1, 0, 1, 0]], np.float32))
    assert columns.completed(Y).toarray().tolist() == [[1, 1, 1, 0], [0, -1, -1, 1], [1, 1, 1, 0]]


def test_a_table_is_read_and_its_faults_are_named(tmp_path):
    (tmp_path / "tree.csv").write_text("parent,child\ndog,husky\n", encoding="utf-8")
    assert read_related(tmp_path / "tree.csv", TREE_FILE) == [("husky", "dog")]
    (tmp_path / "tree.csv").write_text("husky\n", encoding="utf-8")
    with pytest.raises(DataError, match="child and parent"):
        read_related(tmp_path / "tree.csv", TREE_FILE)


def photos(n=160, seed=0):
    """Return drawn noise around a colour for each tag, and the names of their tags."""
    rng = np.random.default_rng(seed)
    tags = [list(COLOURS)[i % len(COLOURS)] for i in range(n)]
    return [np.uint8(np.clip(rng.normal(COLOURS[tag], 25, (12, 12, 3)), 0, 255)) for tag in tags], [
        [tag] for tag in tags
    ]


@pytest.fixture(scope="module")
def tagger():
    images, tags = photos()
    lines = []
    run = Tagger(**MEAN_COLOUR, model="ridge").fit(
        images, [[PATHS[tag] for tag in those] for those in tags], tree="paths", say=lines.append
    )
    assert "Tree: 4 tags under 2 others." in lines
    return run


def test_a_photo_of_a_child_has_its_parents(tagger):
    counts = dict(zip(tagger.vocabulary.tags, tagger.vocabulary.counts.tolist(), strict=True))
    assert counts == {"animal": 120, "cat": 40, "dog": 80, "husky": 40, "poodle": 40, "sky": 40}
    assert tagger.vocabulary.index("animal/dog/husky") == tagger.vocabulary.index("HUSKY")
    assert tagger.facts["tags under others"] == 4


def test_paths_and_a_table_of_the_same_tree_learn_the_same(tagger):
    images, tags = photos()
    other = Tagger(**MEAN_COLOUR, model="ridge").fit(images, tags, tree=ANIMALS)
    assert other.vocabulary.tags == tagger.vocabulary.tags
    X = np.ones((1, other.model.n_features_in_), np.float32)
    assert np.array_equal(other.model.decision_function(X), tagger.model.decision_function(X))


def test_no_parent_is_less_likely_than_its_child(tagger):
    images, _ = photos(24, seed=1)
    for done in (tagger.annotate(images, 0), tagger.annotate(images, min_confidence=0.3)):
        for image in done.images:
            sure = {tag.tag: tag for tag in image.tags}
            for child, parent in ANIMALS:
                if child in sure:
                    assert sure[parent].confidence >= sure[child].confidence
                    assert sure[parent].score >= sure[child].score


def test_cutoffs_are_chosen_by_the_chances_that_photos_are_tagged_by(tagger):
    held = tagger.calibration.held_out
    chances = np.zeros((len(held.image_counts), len(tagger.vocabulary)), np.float32)
    chances[held.images, held.tags] = held.chances
    assert (chances > 0.5).any()
    assert np.array_equal(tagger.tree.raised(chances), chances)


def test_parts_of_a_chunk_are_tagged_as_the_whole(tagger, monkeypatch):
    images, _ = photos(10, seed=4)
    whole = tagger.annotate(images)
    monkeypatch.setattr("visterm.tagging.annotating.MAX_SCORES", 3 * len(tagger.vocabulary))
    for one, other in zip(tagger.annotate(images).images, whole.images, strict=True):
        assert [tag.tag for tag in one.tags] == [tag.tag for tag in other.tags]
        assert [tag.confidence for tag in one.tags] == pytest.approx([tag.confidence for tag in other.tags], rel=1e-4)


def test_a_run_keeps_its_tree(tagger, tmp_path):
    tagger.save(tmp_path / "run")
    opened = Tagger.load(tmp_path / "run", whole=False)
    assert opened.tree.words.pairs == tagger.tree.words.pairs
    assert opened.relations.is_a == opened.relations.tree


def test_judged_photos_are_completed_and_paths_are_understood(tagger):
    images, tags = photos(16, seed=2)
    corpus = Corpus.of(images, [str(i) for i in range(16)], [[PATHS[tag] for tag in those] for those in tags])
    found = evaluate_taggers([tagger], corpus, ["p@1", "map", "hp@1", "hf1@6"])
    assert found.mean("hp@1") > 0.9
    assert found.n_unknown == 0
    assert found.Y.sum() == 4 * (3 + 3 + 2 + 1)
    assert found.mean("map") > 0.9


def test_queries_are_measured_on_what_searches_by_confidence_find(tagger, indexed):
    names = sorted(ids(indexed))
    images = [indexed.image(ids(indexed)[name]).record.path for name in names]
    corpus = Corpus.of(images, names, [[PATHS[name[:-5]]] for name in names])
    found = evaluate_queries([tagger], corpus, min_count=1, combine="confidence")
    n_relevant = dict(zip(found.texts, found.n_relevant.tolist(), strict=True))
    assert [n_relevant[word] for word in ("husky", "dog", "animal", "sky")] == [2, 4, 6, 2]
    for query, text in enumerate(found.texts):
        [best] = found.best_images([query], 8)
        hits = indexed.search(text, 0, combine="confidence").hits
        assert [names[image] for image in best.ids] == [hit.image for hit in hits]
        np.testing.assert_allclose(np.exp(best.scores), [hit.confidence for hit in hits], rtol=1e-5)


def test_a_wrong_tag_under_a_right_parent_counts_in_part():
    """By hand: of three photos the best tags are a sibling of the right one, another kind, and the right one."""
    tags = Vocabulary(["cat", "husky", "poodle", "sky"])
    above = TreeColumns(TagTree(ANIMALS), tags).above  # dog and animal are no tags here
    scores = np.array([[0.1, 0.2, 0.9, 0.0], [0.9, 0.1, 0.2, 0.0], [0.0, 0.9, 0.1, 0.2], [0.9, 0.1, 0.2, 0.3]])
    Y = np.array([[0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    found = measure(scores, Y, ["hp@1", "hr@1", "hf1@1", "p@1"], tree=above)
    assert found["hp@1"] == pytest.approx([2 / 3, 1 / 2, 1, np.nan], nan_ok=True)
    assert found["hr@1"] == pytest.approx([2 / 3, 1 / 3, 1, np.nan], nan_ok=True)
    assert found["hf1@1"] == pytest.approx([2 / 3, 2 / 5, 1, np.nan], nan_ok=True)
    assert found["p@1"] == pytest.approx([0, 0, 1, np.nan], nan_ok=True)
    hidden = np.array([[0, 0, 1, 0]] * 4)  # poodle is left out: husky is then the first photo's best
    assert measure(scores, Y, ["hp@1", "hp@9"], tree=above, exclude=hidden)["hp@1"][0] == 1
    with refused("metrics", value="hp@1"):
        measure(scores, Y, ["hp@1"])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"tree": "paths"}, "No tag is a path"),
        ({"tree": [("husky", "dog"), ("dog", "husky")]}, "circle"),
        ({"tree": "there_is_no.csv"}, "there_is_no.csv"),
    ],
    ids=["no-paths", "circle", "no-file"],
)
def test_trees_that_cannot_be_used_are_refused(request_, message):
    images, tags = photos(8)
    with pytest.raises((DataError, UserError), match=message):
        Tagger(**MEAN_COLOUR, model="ridge").fit(images, tags, **request_)


def test_paths_of_a_tree_are_no_lists():
    images, tags = photos(8)
    above = [["animal", "animal/dog", PATHS[tag]] for [tag] in tags]  # as programs write them that keep all levels
    lines = []
    for tree in (None, "paths"):
        Tagger(encoder="mean_colour", model="prior").fit(images, above, tree=tree, say=lines.append)
    assert [line for line in lines if line.startswith("Read")] == [
        "Read 6 tags; 4 contain a separator; 0 on one photo only; 3 look like lists ('animal/dog', "
        "'animal/dog/husky', 'Animal/dog/poodle').",
        "Read 6 tags; 0 on one photo only.",
    ]


def test_without_a_tree_slashes_are_letters_and_likely_paths_are_pointed_out():
    images, tags = photos(8)
    lines = []
    run = Tagger(**MEAN_COLOUR, model="ridge").fit(
        images, [[PATHS[tag] for tag in those] for those in tags], say=lines.append
    )
    assert "animal/dog/husky" in run.vocabulary.tags
    assert any("say that the tree of the tags is in their paths" in line for line in lines)


@pytest.fixture(scope="module")
def indexed(tagger, tmp_path_factory):
    """A catalogue of the run: two photos of each colour, none with a tag."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("photos")
    images, tags = photos(8, seed=3)
    for number, (image, [tag]) in enumerate(zip(images, tags, strict=True)):
        Image.fromarray(image).save(folder / f"{tag}{number // 4}.png")
    catalogue = Catalogue(tagger)
    catalogue.add(folder)
    return catalogue


def ids(catalogue):
    return {hit.image: hit.id for hit in catalogue.browse(k=0).hits}


@pytest.mark.parametrize("how", [{}, {"combine": "confidence"}, {"min_confidence": 0.0}], ids=str)
def test_a_search_says_of_a_parent_no_less_than_of_its_child(indexed, how):
    chances = {
        tag: {hit.image: hit.confidence for hit in indexed.search(tag, 0, **how).hits}
        for tag in indexed.tagger.vocabulary
    }
    for child, parent in ANIMALS:
        for image, chance in chances[child].items():
            assert chances[parent][image] >= chance - 1e-7  # products of float32 rows
    annotated = indexed.annotate(list(ids(indexed).values()), k=0)
    for name, image_id in ids(indexed).items():
        for tag in annotated[image_id]:
            assert chances[tag.tag][name] == pytest.approx(tag.confidence)


def test_a_photo_that_a_person_gave_a_child_has_its_parents_and_one_without_the_parent_has_no_child(indexed):
    image = ids(indexed)
    indexed.give(image["sky0.png"], ["husky"])
    indexed.judge(image["husky1.png"], "animal", -1)
    try:
        for tag in ("husky", "dog", "animal", "Animal/dog"):
            found = indexed.search(tag, 0).hits
            assert (found[0].image, found[0].source, found[0].confidence) == ("sky0.png", "person", 1.0)
            assert "husky1.png" not in [hit.image for hit in found]
            assert indexed.browse(Filter(tags=(tag,)), 0).hits[0].image == "sky0.png"
        assert "husky1.png" in [hit.image for hit in indexed.search("sky", 0).hits]
        assert "sky0.png" not in [hit.image for hit in indexed.search("sky -animal", 0).hits]
        assert not {tag.tag for tag in indexed.annotate([image["husky1.png"]], k=0)[image["husky1.png"]]} & {
            "animal", "dog", "husky"
        }  # fmt: skip
        indexed.give(image["husky1.png"], ["husky"])  # what was given stands against what was rejected above it
        assert "husky1.png" in [hit.image for hit in indexed.search("dog", 0).hits]
    finally:
        for name in ("sky0.png", "husky1.png"):
            indexed.take(image[name], ["husky"])


def test_a_rejected_parent_counts_against_a_child_of_a_tag_file_in_filters_too(indexed):
    image = ids(indexed)
    indexed.stored.tags.set_from_file(image["husky0.png"], ["husky"])
    indexed.stored.tags.set_from_file(image["poodle0.png"], ["poodle"])

    def passes(name, **filters):
        return name in [hit.image for hit in indexed.browse(Filter(**filters), 0).hits]

    try:
        assert passes("husky0.png", tags=("animal",))
        indexed.judge(image["husky0.png"], "animal", -1)
        for tag in ("animal", "dog", "husky"):
            assert not passes("husky0.png", tags=(tag,))
            assert passes("husky0.png", without=(tag,))
            assert not passes("husky0.png", predicted=(tag,), min_confidence=0.0)
        indexed.give(image["husky0.png"], ["husky"])  # what a person gave stands
        assert passes("husky0.png", tags=("animal",))
        indexed.judge(image["poodle0.png"], "husky", -1)  # is a dog all the same
        assert passes("poodle0.png", tags=("dog",))
    finally:
        for name, tag in (("husky0.png", "animal"), ("poodle0.png", "husky")):
            indexed.judge(image[name], tag, 0)
            indexed.take(image[name], ["husky"])
            indexed.stored.tags.set_from_file(image[name], [])


def test_an_alias_may_mean_a_tag_by_its_path():
    images, tags = photos()
    paths = [[PATHS[tag] for tag in those] for those in tags]
    run = Tagger(**MEAN_COLOUR, model="ridge").fit(
        images, paths, tree="paths", tag_rules={"aliases": {"Hund": "Animal/dog"}}
    )
    assert run.vocabulary.index("hund") == run.vocabulary.index("dog")


def test_what_lies_under_a_tag_that_an_image_has_alone_is_neither_right_nor_wrong():
    """By hand: dog alone, dog with a husky, dog without a poodle, and sky; animal, dog, husky, poodle, sky."""
    Y = sp.csr_array(np.array([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, -1, 0], [0, 0, 0, 0, 1]], np.float32))
    tree = TreeColumns(TagTree(ANIMALS), Vocabulary(["animal", "dog", "husky", "poodle", "sky"])).pairs
    found = store_unknown_descendants(positive_tags(Y), Y, tree)
    stored = [
        list(zip(found.indices[a:b].tolist(), found.data[a:b].tolist(), strict=True))
        for a, b in pairwise(found.indptr.tolist())
    ]
    assert stored == [
        [(0, 1), (1, 1), (2, 0), (3, 0)], [(0, 1), (1, 1), (2, 1)], [(0, 1), (1, 1), (2, 0)], [(4, 1)]
    ]  # fmt: skip


def test_wsabie_draws_no_tag_as_wrong_under_one_that_was_given_alone():
    X = np.eye(4, dtype=np.float32).repeat(30, axis=0)
    Y = np.zeros((120, 4), np.float32)  # dog, husky, cat, sky
    for row, tags in enumerate([[0], [0, 1], [2], [3]]):
        Y[30 * row : 30 * row + 30, tags] = 1
    how = {"dim": 8, "epochs": 6, "valid_share": 0, "random_state": 0}
    plain, by_tree = (
        Wsabie(tree=tree, **how).fit(X, Y).decision_function(np.eye(4, dtype=np.float32))
        for tree in (None, np.array([[1, 0]]))
    )
    others = [2, 3]
    assert by_tree[0, 1] - by_tree[0, others].max() > plain[0, 1] - plain[0, others].max() + 0.1
    with refused("tree", value=9, error=ShapeError):
        Wsabie(tree=[[9, 0]], **how).fit(X, Y)
    with refused("tree", error=ShapeError):
        Wsabie(tree=[1, 0], **how).fit(X, Y)


@pytest.mark.parametrize("model", ["wsabie", "auto"])
def test_models_are_given_the_tree_and_save_without_it(model, tmp_path):
    images, tags = photos(64)
    params = {"candidates": [("wsabie", {"dim": 4, "epochs": 2}), ("ridge", {})]} if model == "auto" else {"epochs": 2}
    run = Tagger(**MEAN_COLOUR, model=model, model_params=params).fit(images, tags, tree=ANIMALS)
    assert len(run.model.known("tree")) == 6  # husky and poodle under dog and animal, dog and cat under animal
    run.save(tmp_path / "run")
    assert Tagger.load(tmp_path / "run").model.tree is None


def test_settings_are_tuned_with_the_tree(tmp_path):
    images, tags = photos(64)
    request = FitRequest(
        images=images, tags=tags, tree=ANIMALS, **MEAN_COLOUR, model="wsabie", out=tmp_path / "run",
        model_params={"epochs": 2}, n_jobs=1,
    )  # fmt: skip
    tuned = tune(request, grid={"dim": [2, 4]})
    assert len(tuned.run.model.known("tree")) == 6
    assert Tagger.load(tmp_path / "run").tree.words.path("husky") == ["animal", "dog", "husky"]
    assert tuned.run.facts["tags under others"] == 4
