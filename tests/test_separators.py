"""What separates tags is decided for each cell, and people read in a line what was understood."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from command_line import visterm
from refusals import refused
from visterm import Tagger
from visterm.core.errors import TagFileError
from visterm.data.tag_files import find_tags
from visterm.data.tag_formats.record import Splitter, TagCounts, separator_pattern
from visterm.data.tag_formats.tables import read_table, stream_table


def tags_of(*cells: str, separator: str | None = None) -> list[list[str]]:
    splitter = Splitter(lambda: cells, separator)
    return [[tag.strip() for tag in splitter.split(cell) if tag.strip()] for cell in cells]


# -- a cell at a time --------------------------------------------------------------------------------------------------


def test_one_semicolon_does_not_turn_lists_with_commas_into_single_tags():
    assert tags_of("beach, sea", "sky, sun", "tree, grass", "coral; fish") == [
        ["beach", "sea"], ["sky", "sun"], ["tree", "grass"], ["coral", "fish"],
    ]  # fmt: skip


def test_a_tag_with_a_comma_stays_whole_in_a_file_of_semicolons():
    cells = [
        "Washington, D.C.; people",
        "sea; beach",
        "sky; sea",
        "people; sky",
        "Washington, D.C.",
        "Portland, Oregon",
    ]
    assert tags_of(*cells)[4:] == [["Washington, D.C."], ["Portland, Oregon"]]


def test_a_comma_list_among_semicolons_is_known_by_its_tags():
    cells = ["Rome, Italy; sea", "sea; beach", "sky; sea", "beach; sky", "sky, beach", "Rome, Italy", "-sky, sea"]
    assert tags_of(*cells)[4:] == [["sky", "beach"], ["Rome, Italy"], ["-sky", "sea"]]


def test_a_tag_between_semicolons_is_not_split_although_its_parts_are_tags():
    cells = ["Paris, France; sea", "Paris; sky", "France; sky", "Paris, France"]
    assert tags_of(*cells) == [["Paris, France", "sea"], ["Paris", "sky"], ["France", "sky"], ["Paris, France"]]


def test_files_with_one_separator_are_read_as_before():
    assert tags_of("sea, sky", "Paris, France") == [["sea", "sky"], ["Paris", "France"]]
    assert tags_of("sea; sky", "beach") == [["sea", "sky"], ["beach"]]
    assert tags_of("sea|sky", "海、空") == [["sea|sky"], ["海、空"]]


def test_line_ends_and_tabs_always_separate():
    assert tags_of("sea\tsky\nsun; snow", separator=";") == [["sea", "sky", "sun", "snow"]]


@pytest.mark.parametrize("share", [0.001, 1 / 3, 0.9])
def test_a_library_of_mixed_cells_is_read_as_it_was_meant(share):
    # 1,500 photos with 1 to 6 of 300 tags, 20 of which are places with a comma that are written with semicolons.
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(10, 310)
    names = [f"City{n}, Country{n % 4}" if n % 15 == 7 else f"tag{n}" for n in range(300)]
    meant = [
        [names[i] for i in rng.choice(300, rng.integers(1, 7), replace=False, p=weights / weights.sum())]
        for _ in range(1500)
    ]
    comma = [rng.random() < share and not any("," in tag for tag in tags) for tags in meant]
    comma[0] = False
    cells = [(", " if by_comma else "; ").join(tags) for by_comma, tags in zip(comma, meant, strict=True)]
    wrong = [read for read, tags in zip(tags_of(*cells), meant, strict=True) if read != tags]
    assert len(wrong) <= 3, wrong


@pytest.mark.parametrize("form", ["table", "stream", "json", "texts", "commas in quotes"])
def test_all_formats_decide_by_the_cell(tmp_path, form):
    cells = ["beach, sea", "sky, sun", "tree, grass", "coral; fish"]
    expected = [["beach", "sea"], ["sky", "sun"], ["tree", "grass"], ["coral", "fish"]]
    if form == "texts":
        for number, cell in enumerate(cells):
            (tmp_path / f"{number}.jpg").write_bytes(b"")
            (tmp_path / f"{number}.txt").write_text(cell + ("\nsnow; ice" if number < 3 else ""), encoding="utf-8")
        records = find_tags("auto", tmp_path).records
        expected = [[*tags, "snow", "ice"] for tags in expected[:3]] + expected[3:]
    elif form == "json":
        lines = [json.dumps({"image": f"{number}.jpg", "tags": cell}) for number, cell in enumerate(cells)]
        (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
        records = read_table(tmp_path / "t.jsonl")
    else:
        between = "\t" if form == "table" else ","
        rows = [f'{number}.jpg{between}"{cell}"' for number, cell in enumerate(cells)]
        path = tmp_path / ("t.tsv" if form == "table" else "t.csv")
        path.write_text("\n".join([f"image{between}tags", *rows]), encoding="utf-8")
        records = list(stream_table(path)) if form == "stream" else read_table(path)
    assert [row.tags for row in records] == expected


# -- the separator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("separator", "expected"),
    [
        ("::", ["a; b", "c, d:e"]),
        (";,", ["a", "b::c", "d:e"]),
        ("[;,:]", ["a", "b", "c", "d", "e"]),
        (r"\s*([;,]|::)\s*", ["a", "b", "c", "d:e"]),
        ("|", ["a; b::c, d:e"]),
    ],
)
def test_a_separator_may_be_a_text_several_characters_or_a_pattern(separator, expected):
    assert tags_of("a; b::c, d:e", separator=separator) == [expected]


@pytest.mark.parametrize(
    ("separator", "problem"),
    [("", "empty"), ("comma", "a word"), ("[z-a]", "not a valid pattern"), ("[;]*", "cut words"), (r"\w", "cut words")],
)
def test_a_separator_that_cannot_be_used_is_refused(separator, problem):
    with refused("separator", value=separator) as refusal:
        separator_pattern(separator)
    assert problem in refusal.value.problem
    assert separator_pattern("[;").split("a[;b") == ["a", "b"]


# -- what was understood -----------------------------------------------------------------------------------------------


def test_what_was_understood_is_counted():
    lists = [["sea", "Sea", "beach, sea"], ["sky", "beach"], ["sky", "Rome, Italy"], ["Milan, Italy"]]
    found = TagCounts.in_lists(lists)
    assert found == (6, 3, 4, 1, ("beach, sea",))
    assert (
        found.line() == "Read 6 tags; 3 contain a separator; 4 on one photo only; 1 looks like a list ('beach, sea')."
    )
    assert TagCounts.in_lists([["sea"], ["sea"]]).line() == "Read 1 tag; 0 on one photo only."


def test_kinds_and_places_are_no_lists():
    assert TagCounts.in_lists([["animal|dog", "animal|cat"], ["Rome, Italy", "Milan, Italy", "Italy"]]).n_lists == 0


@pytest.mark.parametrize("separator", ["|", "、", "；"])
def test_tags_that_are_mostly_lists_stop_with_advice(separator):
    cells = [f"a{separator}b", f"b{separator}c", f"c{separator}a"]
    found = TagCounts.in_lists([[cell] for cell in cells])
    with refused("separator", value=None, error=TagFileError) as refusal:
        found.check(None)
    assert f"separator = '{separator}'" in refusal.value.advice
    found.check("/")
    assert tags_of(*cells, separator=separator) == [["a", "b"], ["b", "c"], ["c", "a"]]


def test_lists_in_python_that_hold_lists_are_refused():
    with pytest.raises(TagFileError, match=r"In Python, pass a list for each image"):
        Tagger(encoder="ids", model="prior").fit(["1", "2"], [["farms;house"], ["sky;sun"]])


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_library):
    """A library whose tag file has one more row with a semicolon than it should, with a run of it; three others."""
    folder = tmp_path_factory.mktemp("separators")
    photos = folder / "photos"
    photos.mkdir()
    files = sorted((small_library.folder / "images").rglob("*.jpg"))[:12]
    for number, file in enumerate(files):
        shutil.copy(file, photos / f"{number}.jpg")
    for name in ("IMG_1.PDF", "2.pdf", "clip.doc"):
        (photos / name).write_bytes(b"")
    tags = ["beach, sea", "sky, sun", "tree, grass"] * 3 + ["coral; fish", "beach; Rome, Italy", "sun; beach"]
    rows = [f'{number}.jpg,"{cell}"' for number, cell in enumerate(tags)]
    (folder / "tags.csv").write_text("\n".join(["image,tags", *rows]), encoding="utf-8")
    code, out, err = visterm(f"fit photos --tags tags.csv -o run {FAST} --json", folder)
    assert code == 0, err
    return folder, json.loads(out), err


ENCODER = "--encoder visterms --encoder-set codebook=12 --encoder-set sample_blocks=500 --encoder-set max_side=32"
FAST = f"{ENCODER} --model ridge"
UNDERSTOOD = {
    "tags read": 9, "tags with a separator": 1, "tags used once": 3, "tags like lists": 0, "lists such as": [],
}  # fmt: skip
NOT_READ = "Not read as photos: 3 others (.pdf, .doc)."
COUNTS = {"raw": 0, "video": 0, "other": 3}


def test_fit_says_what_it_understood_and_what_it_does_not_read(place):
    _, facts, err = place
    assert facts == {**facts, **UNDERSTOOD, "not_read": COUNTS}
    assert "Read 9 tags; 1 contains a separator; 3 on one photo only." in err
    assert err.count(NOT_READ) == 1


def test_info_for_people_lists_nothing_where_there_is_nothing_to_list(place):
    code, out, err = visterm("info run", place[0])
    assert code == 0, err
    assert "tags that look like several in one: 0" in out
    assert "lists such as" not in out


@pytest.mark.parametrize(
    "command", ["index run photos -o catalogue --tags tags.csv", "tags run photos --tags tags.csv --suggest"]
)
def test_index_and_tags_say_so_too(place, command):
    code, out, err = visterm(f"{command} --json", place[0])
    assert code == 0, err
    assert "Read 9 tags; 1 contains a separator; 3 on one photo only." in err
    assert err.count(NOT_READ) == 1
    if command.startswith("index"):  # the lines of `tags` are suggestions and nothing else
        last = json.loads(out.splitlines()[-1])
        assert last == {**last, **UNDERSTOOD, "not_read": COUNTS}


@pytest.mark.parametrize("command", [f"encode photos -o features {ENCODER}", "annotate run photos"])
def test_encode_and_annotate_count_what_is_not_read(place, command):
    code, _, err = visterm(command, place[0])
    assert code == 0, err
    assert err.count(NOT_READ) == 1


def test_a_fit_on_lists_stops_with_advice(place):
    folder = place[0]
    rows = [f"{number}.jpg,{cell}" for number, cell in enumerate(["sea|sky", "sky|sun", "sun|sea", "sea"])]
    (folder / "bars.csv").write_text("\n".join(["image,tags", *rows]), encoding="utf-8")
    code, _, err = visterm(f"fit photos --tags bars.csv -o stopped {FAST}", folder)
    assert code == 2
    assert "3 of 4 tags look like lists, such as 'sea|sky', 'sky|sun', 'sun|sea'." in err
    assert "separator = '|'" in err
    (folder / "rules.toml").write_text("separator = '|'\n", encoding="utf-8")
    code, _, err = visterm(f"fit photos --tags bars.csv -o parted {FAST} --tag-rules rules.toml", folder)
    assert code == 0, err
    assert "Read 3 tags; 0 on one photo only." in err
