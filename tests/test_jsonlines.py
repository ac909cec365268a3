"""JSON lines, tables and messages hold any file name that a system can give, and counts agree with their nouns."""

from __future__ import annotations

import io
import json
import os

import pytest
from rich.cells import cell_len

from visterm.cli.output import emit, say_skipped, show, table
from visterm.core.persist import read_json, read_skipped, write_json, write_skipped
from visterm.core.types import Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.core.wording import count_of, json_text, printable
from visterm.features.training_rows import unused_rows_remark

ODD = os.fsdecode(b"caf\xe9/\xff\n.jpg") if os.name == "posix" else "caf\udce9/\udcff\n.jpg"


def test_a_list_of_skipped_images_is_valid_utf8_and_gives_the_same_names_again(tmp_path):
    skipped = [Skipped(ODD, "empty: 0 bytes"), Skipped("été 雪.jpg", "damaged: x")]
    write_skipped(tmp_path / "skipped.jsonl", skipped)
    lines = (tmp_path / "skipped.jsonl").read_bytes().decode("utf-8").splitlines()
    assert len(lines) == 2
    assert "été 雪" in lines[1]
    assert [json.loads(line)["image"] for line in lines] == [ODD, "été 雪.jpg"]
    assert read_skipped(tmp_path / "skipped.jsonl") == skipped


def test_json_of_runs_holds_odd_names(tmp_path):
    write_json(tmp_path / "facts.json", {"image": ODD})
    assert read_json(tmp_path / "facts.json") == {"image": ODD}
    assert (tmp_path / "facts.json").read_text(encoding="utf-8").isascii()


def test_tags_are_text_that_can_be_written(tmp_path):
    vocabulary = Vocabulary.from_lists([["caf\udce9"]])
    assert vocabulary.tags == ["caf\ufffd"]
    assert vocabulary.get("caf\udce9") == 0
    assert json_text(vocabulary.to_json()).encode()


def test_results_are_one_line_each_whatever_the_names_hold(capfdbinary):
    emit({"image": ODD})
    show(f"{ODD}: sea")
    first, second = capfdbinary.readouterr().out.splitlines()
    assert json.loads(first.decode("utf-8")) == {"image": ODD}
    assert second.decode("utf-8") == "caf\ufffd/\ufffd\ufffd.jpg: sea"


def test_results_can_be_printed_where_standard_output_is_not_utf8(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="latin-1"))
    emit({"image": "雪é"})
    show("雪é")
    first, second = written.getvalue().splitlines()
    assert json.loads(first) == {"image": "雪é"}
    assert second == b"?\xe9"


@pytest.mark.parametrize("text", ["été 雪", "a\u00a0b", "👩\u200d🌾"])
def test_letters_of_any_script_are_shown_as_they_are(text):
    assert printable(text) == text


def test_the_summary_counts_the_categories_of_reasons(capsys, tmp_path):
    skipped = [Skipped(f"{i}.jpg", f"truncated: {i} bytes not processed") for i in range(7)]
    skipped += [Skipped("a", "empty: 0 bytes"), Skipped("b", "empty: 0 bytes"), Skipped("c", "not an image: x")]
    assert say_skipped(skipped, tmp_path) == 3
    assert "Skipped 10 photos (7 truncated, 2 empty, 1 not an image)" in capsys.readouterr().err


def test_counts_agree_with_their_nouns():
    assert [count_of(n, "tag") for n in (0, 1, 2, 2000)] == ["0 tags", "1 tag", "2 tags", "2,000 tags"]


@pytest.mark.parametrize(
    ("splits", "told"),
    [
        ([None, None], []),
        (["train", "valid"], []),
        (["train", "test"], ["Not learned from: 1 row outside the splits 'train' and 'valid'."]),
        (["train", "test", "test", None, "dev2"], ["Not learned from: 4 rows outside the splits 'train' and 'valid'."]),
    ],
)
def test_rows_of_other_splits_are_reported(splits, told):
    assert unused_rows_remark(splits) == told


def test_a_very_long_tag_widens_no_line_but_its_own(capsys):
    table([["sky", "1"], ["y" * 200, "2"]], ["tag", "images"])
    assert capsys.readouterr().out.splitlines() == ["tag  images", "sky       1", "y" * 200 + "       2"]


@pytest.mark.parametrize("tags", [["猫の写真", "dog"], ["한국어", "砂 beach", "é"], ["🐱", "cat 🌊🌊", "x"]])
def test_numbers_line_up_on_a_terminal_whatever_script_the_tags_are_in(capsys, tags):
    table([[tag, f"{10**i}"] for i, tag in enumerate(tags)], ["tag", "images"])
    lines = capsys.readouterr().out.splitlines()
    assert len({cell_len(line) for line in lines}) == 1


def test_a_table_has_the_same_columns_where_letters_are_replaced_that_cannot_be_written(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    table([["猫\n", "1"], ["dog", "2"]], ["tag", "images"])
    assert written.getvalue().splitlines() == [b"tag  images", b"??        1", b"dog       2"]


def test_chances_line_up_to_the_right_whether_they_are_rounded_or_not(capsys):
    table([["41%", "dog"], ["<1%", "cat"], [">99%", "fox"]], ["chance", "tag"])
    assert capsys.readouterr().out.splitlines()[1:] == ["   41%  dog", "   <1%  cat", "  >99%  fox"]
