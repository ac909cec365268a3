"""Queries from files: columns, relevance, names of images, and what is said of lines that cannot be read."""

from __future__ import annotations

import pytest

from visterm.core.errors import TagFileError
from visterm.data.tag_queries import QueryRow, judge_images, read_query_file


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.csv", 'query,image,relevance\nsea sky,1.jpg,2\n"snow, -tree",sub/2.jpg,0\n'),
        ("q.tsv", "Image\tQuery\tRelevance\n1.jpg\tsea sky\t2\n./sub/2.jpg\tsnow, -tree\t0\n"),
        ("clicks.csv", "text;file_name;clicks\nsea sky;1.jpg;2\nsnow, -tree;sub/2.jpg;0\n"),
        (
            "q.jsonl",
            '{"query": "sea sky", "image": "1.jpg", "relevance": 2}\n\n'
            '{"query": "snow, -tree", "image": "sub/2.jpg", "relevance": "0"}\n',
        ),
    ],
)
def test_a_line_is_what_was_typed_an_image_and_how_relevant_it_is(name, text, tmp_path):
    rows = read_query_file(write(tmp_path / name, text))
    assert rows == [QueryRow("sea sky", "1.jpg", 2.0), QueryRow("snow, -tree", "sub/2.jpg", 0.0)]


def test_an_image_is_the_one_of_just_that_name_and_else_the_one_without_spaces_and_backslashes(tmp_path):
    rows = read_query_file(write(tmp_path / "q.csv", "query,image\nsea, 1.jpg\nsea,sub\\2.jpg\nsky, 3.jpg \n"))
    judged = judge_images(rows, ["1.jpg", " 1.jpg", "sub/2.jpg", "3.jpg"])
    assert judged.relevant.toarray().tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]
    assert judged.unknown == []


def test_without_a_column_of_relevance_every_line_is_relevant(tmp_path):
    [row] = read_query_file(write(tmp_path / "q.csv", "query,image\nsea,1.jpg\n"))
    assert row.relevance == 1.0


def test_lines_are_gathered_by_query_and_the_largest_relevance_counts():
    rows = [
        QueryRow("sea", "b", 1.0),
        QueryRow("sky", "a", 0.0),
        QueryRow("sea", "a", 1.0),
        QueryRow("sea", "b", 3.0),
        QueryRow("snow", "elsewhere", 1.0),
    ]
    judged = judge_images(rows, ["a", "b", "c"])
    assert judged.texts == ["sea"]
    assert judged.relevant.toarray().tolist() == [[1.0, 3.0, 0.0]]
    assert judged.unknown == ["elsewhere"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,relevance\n1.jpg,1\n", r"no column named 'query' or 'text'; its columns are: image, relevance"),
        ("query,relevance\nsea,1\n", r"no column named 'image' or 'file_name'"),
        ("query,image\n", r"has no rows"),
        ("query,image,relevance\nsea,1.jpg,much\n", r"line 2: 'relevance' is 'much'; expected a number"),
        ("query,image,relevance\nsea,1.jpg,nan\n", r"line 2: 'relevance' is 'nan'"),
        ("query,image\nsea,1.jpg\n ,2.jpg\n", r"line 3: 'query' is ' '; expected text"),
        ('{"query": "sea", "image": 3}\n', r"line 1: 'image' is 3; expected text"),
        ('{"query": "sea", "image": "1.jpg"}\n[]\n', r'line 2: list; expected a JSON object such as \{"query"'),
    ],
)
def test_what_cannot_be_read_is_said_with_file_and_line(text, message, tmp_path):
    with pytest.raises(TagFileError, match=message):
        read_query_file(write(tmp_path / "queries", text))


def test_a_missing_query_file_is_called_so(tmp_path):
    with pytest.raises(TagFileError, match=r"no query file .*none.csv"):
        read_query_file(tmp_path / "none.csv")
