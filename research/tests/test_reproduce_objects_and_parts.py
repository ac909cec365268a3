"""The objects-and-parts paper's labelling of objects and parts, on tiny drawn data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import run_command
from studies import run_study, tables_of
from tiny_wordnet import write_wordnet
from visterm.core.errors import DataError, StorageError, UserError
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.models.parts.relations import QuadrupletBlock
from visterm_research.comparison.methods import Method
from visterm_research.comparison.problem import Rows
from visterm_research.comparison.run import Comparison, Options, Outcome
from visterm_research.comparison.search import unordered
from visterm_research.comparison.trials import Choice, Judged, OutOfTimeError, Trials, fit_rows
from visterm_research.data.wordnet import WordNet
from visterm_research.papers import read_paper
from visterm_research.parts.claims import parts_claims
from visterm_research.parts.images import Labelled, _left_out_crops
from visterm_research.parts.methods import (
    MORE_METHODS,
    PAPER_METHODS,
    SHARED_I,
    SHARED_IW,
    UNSHARED_I,
    UNSHARED_IW,
    WORDS,
    quick_method,
)
from visterm_research.parts.parts_run import PartsRun
from visterm_research.parts.photos import photo_runs, related_photos
from visterm_research.parts.problem import KEPT, LEFT_OUT, LeftOut, PartsProblem, related
from visterm_research.parts.ranks import KNOWN, known_ranks, ranks_of, relation_of_each, task_ranks
from visterm_research.parts.relations import (
    Relations,
    pascal_folder,
    pascal_relations,
    read_part_lists,
    wordnet_relations,
)
from visterm_research.parts.study import QUICK_VISTERMS
from visterm_research.parts.tables import place_of_left_out
from visterm_research.scenes import DrawnLibrary
from visterm_research.scenes.crops import Crop, DrawnCrops

paper = read_paper("objects_and_parts")

METHODS = (*PAPER_METHODS, *MORE_METHODS)
WHOLES, PARTS = ("car", "bus", "house"), ("wheel", "window", "door")

SYNSETS = [
    ("entity", [], "that which exists"),
    ("vehicle", ["entity", "%p wheel"], "moves people"),
    ("car", ["vehicle", "%p window"], "a vehicle with an engine"),
    ("bus coach", ["car"], "carries many people"),
    ("house", ["entity", "%p window", "%p door"], "a building to live in"),
    ("wheel", ["entity"], "is round"),
    ("window", ["entity"], "lets light in"),
    ("door", ["entity"], "is opened and closed"),
]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    pytest.importorskip("matplotlib")
    return run_study("parts", tmp_path_factory.mktemp("parts"), quick=True, n_jobs=1)


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wordnet")
    write_wordnet(folder, SYNSETS)
    return folder


@pytest.fixture(scope="module")
def corel(small_library: DrawnLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like Corel5k's, of drawn pictures with a whole and a part each, and PASCAL-Part's lists beside it."""
    above = tmp_path_factory.mktemp("photos")
    folder = above / "corel5k"
    (folder / "images").mkdir(parents=True)
    lines = ["image\tsplit\tlabels"]
    for number, picture in enumerate(small_library.pictures[:90]):
        shutil.copy(small_library.images / picture.file_name, folder / "images" / picture.file_name)
        tags = f"{WHOLES[number % 3]},{PARTS[number // 3 % 3]}"
        lines.append(f"{picture.file_name}\t{'test' if number % 5 == 0 else 'train'}\t{tags}")
    (folder / "labels.tsv").write_text("\n".join(lines) + "\n")
    pascal = above / "pascal_part"
    pascal.mkdir()
    (pascal / "pascalPartOntology.csv").write_text("car,wheel,chain_window\nunicycle,wheel\n")
    (pascal / "WordNet_Yago_alignment.tsv").write_text("PASCAL-Part_class\tWDsynset\nCar\t99999999\nWheel\t99999998\n")
    return folder


def planted(seed: int = 0, *, n: int = 120, share: float = 0.0) -> PartsProblem:
    """Images of one of four labels each, of which 2 is part of 0, and 3 of 1."""
    rng = np.random.default_rng(seed)

    def rows(n: int) -> Rows:
        labels = np.arange(n) % 4
        X = np.eye(4, 6, dtype=np.float32)[labels] + rng.normal(0, 0.3, (n, 6)).astype(np.float32)
        return Rows(X, sp.csr_array(np.eye(4, dtype=np.float32)[labels]))

    data = Labelled("any", "planted", list("abcd"), rows(n), rows(40), rows(40), [f"{i}.png" for i in range(40)])
    return related(data, np.array([(2, 0), (3, 1)]), share=share, n_valid=60, n_test=50, seed=0)


def trials_in(folder: Path) -> Trials:
    return Trials(folder, n_jobs=1)


def comparison_in(folder: Path, *methods: Method) -> Comparison:
    return Comparison(folder, trials_in(folder), methods, Options(quick=True, seed=1))


def small(method: Method) -> Method:
    return replace(
        method,
        fixed={
            **method.fixed,
            "dim": 4,
            "epochs": 4,
            "learning_rate": 0.05,
            "max_trials": 10,
            "image_learning_rate": 0.1,
            "alpha": 0.3,
        },
        box={},
        start=None,
    )


def test_ranks_of_all_tasks_are_those_of_all_answers_sorted() -> None:
    rng = np.random.default_rng(3)
    S = rng.integers(0, 3, (6, 4)).astype(np.float32)  # many scores are equal
    F = rng.integers(0, 3, (4, 4)).astype(np.float32)
    block = QuadrupletBlock(*rng.integers(0, [[6], [4], [6], [4]], (4, 20)))
    found = task_ranks(S, F, block, 1)
    relations = np.unique(np.stack([block.parts, block.objects], axis=1), axis=0)
    known = known_ranks(S, F, block, relations)

    def place(scores: dict[object, float], answer: object) -> int:
        return sorted(scores, key=lambda one: (-scores[one], one)).index(answer) + 1  # type: ignore[arg-type, return-value]

    for i, (I_o, o, I_p, p) in enumerate(zip(*block, strict=True)):
        A, B = S[I_o], S[I_p]
        pairs = {(a, b): float(A[a] + B[b] + F[a, b]) for a, b in product(range(4), range(4))}
        assert found["Part-object labelling"][i] == place(pairs, (o, p))
        assert known[i] == place({(b, a): pairs[a, b] for b, a in relations}, (p, o))
        for at, one, image, beside in ((i, o, A, F[:, p]), (20 + i, p, B, F[o])):
            assert found["Image annotation"][at] == place(dict(enumerate(image)), one)
            assert found["Triplet"][at] == place(dict(enumerate(image + beside)), one)


def test_without_words_a_known_label_says_nothing() -> None:
    S = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    block = QuadrupletBlock(*np.random.default_rng(1).integers(0, [[5], [7], [5], [7]], (4, 30)))
    found = task_ranks(S, np.zeros((7, 7), np.float32), block, 1)
    np.testing.assert_array_equal(found["Triplet"], found["Image annotation"])


def test_equal_scores_go_to_the_smaller_column_and_answers_keep_their_relation() -> None:
    assert ranks_of(np.array([[1.0, 2, 2], [1, 2, 2]]), np.array([1, 2])).tolist() == [1, 2]
    block = QuadrupletBlock(*(np.array(one) for one in ([9, 9], [0, 1], [8, 8], [2, 3])))
    assert relation_of_each("Part-object labelling", block).tolist() == [[2, 0], [3, 1]]
    assert relation_of_each("Triplet", block).tolist() == [[2, 0], [3, 1], [2, 0], [3, 1]]


def test_methods_that_differ_in_the_score_share_their_fits_and_are_chosen_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, trials = planted(), trials_in(tmp_path)
    fitted: list[object] = []
    counted = lambda *given: fitted.append(given) or fit_rows(*given)  # noqa: E731
    monkeypatch.setattr("visterm_research.parts.problem.fit_rows", counted)
    box = {"alpha": unordered(0.1, 0.3, 2.0)}
    chosen = [trials.choose(problem, replace(small(one), box=box))[0] for one in (SHARED_IW, SHARED_I)]
    assert len(fitted) == 3
    for choice, by in zip(chosen, ("words", "images"), strict=True):
        assert len(choice.tried) == 3
        assert choice.record["mean_rank"][by] == min(record["mean_rank"][by] for _, record in choice.tried)


def test_relations_that_are_left_out_are_neither_learned_nor_chosen_by(tmp_path: Path) -> None:
    problem = planted(share=0.5)
    assert len(problem.relations.kept) == len(problem.relations.left_out) == 1
    (kept,), (left,) = problem.relations.kept, problem.relations.left_out
    assert {(int(p), int(o)) for p, o in zip(problem.valid.parts, problem.valid.objects, strict=True)} == {tuple(kept)}
    assert set(problem.tests[LEFT_OUT].parts) == {left[0]}
    assert set(problem.tests[KEPT].parts) == {kept[0]}
    trials = trials_in(tmp_path)
    model = trials.model(problem, trials.choose(problem, small(SHARED_IW))[0])
    np.testing.assert_array_equal(model.part_of_, [kept])


def test_claims_are_judged_over_relations(tmp_path: Path) -> None:
    problem = planted()
    comparison = comparison_in(tmp_path)
    run = PartsRun(problem, comparison)
    n = problem.tests[KEPT].parts.size
    for method in (SHARED_IW, SHARED_I):
        rank = 1 if method.by == WORDS else 3
        sizes = {"Triplet": 2 * n, "Image annotation": 2 * n, "Part-object labelling": n, KNOWN: n}
        ranks = {f"{KEPT}|{task}": np.full(size, rank) for task, size in sizes.items()}
        run.choices[method.label] = Choice(method, method.by, {}, {}, [])
        run.judged[method.label] = Judged(run.choices[method.label], {}, ranks)
    parts_claims(run)
    found = {(claim.second, claim.of): claim for claim in comparison.claims}
    triplets = found["Shared (I)", "triplet (learned relations), p@1"]
    assert (triplets.relation, triplets.verdict, triplets.here) == (
        "at least 1.5 times as good as", "yes", ("100.00 %", "0.00 %"),
    )  # fmt: skip
    # Two relations: a random one of them is right half of the time, which nothing beats ten times.
    chance = found["chance among the related pairs", "part-object labelling (learned relations), p@1"]
    assert (chance.verdict, chance.here) == ("no", ("100.00 %", "50.00 %"))
    assert found["Shared (I)", "part-object labelling (learned relations), MAP"].here == ("1.0000", "0.3333")
    assert found["Shared (IO)", "among known relations (all relations), p@1"].verdict == "yes"


def test_the_place_of_a_left_out_part_is_among_those_that_were_not_learned() -> None:
    problem = planted(share=0.5)
    (left_part, left_whole), (kept_part, _) = problem.relations.left_out[0], problem.relations.kept[0]

    class Fixed:
        def __init__(self, scores: dict[int, float]) -> None:
            self.scores = np.array([[scores.get(tag, 0.0) for tag in range(4)]], np.float32)

        def relation_scores(self, wholes: list[int]) -> object:
            assert wholes == [left_whole]
            return self.scores

    for scores, place in (({left_part: 1}, 0.0), ({kept_part: 1}, 1.0), ({}, 0.5)):
        assert place_of_left_out(problem, Fixed(scores)) == place
    # A part that this whole was learned to have is no rival, so that there is none.
    known = replace(problem, relations=LeftOut(np.array([(kept_part, left_whole)]), problem.relations.left_out))
    assert np.isnan(place_of_left_out(known, Fixed({kept_part: 1})))


def test_only_crops_of_training_scenes_are_left_unlearned(tmp_path: Path) -> None:
    crops = [
        Crop(f"{scene:06d}_{crop:02d}.jpg", "car", split)
        for scene, split in enumerate(["train"] * 10 + ["valid", "test"])
        for crop in range(3)
    ]
    left = _left_out_crops(DrawnCrops(tmp_path, tuple(crops), ()), 0.2, 0)
    scenes = {name.partition("_")[0] for name in left}
    assert len(scenes) == 8
    assert len(left) == 24
    assert not scenes & {"000010", "000011"}
    assert _left_out_crops(DrawnCrops(tmp_path, tuple(crops), ()), 1.0, 0) == set()


def test_every_method_takes_its_settings() -> None:
    for method in METHODS:
        for one in (method, quick_method(method)):
            assert one.settings()
            for settings in one.settings():
                assert MODELS.create(one.model, **settings).get_params().items() >= settings.items()


def test_the_papers_words_are_above_its_images(quick: Outcome) -> None:
    for table in (paper.TABLE_3, paper.TABLE_4):
        for words, images in ((SHARED_IW.label, SHARED_I.label), (UNSHARED_IW.label, UNSHARED_I.label)):
            assert table[words]["Part-object labelling"][2] > table[images]["Part-object labelling"][2]
    for claim in quick.claims:
        if any(claim.paper):
            above, below = (float(figure.removesuffix(" %")) for figure in claim.paper)
            times = {"at least 1.5 times as good as": 1.5, "at least 10 times as good as": 10}.get(claim.relation, 1)
            assert above > times * below, claim.order
        else:
            assert claim.where.startswith("section 6.5")


def test_the_quick_comparison_has_every_table_beside_the_papers_rows(quick: Outcome) -> None:
    report, tables = quick.report.read_text(), tables_of(quick)
    assert quick.unfinished == []
    assert len(quick.claims) == 37
    assert all(claim.order in report for claim in quick.claims)
    third = tables["Table 3 on drawn-visterms: test quadruplets, learned relations"]
    theirs = [row for row in third if row[1] == "ImageNet-WordNet (paper)"]
    assert [row[0] for row in theirs] == list(paper.TABLE_3)
    assert theirs[0][2:] == ["–"] * 4 + ["11.48 %", "3.40 %", "0.1892", "–", "26.31 %", "9.90 %", "0.5545", "–"]
    rows = {row[0]: row[2:] for row in third if row[1] == "drawn-visterms"}
    assert list(rows) == [*(method.label for method in METHODS), "chance"]
    assert rows["Shared (I)"][:4] == rows["Shared (I)"][8:]
    assert rows["SVM"][4:8] == rows["Shared (IW)"][:4] == ["–"] * 4
    for caption in (
        "Table 3 on drawn-visterms: test quadruplets, left-out relations",
        "Table 4 on drawn-visterms: objects with their own parts, left-out relations",
    ):
        assert len(tables[caption]) == len(METHODS) + 1
    fifth = next(rows for caption, rows in tables.items() if caption.startswith("Table 5 on drawn-visterms"))
    assert ["Shared (IO)", "LHI (paper)", "1.43 %", "1.17 %", "0.0483", *["–"] * 9] in fifth
    again = tables["Left-out relations of drawn-visterms, by how many were left out: test quadruplets"]
    assert [row[:2] for row in again[:3]] == [["Shared (IW)", share] for share in ("0.1", "0.25", "0.5")]
    assert len(again) == 3 * sum(method.by == WORDS for method in METHODS)
    sixth = tables["Table 6 on drawn-visterms: nearest labels by f_L"]
    assert all(row[0] not in row[2].split(", ") for row in sixth)
    assert len(list((quick.report.parent / "figures").glob("figure-4-drawn-visterms-*.png"))) == 3


def test_a_relation_that_was_left_out_comes_after_the_learned_ones_with_an_offset(quick: Outcome) -> None:
    fifth = next(rows for caption, rows in tables_of(quick).items() if caption.startswith("Table 5 on drawn-visterms"))
    rows = {row[0]: row[2:] for row in fifth if row[1] == "drawn-visterms"}
    has = {row[0]: row[1] for row in tables_of(quick)["Data of drawn-visterms"]}
    n_learned = int(has["relations learned from"])
    for label in ("Shared (IO)", "UnShared (IO)"):
        learned, left_out = float(rows[label][7]), float(rows[label][11])
        assert learned <= n_learned < left_out


def test_a_second_run_has_nothing_left_to_do(quick: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    before = quick.report.read_text()
    monkeypatch.setattr("visterm_research.parts.problem.fit_rows", lambda *_: pytest.fail("fitted again"))
    again = run_study("parts", quick.report.parent, quick=True, n_jobs=1, minutes=0)
    assert again.report.read_text() == before
    assert again.unfinished == []


def test_without_time_nothing_is_drawn_or_fitted_and_all_is_listed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = run_study("parts", tmp_path, quick=True, n_jobs=1, minutes=0)
    assert outcome.unfinished == ["Drawn objects and parts, our visterms"]
    assert not (tmp_path / "data").exists()
    assert "## Not finished" in outcome.report.read_text()


def test_a_fit_that_there_is_no_time_for_is_noted_and_the_others_are_judged(tmp_path: Path) -> None:
    problem = planted()
    comparison = comparison_in(tmp_path)
    left = [1]

    def check() -> None:
        if not left:
            raise OutOfTimeError
        left.pop()

    comparison.trials.check_time = check  # type: ignore[method-assign]
    run = PartsRun(problem, comparison)
    run.run([small(SHARED_IW), replace(small(SHARED_I), fixed={**small(SHARED_I).fixed, "dim": 3})])
    assert list(run.judged) == ["Shared (IW)"]
    assert comparison.unfinished == ["Shared (I) on any"]


def test_photos_have_relations_of_both_sources_at_the_depth_that_ranks_validation_quadruplets_best(
    corel: Path, wordnet: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    comparison = comparison_in(tmp_path, small(SHARED_IW), small(UNSHARED_IW))
    runs = photo_runs(comparison, corel, QUICK_VISTERMS, WordNet(wordnet), pascal_folder([], corel))
    report = comparison.document.render()
    assert [run.name for run in runs] == ["corel5k-visterms-wordnet", "corel5k-visterms-pascal-part"]
    assert "first sense of their names, because this WordNet has 0 of the 2 synsets of the alignment" in report
    assert "without a match: unicycle" in report
    tables = {table["caption"]: table["rows"] for table in comparison.document.tables}
    rows = next(rows for caption, rows in tables.items() if caption.startswith("Relations of corel5k-visterms-wordnet"))
    assert [row[:2] for row in rows] == [["0", "3"], ["1", "5"], ["2", "6"]]
    best = min(rows, key=lambda row: float(row[4]))
    assert f"Chosen: {best[0]} steps" in report
    n_left_out = round(0.25 * int(best[1]))
    assert len(runs[0].problem.relations.left_out) == n_left_out
    assert any(caption.startswith("Table 3 on corel5k-visterms-wordnet") for caption in tables)


def test_photos_that_show_no_relation_are_left_out_with_the_reason(tmp_path: Path) -> None:
    comparison = comparison_in(tmp_path)
    data = planted().data  # every image has one of the tags a to d
    alone = replace(data, valid=Rows(data.valid.X[::4], data.valid.Y[::4]))  # those of a
    pairs = np.array([(2, 0)])
    assert related_photos(comparison, alone, Relations("any", "By hand.", {0: pairs})) is None
    assert "nothing to choose settings by. None of the 1 part-of relations has images" in comparison.document.render()
    assert related_photos(comparison, data, Relations("any", "By hand.", {0: pairs[:0]})) is None
    assert "There are none among the tags." in comparison.document.render()


def test_relations_are_inherited_by_wholes_of_either_source(corel: Path, wordnet: Path) -> None:
    vocabulary, nouns = Vocabulary(["bus", "car", "house", "wheel", "window", "door"]), WordNet(wordnet)

    def named(pairs: object) -> set[str]:
        return {f"{vocabulary.tags[part]} of {vocabulary.tags[whole]}" for part, whole in pairs}  # type: ignore[attr-defined]

    found = wordnet_relations(nouns, vocabulary).by_depth
    assert named(found[0]) == {"window of car", "window of house", "door of house"}
    assert named(found[1]) - named(found[0]) == {"window of bus", "wheel of car"}
    assert named(found[2]) - named(found[1]) == {"wheel of bus"}
    folder = pascal_folder([], corel)
    assert folder is not None
    pascal = pascal_relations(nouns, vocabulary, folder).by_depth
    assert named(pascal[0]) == {"wheel of car", "window of car"}
    assert named(pascal[1]) - named(pascal[0]) == {"wheel of bus", "window of bus"}


def test_an_alignment_that_this_wordnet_has_is_taken_by_its_numbers(wordnet: Path, tmp_path: Path) -> None:
    nouns = WordNet(wordnet)
    (tmp_path / "pascalPartOntology.csv").write_text("auto,hole\n")
    number = {word: nouns.senses(word)[0] for word in ("car", "door")}
    (tmp_path / "WordNet_Yago_alignment.tsv").write_text(
        f"PASCAL-Part_class\tWDsynset\nAuto\t{number['car']:08d}\nHole\t{number['door']:08d}\n"
    )
    vocabulary = Vocabulary(["car", "door"])
    found = pascal_relations(nouns, vocabulary, tmp_path)
    assert found.by_depth[0].tolist() == [[1, 0]]
    assert "matched by the synset of the alignment." in found.what


def test_lists_without_their_alignment_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pascalPartOntology.csv").write_text("car,wheel\n")
    with pytest.raises(DataError, match=r"no WordNet_Yago_alignment\.tsv"):
        pascal_folder([tmp_path], tmp_path)
    with pytest.raises(UserError, match="PASCAL-Part's ontology alone, which has no images"):
        run_study("parts", tmp_path / "out", data=[tmp_path])


def test_a_model_outside_the_comparison_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model 'ridge'; expected some of: objects_and_parts, svm"):
        run_study("parts", tmp_path, models=["ridge"])


def test_the_command_gives_one_claim_a_line_and_the_report_last(quick: Outcome) -> None:
    folder = str(quick.report.parent)
    command = ["reproduce", "parts", "--quick", "--jobs", "1", "--time-budget", "0", "--json", "-o", folder]
    done = run_command(command)
    assert done.returncode == 0, done.stderr
    *claims, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert claims == [claim.as_dict() for claim in quick.claims]
    assert last == {"report": str(quick.report), "unfinished": []}


def test_the_folder_of_the_papers_other_comparison_is_refused(quick: Outcome) -> None:
    with pytest.raises(StorageError, match="holds the comparison of another paper"):
        run_study("features", quick.report.parent, quick=True, n_jobs=1)


def test_lists_are_of_a_whole_and_its_parts(tmp_path):
    path = tmp_path / "lists.csv"
    path.write_text("car,wheel,license_plate,wheel\nboat\n\nbicycle,wheel,\n")
    assert read_part_lists(path) == [("wheel", "car"), ("license_plate", "car"), ("wheel", "bicycle")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("car,wheel\n,door\n", "line 2: the whole is empty"),
        ("boat\n", "has no relations; expected lines such as 'car,wheel,door'"),
    ],
)
def test_lists_that_lack_a_whole_or_any_part_are_refused(text, message, tmp_path):
    path = tmp_path / "lists.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_part_lists(path)


@pytest.mark.shared
def test_pascal_parts_ontology_is_read(shared):
    relations = read_part_lists(shared / "data" / "pascal_part" / "pascalPartOntology.csv")
    assert ("license_plate", "bus") in relations
    assert len(relations) == 100
    assert "boat" not in {relation.whole for relation in relations}
