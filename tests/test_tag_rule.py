"""What a tag may be: one rule wherever tags come in, and tags that are safe to print and to open in a spreadsheet."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visterm.cli.output import emit, show
from visterm.core.errors import TagFileError
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_fault
from visterm.core.wording import printable
from visterm.data.corpus import Corpus
from visterm.data.relations import PairFormat, read_pairs, write_pairs
from visterm.data.tag_files import find_tags
from visterm.data.tag_formats.tables import read_table, stream_table
from visterm.data.text_files import guarded, unguarded

WITH_JOINERS = ["👩‍💻", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️‍🔥", "می‌خواهم", "क्‍ष", "ශ්‍රී", "1️⃣"]
"""A woman at her computer, the flag of England, a heart on fire, Persian, Hindi, Sinhala, a keycap."""

BAD = {
    "sea\0side": "'sea\\x00side' has the control character U+0000",
    "\x1b[31mred": "has the control character U+001B",
    "\u200b": "'\\u200b' has no letter that can be seen",
    "\u2060\ufeff\u00ad \u3164": "has no letter that can be seen",
    "sea\u202egpj.side": "has the hidden letter U+202E, which turns the direction of writing",
    "\u2067sea\u2069": "has the hidden letter U+2067",
    "sea\u200f": "has the hidden letter U+200F",
    "x" * 201: "has 201 letters; a tag has at most 200",
}


@pytest.mark.parametrize(
    ("tag", "message"),
    BAD.items(),
    ids=["nul", "escape", "zero-width", "fillers", "override", "isolate", "mark", "long"],
)
@pytest.mark.parametrize("name", ["tags.csv", "tags.jsonl", "1.txt"])
def test_a_tag_that_cannot_be_one_is_named_with_its_file_and_line(tag, message, name, tmp_path):
    (tmp_path / "1.jpg").touch()
    lines = {
        "tags.csv": ["file_name,tags", "1.jpg,sea", f"2.jpg,sky;{tag}"],
        "tags.jsonl": [json.dumps({"file_name": "1.jpg", "tags": tags}) for tags in (["sea"], ["sky"], [tag])],
        "1.txt": ["sea", "sky", tag],
    }
    path = tmp_path / name
    path.write_text("\n".join(lines[name]) + "\n", encoding="utf-8")
    readers = {"1.txt": [lambda: find_tags("auto", tmp_path).records]}
    for read in readers.get(name, [lambda: read_table(path), lambda: list(stream_table(path))]):
        with pytest.raises(TagFileError) as refused:
            read()
        assert f"{path}, line 3: the tag " in str(refused.value)
        assert message in str(refused.value)


def test_a_folder_whose_name_cannot_be_a_tag_is_named(tmp_path):
    (tmp_path / "re\x1bd").mkdir()
    (tmp_path / "re\x1bd" / "1.jpg").touch()
    with pytest.raises(TagFileError, match=r"1\.jpg: the tag 're\\x1bd' has the control character U\+001B"):
        find_tags("auto", tmp_path)


@pytest.mark.parametrize("tag", [*WITH_JOINERS, "sea side", "ก\u200bข", "海", "🙂", "=1+1", "a\u200db"])
def test_words_and_emoji_of_all_scripts_are_tags(tag):
    assert tag_fault(clean_tag(tag)) is None


def test_a_minus_means_not_in_tag_files_and_so_no_tag_begins_with_it(tmp_path):
    assert "means 'not'" in tag_fault("-beach")
    (tmp_path / "tags.csv").write_text("file_name,tags\n1.jpg,sea;-beach;- sky;-\n", encoding="utf-8")
    (row,) = read_table(tmp_path / "tags.csv")
    assert (row.tags, row.negatives) == (["sea"], ["beach", "sky"])
    corpus = Corpus.of(["1.jpg"], ["1.jpg"], [["sea", "-beach"]])
    assert (corpus.tags, corpus.negatives) == ([["sea"]], [["beach"]])


def test_a_run_of_an_earlier_version_finds_a_tag_that_begins_with_a_minus_in_quotes():
    known = Vocabulary(["-beach", "sea"]).query('"-beach" -sea')
    assert (known.known, known.weights.toarray().tolist()) == (["-beach", "sea"], [[1, -1]])


@pytest.mark.parametrize("tag", WITH_JOINERS)
def test_joiners_are_printed_where_they_join(tag):
    assert printable(f"{tag}, {tag}: 0.5") == f"{tag}, {tag}: 0.5"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sea\u202egpj.exe", "sea�gpj.exe"),
        ("\u2067sea\u2069", "�sea�"),
        ("se\u200ba", "se�a"),
        ("se\u200da", "se�a"),
        ("\u0915\u200d\u200d", "\u0915\u200d�"),
        ("\ufeffsea\u2060", "�sea�"),
        ("a\u3164b", "a�b"),
        ("a\U000e0041b", "a�b"),
        ("a\x1b[31m\x9bb\n", "a�[31m�b�"),
        ("a\udcffb", "a�b"),
    ],
)
def test_what_turns_or_hides_letters_is_made_visible_where_it_is_printed(text, shown, capsys):
    show(text)
    assert capsys.readouterr().out == f"{shown}\n"


def test_json_for_programs_has_the_same_tags_with_nothing_hidden(capsys):
    tags = ["sea\u202ex", "a\U000e0041b", "a\x9bb", *WITH_JOINERS]
    emit({"tags": tags})
    line = capsys.readouterr().out
    assert json.loads(line)["tags"] == tags
    assert r"sea\u202ex" in line
    assert all(tag in line for tag in WITH_JOINERS)


@given(st.text("'=+-@＝＋－＠\t\ra;", max_size=5))
@settings(max_examples=200, deadline=None)
def test_guarded_cells_are_computed_by_no_spreadsheet_and_read_as_they_were(cell):
    assert unguarded(guarded(cell)) == cell
    assert not guarded(cell).startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r"))


def test_a_tag_table_with_guarded_cells_is_read_as_it_was(tmp_path):
    rows = [("-1.jpg", "=cmd|' /C calc'!A0;-sky"), ("2.jpg", "'=quoted;sea"), ("3.jpg", "'sea'")]
    with (tmp_path / "tags.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("file_name", "tags"), *(map(guarded, row) for row in rows)])
    found = read_table(tmp_path / "tags.csv")
    assert [row.image for row in found] == [name for name, _ in rows]
    assert [row.tags for row in found] == [["=cmd|' /C calc'!A0"], ["'=quoted", "sea"], ["'sea'"]]
    assert found[0].negatives == ["sky"]


def test_suggested_pairs_are_written_so_that_no_spreadsheet_computes_them(tmp_path):
    form = PairFormat("part-of file", ("part", "whole"), "a,b")
    write_pairs(tmp_path / "a.csv", form.columns, [("=1+1", "@sum"), ("sea", "seaside")])
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()[1] == "'=1+1,'@sum"
    assert [pair[:2] for pair in read_pairs(tmp_path / "a.csv", form)] == [("=1+1", "@sum"), ("sea", "seaside")]
