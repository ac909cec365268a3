"""Rows of a tag file meet their image files, and splits are chosen and drawn the same way every time."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refusals import refused
from visterm.core.errors import DataError, ShapeError, TagFileError, UnknownNameError
from visterm.data.corpus import Corpus


def library(folder: Path, names: list[str], rows: list[str], header: str = "image,tags") -> tuple[Path, Path]:
    """Write empty image files and a tag file; give the image folder and the tag file."""
    for name in names:
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    tags = folder / "tags.csv"
    tags.write_text("\n".join([header, *rows]), encoding="utf-8")
    return folder / "images", tags


def test_rows_meet_files_by_path_and_both_leftovers_are_listed(tmp_path):
    images, tags = library(
        tmp_path, ["a.jpg", "sub/b.jpg", "c.jpg"], ["sub/b.jpg,sea;-sky", "gone.jpg,sea", "a.jpg,snow"]
    )
    corpus = Corpus.read(images, tags)
    assert len(corpus) == 2
    assert corpus.images == [images / "sub" / "b.jpg", images / "a.jpg"]
    assert corpus.names == ["sub/b.jpg", "a.jpg"]
    assert corpus.tags == [["sea"], ["snow"]]
    assert corpus.negatives == [["sky"], []]
    assert corpus.splits == [None, None]
    assert corpus.missing == ["gone.jpg"]
    assert corpus.untagged == ["c.jpg"]
    assert corpus.remarks == [
        "Tags name 1 image (such as 'gone.jpg') not in the image folder; left out.",
        "Without tags: 1 of 3 photos (such as 'c.jpg'), not named by the tags.",
    ]


@pytest.mark.parametrize(
    ("file", "row"),
    [
        ("sub/deep/a.jpg", "a.jpg"),
        ("sub/deep/a.jpg", "deep/a.jpg"),
        ("a.jpg", "images/a.jpg"),
        ("sub/a.jpg", "photos/sub/a.jpg"),
        ("a.jpg", "x/../a.jpg"),
        ("été.jpg", unicodedata.normalize("NFD", "été.jpg")),
        (unicodedata.normalize("NFD", "été.jpg"), "été.jpg"),
    ],
)
def test_a_row_finds_the_one_file_whose_path_ends_alike(tmp_path, file, row):
    images, tags = library(tmp_path, [file, "other.jpg"], [f"{row},sea"])
    corpus = Corpus.read(images, tags)
    assert corpus.images == [images / file]
    assert corpus.names == [row]


def test_a_name_counts_as_it_is_written_and_then_without_its_spaces_and_backslashes(tmp_path):
    names = [" lead.jpg", "trail .jpg", "back\\slash.jpg", "back/slash.jpg", "plain.jpg", "sub/ deep.jpg"]
    rows = [" lead.jpg,a", "trail .jpg,b", "back\\slash.jpg,c", "back/slash.jpg,d", " plain.jpg ,e", " deep.jpg,f"]
    images, tags = library(tmp_path, names, [*rows, "photos\\plain.jpg,g"])
    corpus = Corpus.read(images, tags)
    tags_of = {path.relative_to(images).as_posix(): tags for path, tags in zip(corpus.images, corpus.tags, strict=True)}
    assert tags_of == {
        " lead.jpg": ["a"], "trail .jpg": ["b"], "back\\slash.jpg": ["c"], "back/slash.jpg": ["d"],
        "plain.jpg": ["e", "g"], "sub/ deep.jpg": ["f"],
    }  # fmt: skip
    assert corpus.missing == corpus.untagged == []


def test_a_table_in_a_sub_folder_names_its_photos_exactly_or_loosely(tmp_path):
    images, _ = library(tmp_path, ["sub/ a.jpg", "sub/b.jpg"], [])
    (images / "sub" / "metadata.csv").write_text("image,tags\n a.jpg,sea\n b.jpg ,sky\n")
    corpus = Corpus.read(images)
    assert dict(zip(corpus.names, corpus.tags, strict=True)) == {"sub/ a.jpg": ["sea"], "sub/b.jpg": ["sky"]}


def test_two_photos_of_one_name_in_composed_and_decomposed_letters_have_their_own_tags(tmp_path):
    composed, decomposed = "été.jpg", unicodedata.normalize("NFD", "été.jpg")
    images, tags = library(tmp_path, [composed, decomposed], [f"{composed},sea", f"photos/{decomposed},sky"])
    if len(list(images.iterdir())) < 2:
        pytest.skip("this file system takes both for one name")
    corpus = Corpus.read(images, tags)
    assert dict(zip(corpus.images, corpus.tags, strict=True)) == {
        images / composed: ["sea"], images / decomposed: ["sky"]
    }  # fmt: skip
    images, tags = library(tmp_path, [], [f"{decomposed},sky"])
    assert Corpus.read(images, tags).images == [images / decomposed]


@pytest.mark.parametrize("rows", [["a.jpg,sea;Sky;-sky"], ["a.jpg,sea;sky", "./a.jpg,-SKY"]])
def test_a_tag_that_a_photo_both_has_and_has_not_is_left_out_and_counted(tmp_path, rows):
    corpus = Corpus.read(*library(tmp_path, ["a.jpg", "b.jpg"], [*rows, "b.jpg,sky;-snow"]))
    assert (corpus.tags, corpus.negatives) == ([["sea"], ["sky"]], [[], ["snow"]])
    assert len(corpus.remarks) == 1
    assert "Left out: 1 tag that a photo both has and hasn't (such as '" in corpus.remarks[0]
    assert "of 'a.jpg')" in corpus.remarks[0]


def test_absolute_names_are_found_inside_the_folder(tmp_path):
    images, tags = library(tmp_path, ["s/a.jpg", "t/a.jpg"], [f"{tmp_path}/images/t/a.jpg,sea"])
    assert Corpus.read(images, tags).images == [images / "t" / "a.jpg"]


def test_a_file_of_the_same_name_in_another_folder_is_not_taken(tmp_path):
    images, tags = library(tmp_path, ["test/a.jpg", "train/b.jpg"], ["train/a.jpg,sea", "train/b.jpg,sky"])
    corpus = Corpus.read(images, tags)
    assert corpus.names == ["train/b.jpg"]
    assert corpus.missing == ["train/a.jpg"]


def test_a_name_that_fits_several_files_is_an_error(tmp_path):
    images, tags = library(tmp_path, ["s/a.jpg", "t/a.jpg"], ["a.jpg,sea"])
    with pytest.raises(TagFileError, match=r"'a\.jpg', which may be 2 images in .*: s/a\.jpg, t/a\.jpg"):
        Corpus.read(images, tags)


def test_rows_that_name_one_file_in_two_ways_are_joined(tmp_path):
    images, tags = library(tmp_path, ["s/a.jpg"], ["a.jpg,sea", "s/a.jpg,sky"])
    corpus = Corpus.read(images, tags)
    assert corpus.names == ["a.jpg"]
    assert corpus.tags == [["sea", "sky"]]


def test_nothing_that_fits_is_an_error_with_an_example_of_both_sides(tmp_path):
    images, tags = library(tmp_path, ["a.jpg"], ["1,sea", "2,sky"])
    with pytest.raises(
        TagFileError,
        match=r"The tags name 2 files \(such as '1'\), but none is in .* \(such as 'a\.jpg'\)\. Check the folder",
    ):
        Corpus.read(images, tags)


def test_a_missing_or_empty_folder_is_an_error(tmp_path):
    with pytest.raises(DataError, match="There is no folder"):
        Corpus.read(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"has no files\."):
        Corpus.read(tmp_path)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.jpg").touch()
    with pytest.raises(DataError, match="has no files besides those in hidden folders"):
        Corpus.read(tmp_path)


def test_auto_reads_a_folder_a_tag(tmp_path):
    images, _ = library(tmp_path, ["sea/a.jpg", "sky/a.jpg", "b.jpg"], [])
    corpus = Corpus.read(images)
    assert corpus.names == ["sea/a.jpg", "sky/a.jpg"]
    assert corpus.tags == [["sea"], ["sky"]]
    assert corpus.untagged == ["b.jpg"]
    assert corpus.remarks == [
        "Tags: one folder per tag (2 folders).",
        "Without tags: 1 of 3 photos (such as 'b.jpg'), in no tag's folder, so without a tag.",
    ]


def test_auto_says_which_table_it_reads(tmp_path):
    images, _ = library(tmp_path, ["a.jpg", "b.jpg"], [])
    (images / "metadata.csv").write_text("file_name,tags\na.jpg,sea\nb.jpg,sky\n")
    assert Corpus.read(images).remarks == ["Tags: metadata.csv."]
    (images / "metadata.jsonl").write_text('{"file_name": "a.jpg", "tags": ["snow"]}\n')
    assert Corpus.read(images).remarks[0] == "Tags: metadata.jsonl."


def test_names_that_differ_only_in_capitals_or_lack_the_ending_are_taken_and_counted(tmp_path):
    images, tags = library(
        tmp_path, ["öl bild.jpeg", "sub/B.JPG", "c.png", "D.jpg"], ["ÖL BILD.JPEG,sea", "b.jpg,sky", "c,snow", "d,ice"]
    )
    corpus = Corpus.read(images, tags)
    assert corpus.images == [images / name for name in ("öl bild.jpeg", "sub/B.JPG", "c.png", "D.jpg")]
    assert corpus.remarks == [
        "Images that differ in capitals or endings were taken for 4 names (such as 'ÖL BILD.JPEG' and 'öl bild.jpeg')."
    ]


def test_a_file_that_another_row_names_is_not_taken_for_a_name_in_other_capitals(tmp_path):
    images, tags = library(tmp_path, ["a.jpg"], ["A.jpg,sea", "a.jpg,sky"])
    corpus = Corpus.read(images, tags)
    assert corpus.tags == [["sky"]]
    assert corpus.missing == ["A.jpg"]


def test_another_ending_is_another_file(tmp_path):
    images, tags = library(tmp_path, ["a.png", "b.jpg"], ["a.jpg,sea", "b.jpg,sky"])
    assert Corpus.read(images, tags).missing == ["a.jpg"]


def test_a_loose_name_that_fits_several_files_is_an_error(tmp_path):
    images, tags = library(tmp_path, ["a.png", "a.jpg"], ["a,sea"])
    with pytest.raises(TagFileError, match=r"'a', which may be 2 images in .*: a\.jpg, a\.png"):
        Corpus.read(images, tags)


@pytest.mark.skipif(os.name != "posix", reason="file names are text on this system")
def test_tags_of_folders_that_are_not_utf8_can_be_written(tmp_path):
    folder = tmp_path / "images" / os.fsdecode(b"caf\xe9")
    try:
        folder.mkdir(parents=True)
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    (folder / "a.jpg").write_bytes(b"")
    corpus = Corpus.read(tmp_path / "images")
    assert corpus.tags == [["caf\ufffd"]]
    assert corpus.names == ["caf\udce9/a.jpg"]


def test_columns_are_passed_on(tmp_path):
    images, tags = library(tmp_path, ["a.jpg"], ["a.jpg,sea/sky"], header="photo,words")
    corpus = Corpus.read(images, tags, image_column="photo", tags_column="words", separator="/")
    assert corpus.tags == [["sea", "sky"]]


@pytest.fixture
def corpus() -> Corpus:
    names = [f"{i}.jpg" for i in range(10)]
    splits = ["train"] * 6 + ["valid", "valid", "test", None]
    return replace(Corpus.of([Path(name) for name in names], names, [["sea", "-sky"]] * 10), splits=splits)


def test_a_corpus_of_lists_knows_negatives(corpus):
    assert corpus.tags[0] == ["sea"]
    assert corpus.negatives[0] == ["sky"]


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train", [0, 1, 2, 3, 4, 5]),
        ("valid", [6, 7]),
        ("validation", [6, 7]),
        ("VAL", [6, 7]),
        ("test", [8]),
        ("all", list(range(10))),
    ],
)
def test_a_split_chooses_its_rows_in_order(corpus, split, expected):
    assert corpus.select(split).names == [f"{i}.jpg" for i in expected]


def test_an_unknown_split_is_an_error_that_lists_the_others(corpus):
    with refused("split", value="dev2", error=UnknownNameError) as refusal:
        corpus.select("dev2")
    assert refusal.value.expected == "'test' (1 image), 'train' (6 images), 'valid' (2 images), or 'all'"
    bare = corpus.subset([9])
    with refused("split", value="test", error=UnknownNameError) as refusal:
        bare.select("test")
    assert str(refusal.value).startswith("The tags have no column 'split'. Leave")


def test_a_subset_keeps_its_order(corpus):
    assert corpus.subset(np.array([3, 1])).names == ["3.jpg", "1.jpg"]


def test_lists_of_different_lengths_are_an_error():
    with pytest.raises(ShapeError, match="1 images, 1 names and tags of 2"):
        Corpus.of(["a.jpg"], ["a.jpg"], [["sea"], ["sky"]])
    with pytest.raises(DataError, match="the text 'sea'"):
        Corpus.of(["a.jpg"], ["a.jpg"], ["sea"])


@pytest.mark.shared
def test_corel_is_read_whole_with_its_standard_split(shared):
    folder = shared / "data" / "corel5k"
    corpus = Corpus.read(folder / "images", folder / "labels.tsv")
    assert len(corpus) == 4999
    assert len(corpus.select("test")) == 499
    assert corpus.missing == []
    assert corpus.tags[0] == ["city", "mountain", "sky", "sun"]
