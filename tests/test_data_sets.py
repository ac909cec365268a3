"""Data sets with features and tags in one file, and COCO's tags: read, learned from and measured in one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import visterm
from command_line import run_command
from visterm.core.errors import DataError, ShapeError, TagFileError
from visterm.data import read_mulan, read_table
from visterm.data.data_sets import read_data_set
from visterm.encoders import DataSetRows

LABELS = (
    '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="sea"/><label name="red car"></label></labels>'
)
HEAD = """@relation photos

@attribute width numeric
@attribute sea {0,1}
@attribute 'red car' {0, 1}
@attribute night {0,1}
@data
"""


def write(folder: Path, rows: str, head: str = HEAD, labels: str = LABELS) -> tuple[Path, Path]:
    arff, xml = folder / "photos.arff", folder / "photos.xml"
    arff.write_text(head + rows, encoding="utf-8")
    xml.write_text(labels, encoding="utf-8")
    return arff, xml


def test_a_quoted_name_of_an_attribute_may_contain_a_percent_sign(tmp_path: Path) -> None:
    head = HEAD.replace("width numeric", "'width %' numeric").replace("night {", "'night %' {")
    assert read_mulan(*write(tmp_path, "2.5,0,1,0\n", head)).features == ["width %", "night %"]


@pytest.mark.parametrize("rows", ["{0 2.5,2 1}\n% a remark\n{}\n{1 1,3 1}\n", "2.5,0,1,0\n0,0,0,0\n0,1,0,1\n"])
def test_mulan_rows_are_read_alike_sparse_and_dense(tmp_path: Path, rows: str) -> None:
    data = read_mulan(*write(tmp_path, rows))
    assert data.features == ["width", "night"]
    assert data.tags == ["sea", "red car"]
    np.testing.assert_array_equal(data.X.toarray(), [[2.5, 0], [0, 0], [0, 1]])
    np.testing.assert_array_equal(data.Y.toarray(), [[0, 1], [0, 0], [1, 0]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("{0 1,4 1}\n", "line 8.*not from 0 to 3"),
        ("{1 1,1 1}\n", "line 8.*twice"),
        ("1,0,0\n", "line 8.*3 values; expected 4"),
        ("1,0,zero,0\n", "line 8.*zero"),
        ("1,0,?,0\n", "line 8.*no finite number"),
        ("1e39,0,1,0\n", "line 8.*no finite number"),
        ("{0 1,1 1\n", "line 8.*truncated"),
        ("0,0,0,0\n0,1,2,0\n", "a tag has the value 2; expected 0 or 1"),
        ("", "0 rows of 2 features; expected at least one of each"),
    ],
)
def test_a_bad_row_of_mulan_is_named_by_its_line(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(TagFileError, match=message):
        read_mulan(*write(tmp_path, rows))


def test_mulan_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    arff, xml = write(tmp_path, "0,0,0,0\n")
    with pytest.raises(TagFileError, match=r"ARFF file .* cannot be read: .*No such file"):
        read_mulan(tmp_path / "other.arff", xml)
    with pytest.raises(TagFileError, match="'@attribute name string' is not known"):
        read_mulan(*write(tmp_path, "", head="@attribute name string\n@data\n"))
    with pytest.raises(TagFileError, match="no line '@data'"):
        read_mulan(*write(tmp_path, "", head="@attribute sea {0,1}\n"))
    with pytest.raises(TagFileError, match="'sea', which is not an attribute"):
        read_mulan(*write(tmp_path, "1\n", head="@attribute 'red car' {0,1}\n@data\n"))
    with pytest.raises(TagFileError, match="no <label"):
        read_mulan(*write(tmp_path, "", labels="<labels/>"))
    assert arff.exists()


def test_quotes_escapes_remarks_and_labels_in_front_are_read_as_weka_writes_them(tmp_path: Path) -> None:
    head = "@ATTRIBUTE 'dog\\'s' {'0',\t'1'} % in front\n@attribute x REAL\n@DATA\n"
    labels = '<labels><label name="dog\'s"/></labels>'
    data = read_mulan(*write(tmp_path, "{0 '1',1 0.5} % the first\n{}\n", head, labels))
    assert (data.features, data.tags) == (["x"], ["dog's"])
    np.testing.assert_array_equal(data.X.toarray(), [[0.5], [0]])
    np.testing.assert_array_equal(data.Y.toarray(), [[1], [0]])


@pytest.mark.parametrize("name", ["photos.ARFF", "photos-rand-train.arff"])
def test_the_labels_of_a_part_are_found_by_the_name_of_the_set(tmp_path: Path, name: str) -> None:
    arff, _ = write(tmp_path, "0,1,0,0\n")
    assert [row.tags for row in read_table(arff.rename(tmp_path / name))] == [["sea"]]


@pytest.mark.shared
def test_delicious_is_as_large_as_its_paper_says(shared: Path) -> None:
    folder = shared / "data" / "delicious"
    train, test = (
        read_mulan(folder / f"delicious-{part}.arff", folder / "delicious.xml") for part in ("train", "test")
    )
    assert train.X.shape == (12920, 500)
    assert test.Y.shape == (3185, 983)
    assert (train.Y.nnz + test.Y.nnz) / 16105 == pytest.approx(19.02, abs=0.01)


def planted(folder: Path, name: str, *, seed: int, n: int = 60) -> Path:
    """Write rows whose first features give their tags away, with the list of labels that all parts share."""
    rng = np.random.default_rng(seed)
    tags = rng.integers(0, 2, (n, 3))
    tags[np.arange(n), rng.integers(0, 3, n)] = 1
    X = np.round(np.hstack([tags * 2.0 + rng.normal(0, 0.1, (n, 3)), rng.normal(size=(n, 2))]), 3)
    head = "".join(f"@attribute x{i} numeric\n" for i in range(5)) + "".join(
        f"@attribute tag{i} {{0,1}}\n" for i in range(3)
    )
    rows = "\n".join(",".join(map(str, [*row, *given])) for row, given in zip(X.tolist(), tags.tolist(), strict=True))
    (folder / "photos.xml").write_text("<labels>" + "".join(f'<label name="tag{i}"/>' for i in range(3)) + "</labels>")
    path = folder / f"photos-{name}.arff"
    path.write_text(f"@relation photos\n{head}@data\n{rows}\n")
    return path


def test_a_mulan_set_is_learned_from_and_measured_in_one_command_each(tmp_path: Path) -> None:
    train, test = planted(tmp_path, "train", seed=1), planted(tmp_path, "test", seed=2)
    fitted = run_command(["fit", "--tags", train, "--model", "ridge", "-o", tmp_path / "run"])
    assert fitted.returncode == 0, fitted.stderr
    measured = run_command(["evaluate", tmp_path / "run", "--tags", test, "--metric", "map", "--json"])
    assert json.loads(measured.stdout)["map"] > 0.95, measured.stderr


def test_svmlight_brings_its_targets_and_a_test_file_may_have_fewer_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (50, 4))
    Y[np.arange(50), rng.integers(0, 4, 50)] = 1
    dump_svmlight_file(np.hstack([Y * 3.0, rng.random((50, 2))]), Y, str(tmp_path / "train.svm"), multilabel=True)
    dump_svmlight_file(Y[:10] * 3.0, Y[:10], str(tmp_path / "test.svm"), multilabel=True)
    tagger = visterm.fit(tags=tmp_path / "train.svm", model="ridge", n_jobs=1)
    assert tagger.vocabulary.tags == ["0", "1", "2", "3"]
    assert visterm.evaluate([tagger], tags=tmp_path / "test.svm", metrics=["map"]).values["map"] == pytest.approx(1.0)


def test_a_target_of_minus_1_is_a_negative(tmp_path: Path) -> None:
    (tmp_path / "two.svm").write_text("+1 1:0.5\n-1 1:0.25\n")
    yes, no = read_table(tmp_path / "two.svm")
    assert (yes.tags, no.tags, no.negatives) == (["1"], [], ["1"])


def test_targets_keep_all_their_digits_beside_qid_and_remarks(tmp_path: Path) -> None:
    (tmp_path / "set.svm").write_text("# pages\n1234567,1234568 qid:3 1:0.5 # the first\n1.5 2:1\n")
    assert [row.tags for row in read_table(tmp_path / "set.svm")] == [["1234567", "1234568"], ["1.5"]]


def test_targets_that_are_no_numbers_are_refused_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "set.svm").write_text("1 1:0.5\ndog,cat 2:1\n")
    with pytest.raises(DataError, match="line 2: 'dog,cat'; expected numbers as targets"):
        read_data_set(tmp_path / "set.svm")


def test_svmlight_without_targets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.svm").write_text(" 1:0.5\n")
    with pytest.raises(DataError, match="has no targets"):
        read_data_set(tmp_path / "none.svm")


def test_rows_are_looked_up_in_the_files_that_their_names_give(tmp_path: Path) -> None:
    train, test = planted(tmp_path, "train", seed=1), planted(tmp_path, "test", seed=2)
    encoder = DataSetRows().fit([f"{train}#1"])
    first, second = read_data_set(train).X.toarray(), read_data_set(test).X.toarray()
    rows = encoder.transform([f"{test}#3", f"{train}#60", f"{test}#1"])
    np.testing.assert_array_equal(rows.toarray(), [second[2], first[59], second[0]])
    unknown = encoder.unknown_images([f"{test}#61", f"{test}#0", "photo.jpg", f"{test}#60"])
    assert sorted(unknown) == [0, 1, 2]
    assert "not among the 60 rows" in unknown[0]


def test_rows_of_another_data_set_are_refused(tmp_path: Path) -> None:
    encoder = DataSetRows().fit([f"{planted(tmp_path, 'train', seed=1)}#1"])
    other = tmp_path / "other.arff"
    other.write_text(HEAD + "1,1,0,0\n")
    (tmp_path / "other.xml").write_text(LABELS)
    with pytest.raises(ShapeError, match="has 2 features, others than the 5 of the fit"):
        encoder.transform([f"{other}#1"])


def test_a_mulan_set_without_its_list_of_labels_says_where_that_belongs(tmp_path: Path) -> None:
    path = planted(tmp_path, "train", seed=1)
    (tmp_path / "photos.xml").unlink()
    with pytest.raises(
        TagFileError, match=r"photos\.xml, the list of the labels of .*photos-train\.arff, cannot be read"
    ):
        read_data_set(path)


def coco(**changes: Any) -> dict[str, Any]:
    return {
        "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
        "annotations": [
            {"id": 7, "image_id": 1, "category_id": 3, "bbox": [0, 0, 1, 1]},
            {"id": 8, "image_id": 1, "category_id": 4},
            {"id": 9, "image_id": 1, "category_id": 3},
        ],
        "categories": [{"id": 3, "name": "dog"}, {"id": 4, "name": "traffic light"}],
        **changes,
    }


def test_coco_annotations_are_tags_of_their_images_each_once(tmp_path: Path) -> None:
    (tmp_path / "instances.json").write_text(json.dumps(coco()))
    first, second = read_table(tmp_path / "instances.json")
    assert (first.image, first.tags) == ("a.jpg", ["dog", "traffic light"])
    assert (second.image, second.tags) == ("b.jpg", [])


def test_crowds_count_as_tags(tmp_path: Path) -> None:
    crowd = {"id": 7, "image_id": 2, "category_id": 3, "iscrowd": 1, "segmentation": {"counts": [1], "size": [1, 1]}}
    (tmp_path / "instances.json").write_text(json.dumps(coco(annotations=[crowd])))
    assert [row.tags for row in read_table(tmp_path / "instances.json")] == [[], ["dog"]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"annotations": [{"id": 7, "image_id": 5, "category_id": 3}]}, "does not have 5"),
        ({"annotations": [{"id": 7, "image_id": 1, "caption": "a dog"}]}, "does not have 'category_id'"),
        ({"annotations": {"7": 1}}, "does not have objects with ids"),
    ],
)
def test_coco_entries_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(coco(**changes)))
    with pytest.raises(TagFileError, match=message):
        read_table(path)


@pytest.mark.parametrize("part", ["images", "annotations", "categories"])
def test_coco_without_one_of_its_parts_such_as_captions_says_which(tmp_path: Path, part: str) -> None:
    content = coco()
    del content[part]
    (tmp_path / "captions.json").write_text(json.dumps(content))
    with pytest.raises(TagFileError, match=f"does not have '{part}'; expected COCO's JSON of instances"):
        read_table(tmp_path / "captions.json")


def test_json_lines_in_a_json_file_stay_a_table(tmp_path: Path) -> None:
    path = tmp_path / "tags.json"
    path.write_text('{"file_name": "a.jpg", "tags": ["sea"]}\n{"file_name": "b.jpg", "tags": []}\n')
    assert [row.tags for row in read_table(path)] == [["sea"], []]
