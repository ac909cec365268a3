"""Part-of and is-a relations on the command line: fit --tag-rules, search --expand, tags --parts, annotate --pair."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image

from command_line import visterm
from refusals import refused
from visterm import Catalogue, Tagger
from visterm.core.errors import UserError
from visterm.data.relations import IS_A_FILE, PART_OF_FILE, read_related
from visterm.learning.relations import WordRelations
from visterm.library.search.result import RelatedTag
from visterm.tagging.part_relations import label_pair

pytestmark = pytest.mark.usefixtures("plugin")

COLOURS = {
    "car": (210, 40, 40),
    "bus": (40, 60, 210),
    "wheel": (30, 30, 30),
    "window": (150, 210, 250),
    "tree": (30, 130, 40),
    "leaf": (150, 220, 60),
    "bird": (240, 160, 30),
    "sky": (90, 170, 170),
}
"""Things as patches of colour: what an image shows is plain, so that tests are about relations."""

EACH = 12
"""Images of each thing."""

READ = "Read 8 tags; 0 on one photo only."
"""What fit says when it has read the tags, which is before it refuses relations between other words."""

PART_OF = "part,whole\nwheel,car\nwheel,bus\nwindow,car\nleaf,tree\nbeak,owl\n"
IS_A = "child,parent\ncar,vehicle\nbus,vehicle\ntree,plant\nbird,animal\n"
VECTORS = {
    "bus": (1,),
    "window": (0.5,),
    "car": (0, 1),
    "wheel": (0.2, 0.3),
    "tree": (0, 0, 1),
    "leaf": (0, 0, -0.1),
    "bird": (0, 0, 0, 1),
    "sky": (0, 0, 0, 0.25),
}
"""Vectors of tags that are put into a run, so that what it believes of pairs (their products) is known."""


def refusal(line, cwd):
    """Return the message with which a command is refused."""
    code, out, err = visterm(line, cwd)
    assert (code, out) == (2, "")
    message = "visterm: ".join(["", *err.split("visterm: ")[1:]])  # without the lines on what was read
    assert message.startswith("visterm: ")
    return message


def answers(line, cwd):
    """Return the JSON lines of a command that goes well."""
    code, out, err = visterm(line, cwd)
    assert code == 0, err
    return [json.loads(text) for text in out.splitlines()]


def fit(out, *more, model="objects_and_parts"):
    """Return the line that fits a model on the photos."""
    settings = ("--set dim=8", "--set epochs=40", "--set learning_rate=0.02") if model == "objects_and_parts" else ()
    fast = "--encoder-set codebook=60 --encoder-set sample_blocks=4000"
    return " ".join(["fit images --tags tags.csv -o", str(out), "--model", model, fast, *settings, *more])


def rules(folder, name="rules", **given):
    """Write a file of tag rules, and return the option that takes it."""
    (folder / f"{name}.toml").write_text("".join(f"{rule} = '{value}'\n" for rule, value in given.items()))
    return f"--tag-rules {folder / name}.toml"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with pictures of eight things, relations between them, two runs and their catalogues."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "images").mkdir()
    rng = np.random.default_rng(0)
    with (folder / "tags.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "tags"])
        for tag, colour in COLOURS.items():
            for i in range(EACH):
                pixels = np.clip(np.array(colour) + rng.normal(0, 25, (32, 32, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / "images" / f"{tag}{i:02}.png")
                table.writerow([f"{tag}{i:02}.png", tag])
    (folder / "part_of.csv").write_text(PART_OF, encoding="utf-8")
    (folder / "isa.csv").write_text(IS_A, encoding="utf-8")
    (folder / "parts_of_others.csv").write_text("part,whole\nbeak,owl\nroof,house\n", encoding="utf-8")
    for model in ("objects_and_parts", "ridge"):
        code, _, err = visterm(fit(model, rules(folder, part_of="part_of.csv", isa="isa.csv"), model=model), folder)
        assert code == 0, err
        (folder / f"{model}.err").write_text(err, encoding="utf-8")
        assert visterm(f"index {model} images -o {model}_catalogue", folder)[0] == 0
    assert visterm(fit("plain", model="ridge"), folder)[0] == 0
    assert visterm("index plain images -o plain_catalogue", folder)[0] == 0
    planted = Tagger.load(folder / "objects_and_parts")
    planted.model.tag_rows_ = np.zeros_like(planted.model.tag_rows_)
    for tag, row in VECTORS.items():
        planted.model.tag_rows_[planted.vocabulary.index(tag), : len(row)] = row
    planted.save(folder / "planted")
    Catalogue(planted).add(folder / "images").save(folder / "planted_catalogue")
    return folder


def shown_things(group):
    """Return what the images of a group show, by their names."""
    return {image["image"].rsplit("/", 1)[-1][:-6] for image in group["images"]}


# -- fit ---------------------------------------------------------------------------------------------------------------


def test_fit_says_how_many_relations_there_are_and_who_learns_from_them(place):
    # "beak of owl" is between no tags; car and bus are siblings, tree and bird have parents of their own.
    said = (
        "Relations: 4 part-of relations between 6 of 8 tags; 2 words not among the tags (such as 'beak'); "
        "2 tags with siblings."
    )
    learned, kept = ((place / f"{model}.err").read_text() for model in ("objects_and_parts", "ridge"))
    assert said in learned
    assert said in kept
    assert "'ridge' learns nothing from part-of relations; they are kept for searches" in kept
    assert "learns nothing" not in learned


def test_a_model_that_adds_suggested_relations_knows_the_tags_of_the_same_kind(place, tmp_path):
    relations = WordRelations(
        read_related(place / "part_of.csv", PART_OF_FILE), read_related(place / "isa.csv", IS_A_FILE)
    )
    settings = {"listed": 2.0, "dim": 4, "epochs": 2}
    images, tags = place / "images", place / "tags.csv"
    tagger = Tagger(model="objects_and_parts", model_params=settings, encoder="mean_colour").fit(
        images, tags=tags, relations=relations
    )
    car, bus, tree = map(tagger.vocabulary.index, ("car", "bus", "tree"))
    assert tagger.model.siblings_ == [sorted([car, bus])]
    assert tagger.model.siblings is None, "a fit changes no setting"
    tagger.save(tmp_path / "run")
    again = Tagger.load(tmp_path / "run").model
    np.testing.assert_array_equal(again.pair_scores(), tagger.model.pair_scores())
    plain = again.set_params(listed=0.0).pair_scores()
    assert (tagger.model.pair_scores() - plain)[bus].max() == pytest.approx(2)
    assert (tagger.model.pair_scores() - plain)[:, tree].max() == 0


def test_a_run_and_a_catalogue_keep_the_relations_and_the_model_its_pairs(place):
    [kept] = (place / "objects_and_parts_catalogue" / "runs").iterdir()
    for folder in (place / "objects_and_parts", kept, place / "ridge"):
        assert (folder / "part_of.csv").read_text() == PART_OF
        assert (folder / "isa.csv").read_text() == IS_A
    tagger = Tagger.load(place / "objects_and_parts")
    assert tagger.relations == WordRelations(read_related(place / "part_of.csv", PART_OF_FILE), tagger.relations.is_a)
    tags = tagger.vocabulary.index
    pairs = sorted((tags(part), tags(whole)) for part, whole in tagger.relations.part_of if part != "beak")
    assert tagger.model.part_of_.tolist() == [list(pair) for pair in pairs]
    assert tagger.model.part_of is None, "a fit changes no setting"


def test_a_model_of_parts_without_relations_is_reported(place, tmp_path):
    code, _, err = visterm(fit(tmp_path / "run"), place)
    assert code == 0, err
    assert "'objects_and_parts' has no relations (the tag rule part_of)" in err


PART = {"part_of": "part_of.csv"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"part_of": "nothing.csv"}, "nothing.csv of relations (the tag rule part_of)"),
        ({"isa": "nothing.csv"}, "nothing.csv of relations (the tag rule isa)"),
        ({"part_of": "parts_of_others.csv"}, "parts_of_others.csv: no line has two known tags"),
        ({"part_of": "tags.csv"}, "tags.csv has the columns image, tags; the part-of file needs part,whole"),
        (
            {"isa": "part_of.csv", "part_of": "isa.csv"},
            "isa.csv has the columns child, parent; the part-of file needs part,whole",
        ),
        (PART | {"isa": "part_of.csv"}, "part_of.csv has the columns part, whole; the is-a file needs child,parent"),
        ({"part_of": "wordnet"}, "`visterm wordnet` of visterm-research writes one"),
        (PART | {"tag_synsets": "senses.csv"}, "Unknown rule 'tag_synsets'"),
    ],
)
def test_relations_that_cannot_be_used_are_refused_before_anything_is_written(given, message, place, tmp_path):
    assert message in refusal(fit(tmp_path / "run", rules(place, "wrong", **given)), place)
    assert not (tmp_path / "run").exists()


def test_relations_are_given_once(place, tmp_path):
    line = fit(tmp_path / "run", rules(place, "again", **PART), "--set part_of=((0,1),)")
    assert "given twice" in refusal(line, place)


def test_a_second_fit_forgets_the_relations_of_the_first(place):
    tagger = Tagger.load(place / "objects_and_parts")
    tagger.fit(place / "images", place / "tags.csv", valid=0, calibrate=False)
    assert tagger.relations == WordRelations()
    assert tagger.model.part_of is None
    assert len(tagger.model.part_of_) == 0


# -- search --expand ---------------------------------------------------------------------------------------------------


def test_a_search_is_expanded_by_known_parts_where_the_model_has_no_beliefs(place):
    found = answers("search ridge_catalogue car -k 3 --expand parts --json", place)
    hits, groups = found[:3], found[3:]
    assert all(set(hit) == {"image", "score", "confidence", "id", "path"} for hit in hits)
    assert [(group["group"], group["why"]) for group in groups] == [
        ("wheel", "part of car (known)"),
        ("window", "part of car (known)"),
    ]
    assert [len(group["images"]) for group in groups] == [3, 3]
    assert [shown_things(group) for group in groups] == [{"wheel"}, {"window"}]
    assert [group["score"] for group in groups] == [None, None]


def test_a_search_is_expanded_by_what_the_model_believes_and_says_which_is_known(place):
    groups = answers("search planted_catalogue bus -k 2 --expand parts --json", place)[2:]
    assert [(group["group"], group["known"], group["why"]) for group in groups] == [
        ("wheel", True, "part of bus (known)"),
        ("window", False, "part of bus (the model thinks so, 0.50)"),
    ]
    assert [group["score"] for group in groups] == pytest.approx([0.2, 0.5])
    # What is known is shown first, though the model doubts it, and what is of two words once, for the likelier one.
    groups = answers("search planted_catalogue 'tree bus car' -k 2 --expand parts --json", place)[2:]
    assert [(group["group"], group["of"]) for group in groups] == [
        ("wheel", "car"),
        ("window", "car"),
        ("leaf", "tree"),
    ]
    groups = answers("search planted_catalogue 'car -bus' -k 1 --expand parts --json", place)[1:]
    assert groups[0]["why"] == "part of car (known)"
    # A wheel is part of cars and a whole of nothing, though the model scores both ways alike.
    assert len(answers("search planted_catalogue wheel -k 1 --expand parts --json", place)) == 1


def test_siblings_are_what_has_the_same_parent_and_both_kinds_may_be_requested(place):
    code, out, err = visterm("search ridge_catalogue car -k 1 --expand siblings --expand parts", place)
    assert code == 0, err
    assert "%  car" in out.splitlines()[0]  # of the search itself; photos of related tags are under their tag
    text = [line for line in out.splitlines()[1:] if not line.startswith(" ")]
    assert text[:4] == ["", "bus: like car a kind of vehicle", "", "wheel: part of car (known)"]


def test_the_number_by_which_wordnet_tells_parents_apart_is_not_shown():
    sibling = RelatedTag("lion", "tiger", "siblings", known=True, parent="big cat [02127808]")
    assert sibling.why == "like tiger a kind of big cat"


def test_words_without_relations_have_no_groups(place):
    code, out, err = visterm("search ridge_catalogue sky -k 2 --expand parts --expand siblings", place)
    assert code == 0
    assert len(out.splitlines()) == 2
    assert "No parts of these words are known" in err
    assert "No siblings of these words are known" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("search plain_catalogue car --expand parts", "knows no part-of relations. Fit a run with a file of tag rules"),
        ("search plain_catalogue car --expand siblings", "knows no is-a relations. Fit a run with a file of tag rules"),
        ("search ridge_catalogue car --expand wholes", "'wholes'; expected one of: parts, siblings"),
        ("search ridge_catalogue -car --expand parts", "no word to expand"),
        ("tags ridge --parts predicted", "'ridge' does not learn which tags are parts of which"),
        ("tags ridge --parts some", "--parts is 'some'; expected predicted or known"),
        ("tags plain --parts known", "knows no part-of relations"),
        ("annotate ridge images/car00.png images/wheel00.png --pair", "with the tag rule part_of: objects_and_parts"),
        ("annotate objects_and_parts images/car00.png nowhere.png --pair", "nowhere.png"),
        ("annotate objects_and_parts images/car00.png --pair", "--pair takes two pictures"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_what_to_do(line, message, place):
    assert message in refusal(line, place)


# -- relations and pair ------------------------------------------------------------------------------------------------


def test_a_run_tells_the_relations_that_it_found_and_was_not_told(place):
    found = answers("tags planted --parts predicted -k 0 --json", place)
    # Of bird and sky nothing is known, so that the first is the whole; wheels are no wholes and have no windows.
    assert [(item["part"], item["whole"]) for item in found] == [("window", "bus"), ("sky", "bird")]
    assert [item["score"] for item in found] == pytest.approx([0.5, 0.25])
    assert answers("tags planted --parts predicted -k 1 --json", place) == found[:1]
    code, out, _ = visterm("tags planted --parts predicted -k 1", place)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [["part", "whole", "score"], ["window", "bus", "0.500"]]


def test_relations_that_are_given_are_known_too_and_a_list_can_be_written_and_given(place, tmp_path):
    found = answers("tags planted --parts predicted -k 0 --json", place)
    code, _, err = visterm(f"tags planted --parts predicted -k 1 -o {tmp_path / 'found.csv'}", place)
    assert code == 0
    assert "1 relation written to" in err
    assert read_related(tmp_path / "found.csv", PART_OF_FILE) == [(item["part"], item["whole"]) for item in found[:1]]
    rest = answers(f"tags planted --parts predicted -k 0 --json {rules(tmp_path, part_of='found.csv')}", place)
    assert rest == found[1:]


def test_known_relations_are_shown_with_what_the_model_makes_of_them(place):
    known = answers("tags planted --parts known --json", place)
    assert [(item["part"], item["whole"]) for item in known] == [
        ("wheel", "car"), ("wheel", "bus"), ("window", "car"), ("leaf", "tree"),
    ]  # fmt: skip
    assert [item["score"] for item in known] == pytest.approx([0.3, 0.2, 0, -0.1])
    assert answers("tags planted --parts known -k 1 --json", place) == known[:1]
    unscored = answers("tags ridge --parts known --json", place)
    assert [item["score"] for item in unscored] == [None] * 4
    code, out, _ = visterm("tags ridge --parts known", place)
    assert code == 0
    assert out.splitlines()[0].split() == ["part", "whole", "score"]
    assert len(out.splitlines()) == 5


PICTURES = ("car03.png", "wheel05.png")


def test_pictures_of_an_object_and_of_its_part_are_tagged_together(place):
    line = "annotate objects_and_parts images/car03.png images/wheel05.png --pair"
    found = answers(f"{line} -k 3 --json", place)
    assert (found[0]["object"], found[0]["part"]) == ("car", "wheel")
    assert [item["score"] for item in found] == sorted((item["score"] for item in found), reverse=True)
    assert len(found) == 3
    run, pictures = Tagger.load(place / "objects_and_parts"), [str(place / "images" / name) for name in PICTURES]
    known = label_pair(run, *pictures, 0, object_tag="bus")
    assert {item.object for item in known} == {"bus"}
    # Nothing is part of itself, and cars and trees are wholes; of sky and birds no relation is known.
    assert {item.part for item in known} == {"wheel", "window", "leaf", "sky", "bird"}
    assert known[0].part == "wheel"
    [best] = label_pair(run, *pictures, 1, part_tag="wheel")
    assert (best.object, best.part) == ("car", "wheel")
    with pytest.raises(UserError, match="Did you mean 'wheel'"):
        label_pair(run, *pictures, part_tag="whel")
    with refused("object_tag", value="car"):
        label_pair(run, *pictures, part_tag="wheel", object_tag="car")
    code, out, _ = visterm(f"{line} -k 1", place)
    assert code == 0
    assert out.splitlines()[1].split()[:2] == ["car", "wheel"]


def test_relations_of_another_type_are_refused_with_what_is_wanted(place):
    with refused("relations", value=[("wheel", "car")]):
        Tagger(model="ridge", encoder_params={"codebook": 16}).fit(
            place / "images", place / "tags.csv", relations=[("wheel", "car")]
        )
