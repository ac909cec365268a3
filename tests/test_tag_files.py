"""Tags are read from every form that people keep them in, and a file that cannot be understood says where and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from refusals import refused
from visterm.core.errors import NoTagsError, TagFileError
from visterm.data.tag_files import find_tags, read_folder_tags
from visterm.data.tag_formats.record import TagRecord
from visterm.data.tag_formats.tables import stream_table


@pytest.fixture
def images(tmp_path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    return folder


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(images: Path, content: str | bytes, name: str = "tags.csv", **options) -> list[tuple[str, list[str]]]:
    """The images and tags of a table."""
    return [(r.image, r.tags) for r in find_tags(write(images.parent / name, content), images, **options).records]


EXPECTED = [("1.jpg", ["sea", "polar bear"]), ("2.jpg", ["sky"])]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", 'file_name,tags\n1.jpg,"sea,polar bear"\n2.jpg,sky\n'),
        ("t.csv", 'image,labels\n1.jpg,"sea,polar bear"\n2.jpg,sky'),
        ("t.csv", "image,tags\n1.jpg,sea;polar bear\n2.jpg,sky\n"),
        ("t.txt", "image\ttags\r\n1.jpg\tsea,polar bear\r\n2.jpg\tsky\r\n".encode("utf-16")),
        ("t.csv", "image;tags\n1.jpg;sea,polar bear\n2.jpg;sky\n"),
        ("t.csv", 'image;tags\n1.jpg;"sea;polar bear"\n2.jpg;sky\n'),
        ("t.csv", "image\ttags\n1.jpg\tsea,polar bear\n2.jpg\tsky\n"),
        ("t.csv", "image|tags\n1.jpg|sea,polar bear\n2.jpg|sky\n"),
        ("t.txt", "image\ttags\n1.jpg\tsea,polar bear\n2.jpg\tsky\n"),
        ("t.tsv", "image\ttags\n1.jpg\tsea,polar bear\n2.jpg\tsky\n"),
        ("t.tsv", 'image\ttags\n1.jpg\t"sea;polar bear"\n2.jpg\tsky\n'),
        ("t.csv", 'Image , TAGS\r\n1.jpg, sea ; polar  bear \r\n\r\n2.jpg,"sky"\r\n'),
        ("t.csv", '\ufeffimage,tags\n1.jpg,"sea,polar bear"\n2.jpg,sky\n'),
        ("t.csv", 'id,image,tags,note\n7,1.jpg,"sea,polar bear","a ""b"", c"\n8,2.jpg,sky,\n'),
        ("t.csv", 'image,tags\n1.jpg,"[""sea"", ""polar bear""]"\n2.jpg,"[""sky""]"\n'),
        ("t.csv", "image,tags\n1.jpg,\"['sea', 'polar bear']\"\n2.jpg,['sky']\n"),
        ("t.csv", 'image,tags\n1.jpg,"sea\npolar bear"\n2.jpg,sky\n'),
        ("t.csv", "image,tags\r1.jpg,sea;polar bear\r2.jpg,sky\r"),
        ("t.csv", "image,tags\n./1.jpg,sea;;polar bear;\n2.jpg,sky,,\n"),
        ("t.csv", "image,tags\n1.jpg,sea\n2.jpg,sky\n1.jpg,polar bear\n"),
        (
            "t.jsonl",
            '{"file_name": "1.jpg", "tags": ["sea", "polar bear"]}\n\n{"file_name": "2.jpg", "tags": ["sky"]}\n',
        ),
        ("t.jsonl", '{"image": "1.jpg", "labels": "sea,polar bear"}\r\n{"image": "2.jpg", "labels": "sky"}'),
        ("t.ndjson", '\ufeff{"image": "1.jpg", "tags": "sea;polar bear"}\n{"image": "2.jpg", "tags": ["sky"]}'),
        ("t", '{"image": "1.jpg", "tags": "sea;polar bear"}\n{"image": "2.jpg", "tags": ["sky"]}'),
        (
            "t.json",
            '\n[{"SourceFile": "./1.jpg", "Keywords": ["sea", "polar bear"]},\n\n'
            ' {"SourceFile": "2.jpg", "Keywords": "sky"}]\n',
        ),
        ("t.csv", "File Name,Tags\n1.jpg,sea;polar bear\n2.jpg,sky\n"),
        ("t.csv", "image,tag1,Tag 2,split\n1.jpg,sea,polar bear,train\n2.jpg,sky,,test\n"),
        ("t.csv", "image;sea;polar bear;sky\n1.jpg;1;1.0;0\n2.jpg;0;;1\n"),
        ("t.csv", "photo,user,sea,polar bear,sky\n1.jpg,ann,x,X,\n2.jpg,ben,,,yes\n"),
        ("t.json", '[{"image": "1.jpg", "sea": true, "polar bear": 1}, {"image": "2.jpg", "sea": false, "sky": 1}]'),
    ],
)
def test_tables_and_json_lines_are_read_in_every_dialect(images, name, content):
    assert read(images, content, name) == EXPECTED


def test_numbered_columns_of_marks_are_a_column_for_each_tag(images):
    content = "image,width,label_0,label_1\n1.jpg,640,1,0\n2.jpg,480,1,1\n"
    assert read(images, content) == [("1.jpg", ["label_0"]), ("2.jpg", ["label_0", "label_1"])]


@pytest.mark.parametrize("cells", ["0,0", ",", "1,640"])
def test_columns_without_any_mark_or_with_other_values_are_no_tags(images, cells):
    with pytest.raises(TagFileError, match="has no column of tags"):
        read(images, f"image,seen,width\n1.jpg,{cells}\n2.jpg,0,0\n")


def test_columns_and_separator_can_be_named(images):
    content = "photo,tags,words\n1.jpg,no,sea/polar bear\n2.jpg,no,sky\n"
    assert read(images, content, image_column="photo", tags_column="Words", separator="/") == EXPECTED


def test_a_semicolon_anywhere_keeps_commas_inside_tags(images):
    content = 'image,tags\n1.jpg,"Paris, France; sea"\n2.jpg,"Rome, Italy"\n'
    assert read(images, content) == [("1.jpg", ["Paris, France", "sea"]), ("2.jpg", ["Rome, Italy"])]


def test_lists_are_never_split_at_separators(images):
    content = '{"image": "1.jpg", "tags": ["Paris, France", "a;b", 2019]}\n{"image": "2.jpg", "tags": "sky,sea"}'
    content += '\n{"image": "3.jpg", "tags": 2019}'
    expected = [("1.jpg", ["Paris, France", "a;b", "2019"]), ("2.jpg", ["sky", "sea"]), ("3.jpg", ["2019"])]
    assert read(images, content, "t.jsonl") == expected


def test_images_without_tags_are_kept(images):
    assert read(images, "image,tags\n1.jpg,\n2.jpg\n3.jpg,[]\n4.jpg,[ ]\n5.jpg, ; \n") == [
        (f"{i}.jpg", []) for i in range(1, 6)
    ]
    content = '{"image": "1.jpg", "tags": null}\n{"image": "2.jpg"}\n{"image": "3.jpg", "tags": []}'
    assert read(images, content, "t.jsonl") == [(f"{i}.jpg", []) for i in range(1, 4)]


def test_brackets_that_are_no_list_are_text(images):
    assert read(images, "image,tags\n1.jpg,[draft]\n") == [("1.jpg", ["[draft]"])]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "image,tags\n1.jpg,sea;-beach; - polar bear;-\n"),
        ("t.jsonl", '{"image": "1.jpg", "tags": ["sea", "-beach", "- polar bear", "-"]}'),
        ("t.csv", "image,tags\n1.jpg,sea\n1.jpg,-beach\n1.jpg,-polar bear;sea\n"),
    ],
)
def test_a_minus_before_a_tag_says_that_it_is_not_there(images, name, content):
    records = find_tags(write(images.parent / name, content), images).records
    assert records == [TagRecord("1.jpg", ["sea"], ["beach", "polar bear"], None)]


def test_splits_are_read_and_spelled_one_way(images):
    rows = ["1.jpg,a,train", "2.jpg,a,Validation", "3.jpg,a,val", "4.jpg,a,TEST", "5.jpg,a,", "6.jpg,a,fold 1"]
    path = write(images.parent / "t.csv", "image,tags,Split\n" + "\n".join(rows))
    assert [r.split for r in find_tags(path, images).records] == ["train", "valid", "valid", "test", None, "fold 1"]


def test_an_image_in_two_splits_is_an_error(images):
    with pytest.raises(TagFileError, match=r"1\.jpg is in two splits, 'train' and 'test'"):
        read(images, "image,tags,split\n1.jpg,a,train\n1.jpg,b,test\n")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "file_name,tags,note,tags\n1.jpg,sea,x,polar bear\n2.jpg,,y,sky\n"),
        ("t.csv", "file_name,tags,Tags ,TAGS\n1.jpg,sea,,polar bear\n2.jpg,sky,sky,\n"),
        ("t.csv", 'file_name,tags,tags\n1.jpg,"[""sea""]",polar bear\n2.jpg,,sky\n'),
        ("t.tsv", "file_name\ttags\ttags\n1.jpg\tsea\tpolar bear\n2.jpg\tsky\n"),
        ("t.jsonl", '{"image": "1.jpg", "tags": ["sea"], "Tags": "polar bear"}\n{"image": "2.jpg", "TAGS": ["sky"]}'),
    ],
)
def test_columns_of_tags_with_one_name_are_joined(images, name, content):
    expected = [(image, set(tags)) for image, tags in EXPECTED]
    assert [(image, set(tags)) for image, tags in read(images, content, name)] == expected
    assert [(row.image, set(row.tags)) for row in stream_table(images.parent / name)] == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "image,tags,Image\n1.jpg,sea,2.jpg\n", r"t\.csv has 2 columns named 'image'; expected one\. Rename"),
        ("t.csv", "image,tags,split,split\n1.jpg,sea,train,test\n", "has 2 columns named 'split'"),
        ("t.jsonl", '{"image": "1.jpg", "image": "2.jpg", "tags": []}', "line 1: .*the key 'image' occurs twice"),
        ("t.jsonl", '{"image": "1.jpg", "tags": ["a"], "tags": ["b"]}', "line 1: .*the key 'tags' occurs twice"),
    ],
)
def test_other_columns_of_one_name_are_refused(images, name, content, message):
    with pytest.raises(TagFileError, match=message):
        read(images, content, name)
    with pytest.raises(TagFileError, match=message):
        list(stream_table(images.parent / name))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    "content",
    [
        "sep=;\r\nfile_name;tags\r\n1.jpg;sea,polar bear\r\n2.jpg;sky\r\n",
        "SEP=,\nfile_name,tags\n1.jpg,sea;polar bear\n2.jpg,sky\n",
        '"sep=|"\nfile_name|tags\n1.jpg|sea,polar bear\n2.jpg|sky\n',
        "sep=\t\nfile_name\ttags\n1.jpg\tsea,polar bear\n2.jpg\tsky\n",
        "sep=:\nfile_name:tags\n1.jpg:sea,polar bear\n2.jpg:sky\n",
    ],
)
def test_the_line_in_which_a_table_names_its_delimiter_is_obeyed(images, encoding, content):
    assert read(images, content.encode(encoding)) == EXPECTED
    assert [(row.image, row.tags) for row in stream_table(images.parent / "tags.csv")] == EXPECTED


def test_a_line_of_sep_counts_where_errors_name_lines(images):
    with pytest.raises(TagFileError, match="line 3: the cell 'image' is empty"):
        read(images, "sep=;\nimage;tags\n;sea\n")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "has no rows"),
        ("t.csv", "image,tags\n", "has no rows"),
        ("t.csv", "name,tags\n1.jpg,sea\n", r"named 'file_name' or .*; .*: name, tags.*image_column = "),
        ("t.csv", "image,words\n1.jpg,sea\n", r"named 'tags' or .*; .*: image, words.*tags_column = "),
        ("t.csv", "1.jpg,sea\n2.jpg,sky\n", r"its columns are: 1\.jpg, sea"),
        ("t.csv", "image,tags\n1.jpg,sea,sky\n", r"t\.csv, line 2: 3 fields, but the first line names 2"),
        ("t.csv", 'image,tags\n1.jpg,"sea\n2.jpg,sky\n', r"line 2: unexpected end of data.*quotes"),
        ("t.csv", 'image,tags\n1.jpg,"sea\nsky"\n,sky\n', "line 4: the cell 'image' is empty"),
        ("t.csv", "image,sea,sky\n1.jpg,1,0\n2.jpg,0,7\n", r"no column of tags named .*: image, sea, sky"),
        ("t.csv", "image,tags\n1.jpg,sea\n,sky\n", "line 3: the cell 'image' is empty"),
        ("t.csv", "image,tags\n1.jpg,sea\n2.jpg,caf\xe9\n".encode("latin-1"), "not UTF-8: line 3 has the byte 0xe9"),
        ("t.csv", "image,tags\n1.jpg,sea\n".encode("utf-16") + b"x", "not UTF-16: line 3"),
        ("t.csv", 'image,tags\n1.jpg,"[1.5]"\n', r"line 2: 'tags' is \[1.5\]; expected text or a list of texts"),
        ("t.csv", "image,tags\n1.jpg," + "x" * 200_000, "line 2: field larger than field limit"),
        ("t.jsonl", '{"image": "1.jpg", "tags": []}\n{"image": \n', "line 2: not JSON"),
        ("t.jsonl", '{"image": "1.jpg", "tags": []}\n["2.jpg"]\n', "line 2: list; expected a JSON object such as"),
        (
            "t.json",
            '[{"image": "1.jpg", "tags": []},\n{]',
            "line 1: not JSON .*one object per line, or a list of objects",
        ),
        ("t.json", '[{"image": "1.jpg", "tags": []},\n{}]', "line 2: the cell 'image' is empty"),
        ("t.jsonl", '{"image": 7, "tags": []}', "line 1: 'image' is 7; expected text"),
        ("t.jsonl", '{"image": "1.jpg", "tags": [{"a": 1}]}', "line 1: 'tags' is"),
        ("t.jsonl", '{"image": "1.jpg", "tags": true}', "line 1: 'tags' is True"),
        ("t.jsonl", '{"image": "1.jpg", "tags": [false]}', "line 1: 'tags' is"),
        ("t.jsonl", "[" * 100_000, "line 1: not JSON"),
    ],
)
def test_what_cannot_be_understood_is_an_error_that_says_where(images, name, content, message):
    with pytest.raises(TagFileError, match=message):
        read(images, content, name)


def test_a_tag_file_that_is_not_there_is_an_error(images):
    with pytest.raises(TagFileError, match="does not exist"):
        find_tags(images.parent / "nowhere.csv", images)


def test_a_folder_of_texts_has_one_for_each_image(images):
    touch(images, "beach/1.jpg", "beach/2.jpg", "3.png", "deep/down/4.jpg", "5.jpg")
    texts = images.parent / "texts"
    write(texts / "beach/1.txt", "sea\n-snow\n")
    write(texts / "beach/2.jpg.TXT", "sea, sky")
    write(texts / "3.txt", "")
    write(texts / "4.txt", "cave")
    write(texts / "read me.txt", "These are the tags.")
    write(texts / ".hidden/5.txt", "no")
    found = find_tags(texts, images)
    assert found.records == [
        TagRecord("3.png", [], [], None, is_known=False),
        TagRecord("beach/1.jpg", ["sea"], ["snow"], None),
        TagRecord("beach/2.jpg", ["sea", "sky"], [], None),
        TagRecord("deep/down/4.jpg", ["cave"], [], None),
    ]
    assert found.remarks == ["Left out: 1 text of no image, such as 'read me.txt'."]
    assert found.untagged_reason == f"without a .txt in {texts}"


@pytest.mark.parametrize(
    ("files", "texts", "message"),
    [
        (["1.jpg"], [], r"has no \.txt file; expected one for each image"),
        (["1.jpg"], ["2.txt"], r"No text in .* named like '2\.txt', the images like '1\.jpg'"),
        (["a/1.jpg", "b/1.jpg"], ["1.txt"], r"the texts 1\.txt may belong to the images a/1\.jpg, b/1\.jpg"),
        (["1.jpg"], ["a/1.txt", "b/1.txt"], r"the texts a/1\.txt, b/1\.txt may belong to the images 1\.jpg"),
    ],
)
def test_a_folder_of_texts_that_does_not_fit_is_an_error(images, files, texts, message):
    touch(images, *files)
    folder = images.parent / "texts"
    folder.mkdir()
    touch(folder, *texts)
    with pytest.raises(TagFileError, match=message):
        find_tags(folder, images)
    with refused("tags", value=folder):
        find_tags(folder, images, tags_column="words")


def test_an_empty_separator_is_an_error(images):
    with refused("separator", value=""):
        read(images, "image,tags\n1.jpg,sea\n", separator="")


def touch(folder: Path, *names: str) -> None:
    for name in names:
        write(folder / name, b"")


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_auto_finds_the_table_of_an_image_folder(images, name):
    touch(images, "sub/1.jpg", "2.jpg")
    if name.endswith("csv"):
        write(images / name, "file_name,tags,split\nsub/1.jpg,sea;sky,train\n2.jpg,snow,test\n")
    else:
        rows = [{"file_name": "sub/1.jpg", "tags": ["sea", "sky"], "split": "train"}]
        rows.append({"file_name": "2.jpg", "tags": ["snow"], "split": "test"})
        write(images / name, "\n".join(map(json.dumps, rows)))
    assert find_tags("auto", images).records == [
        TagRecord("sub/1.jpg", ["sea", "sky"], [], "train"),
        TagRecord("2.jpg", ["snow"], [], "test"),
    ]


def test_auto_finds_tables_in_sub_folders_that_may_be_splits(images):
    touch(images, "train/1.jpg", "test/1.jpg", ".hidden/1.jpg")
    write(images / "train/metadata.csv", "file_name,tags\n1.jpg,sea\n")
    write(images / "test/metadata.csv", "file_name,tags\n1.jpg,sky\n")
    write(images / ".hidden/metadata.csv", "file_name,tags\n1.jpg,no\n")
    assert find_tags("auto", images).records == [
        TagRecord("test/1.jpg", ["sky"], [], "test"),
        TagRecord("train/1.jpg", ["sea"], [], "train"),
    ]


XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag><rdf:li>cave</rdf:li></rdf:Bag>'
    "</dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
)


def with_keyword(path: Path) -> None:
    """Write a photo with the keyword "cave" inside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path, xmp=XMP.encode())


def test_folders_of_dates_and_cameras_are_no_tags(images):
    touch(
        images,
        "2019/2019-07-14 Harz/1.jpg",
        "2020/07/14/2.jpg",
        "20210731/3.jpg",
        "2022_08/4.jpg",
        "2019/3 Lakes/5.jpg",
    )
    touch(images, "DCIM/100CANON/6.jpg", "DCIM/101_PANA/7.jpg")
    with pytest.raises(NoTagsError, match="but no dates"):
        find_tags("auto", images)
    touch(images, "2019/07/beach/8.jpg", "1960s/9.jpg", "3/10.jpg")  # a digit is the name of a class
    assert {row.image: row.tags for row in find_tags("auto", images).records} == {
        "2019/07/beach/8.jpg": ["beach"],
        "1960s/9.jpg": ["1960s"],
        "3/10.jpg": ["3"],
    }


def test_folders_of_numbered_classes_are_tags_although_some_could_be_years_or_cameras(images):
    classes = ["7", "8", "1899", "1999", "2150", "10012345", "201999"]
    touch(images, *[f"{name}/1.jpg" for name in classes])
    assert sorted(tag for row in find_tags("auto", images).records for tag in row.tags) == sorted(classes)


def test_only_days_and_months_inside_dated_folders_are_no_tags(images):
    touch(images, "49ers/2019/07/1.jpg", "2019/50th birthday/2.jpg", "2020/07_Juli/3.jpg", "2020/0714/3D/4.jpg")
    assert {row.image: row.tags for row in find_tags("auto", images).records} == {
        "49ers/2019/07/1.jpg": ["49ers"],
        "2019/50th birthday/2.jpg": ["50th birthday"],
        "2020/0714/3D/4.jpg": ["3D"],
    }


def test_few_keywords_are_tags_in_folders_of_dates_and_are_named_in_folders_of_tags(images):
    touch(images, *[f"2019/07/{n}.jpg" for n in range(30)])
    with_keyword(images / "2019/08/cave.jpg")
    assert [row.tags for row in find_tags("auto", images).records] == [["cave"]]
    touch(images, "beach/1.jpg")
    tags = find_tags("auto", images)
    assert [row.tags for row in tags.records] == [["beach"]]
    remark = "Not read: keywords in a few photos, or in their XMP files: choose the tags 'xmp' to read these."
    assert tags.remarks == ["Tags: one folder per tag (1 folder).", remark]


def test_one_text_beside_many_photos_with_keywords_is_a_note(images):
    for n in range(3):
        with_keyword(images / f"{n}.jpg")
    touch(images, "3.jpg")
    write(images / "3.txt", "Ask Anna who this is")
    tags = find_tags("auto", images)
    assert [row.tags for row in tags.records] == [["cave"]] * 3
    remark = f"Not read: a .txt beside 1 photo: choose the tags '{images}' to read these instead."
    assert tags.remarks[-1] == remark
    assert [row.tags for row in find_tags(images, images).records] == [["Ask Anna who this is"]]


def test_a_table_of_another_kind_in_a_sub_folder_hides_no_tags(images):
    write(images / "shop/metadata.csv", "id,title\n1,x\n")
    touch(images, "1.jpg")
    with pytest.raises(NoTagsError, match=r"Not read: .*shop.metadata\.csv, which has no column of file names"):
        find_tags("auto", images)
    with_keyword(images / "2.jpg")
    tags = find_tags("auto", images)
    assert [row.tags for row in tags.records] == [["cave"]]
    assert tags.remarks[-1].startswith(f"Not read: {images / 'shop' / 'metadata.csv'}, which has no column")
    write(images / "sea/metadata.csv", "file_name,tags\n1.jpg,sea\n")
    assert [(row.image, row.tags) for row in find_tags("auto", images).records] == [("sea/1.jpg", ["sea"])]
    write(images / "metadata.csv", "id,title\n1,x\n")
    with pytest.raises(TagFileError, match=r"has no column of file names .*its columns are: id, title\."):
        find_tags("auto", images)


def test_auto_finds_a_folder_a_tag(images):
    touch(images, "beach/1.jpg", "beach/sunset/2.JPG", "Polar  bear/3.png", "-beach/5.jpg", "4.jpg", "beach/notes.txt")
    assert find_tags("auto", images).records == [
        TagRecord("-beach/5.jpg", [], ["beach"], None),
        TagRecord("Polar  bear/3.png", ["Polar bear"], [], None),
        TagRecord("beach/1.jpg", ["beach"], [], None),
        TagRecord("beach/sunset/2.JPG", ["beach", "sunset"], [], None),
    ]


def test_a_folder_around_all_others_is_no_tag(images):
    touch(images, "Export/beach/1.jpg", "Export/animals/dog/2.jpg")
    assert [row.tags for row in find_tags("auto", images).records] == [["animals", "dog"], ["beach"]]
    touch(images, "Export/3.jpg")
    assert [row.tags for row in find_tags("auto", images).records] == [
        ["Export"], ["Export", "animals", "dog"], ["Export", "beach"]
    ]  # fmt: skip


def test_splits_may_be_in_one_folder(images):
    touch(images, "data/train/beach/1.jpg", "data/val/beach/2.jpg")
    assert [(row.tags, row.split) for row in find_tags("auto", images).records] == [
        (["beach"], "train"), (["beach"], "valid")
    ]  # fmt: skip


def test_folders_named_as_splits_are_splits_when_all_images_lie_in_them(images):
    touch(images, "train/beach/1.jpg", "test/beach/2.jpg", "val/snow/3.jpg")
    assert find_tags("auto", images).records == [
        TagRecord("test/beach/2.jpg", ["beach"], [], "test"),
        TagRecord("train/beach/1.jpg", ["beach"], [], "train"),
        TagRecord("val/snow/3.jpg", ["snow"], [], "valid"),
    ]
    touch(images, "station/4.jpg")
    assert find_tags("auto", images).records[-2] == TagRecord("train/beach/1.jpg", ["train", "beach"], [], None)


def test_auto_finds_a_text_beside_each_image(images):
    touch(images, "beach/1.jpg", "2.png", "3.jpg", "4.jpg")
    write(images / "beach/1.txt", "sea\r\nPolar bear\n\n-snow\n")
    write(images / "2.png.txt", "\ufeffsea, sky")
    write(images / "3.txt", "Paris, France; sea")
    assert find_tags("auto", images).records == [
        TagRecord("2.png", ["sea", "sky"], [], None),
        TagRecord("3.jpg", ["Paris, France", "sea"], [], None),
        TagRecord("beach/1.jpg", ["sea", "Polar bear"], ["snow"], None),
    ]
    assert find_tags("auto", images, separator="/").records[0].tags == ["sea, sky"]
    assert find_tags("auto", images).remarks == ["Tags: a .txt beside each image."]
    write(images / "4.jpg.xmp", XMP)
    assert find_tags("auto", images).remarks[1:] == [
        "Not read: keywords in photos without a .txt, or in their XMP files: choose the tags 'xmp' to read these."
    ]


@pytest.mark.parametrize("suffix", ["TXT", "Txt", "jpg.TXT", "txt"])
def test_a_text_beside_an_image_is_found_whatever_the_case_of_its_suffix(images, suffix):
    touch(images, "IMG2.jpg")
    write(images / f"IMG2.{suffix}", "sea\n")
    assert find_tags("auto", images).records == [TagRecord("IMG2.jpg", ["sea"], [], None)]


def test_numbers_that_are_no_boxes_are_tags(images):
    touch(images, "1.jpg")
    write(images / "1.txt", "2019 07 14 12 30")
    assert find_tags("auto", images).records == [TagRecord("1.jpg", ["2019 07 14 12 30"], [], None)]


@pytest.mark.parametrize(
    ("paths", "tags", "splits"),
    [
        (["animals/birds/animals/3.jpg", "animals/zoo/1.jpg"], [["birds", "animals"], ["zoo"]], [None, None]),
        (["animals/animals/1.jpg", "animals/birds/2.jpg"], [["animals"], ["birds"]], [None, None]),
        (["test/beach/1.jpg", "test/snow/2.jpg"], [["beach"], ["snow"]], ["test", "test"]),
        (["data/train/beach/1.jpg", "data/val/snow/2.jpg"], [["beach"], ["snow"]], ["train", "valid"]),
        (["2019/07/sea/1.jpg", "2019/08/2/2.jpg"], [["sea"], []], [None, None]),
    ],
)
def test_the_folder_around_all_others_is_no_tag_but_may_be_a_split(images, paths, tags, splits):
    touch(images, *paths)
    found = {row.image: row for row in read_folder_tags(images, [images / path for path in paths]).records}
    assert [found[path].tags if path in found else [] for path in paths] == tags
    assert [found[path].split for path in paths if path in found] == [s for s, t in zip(splits, tags, strict=True) if t]


def test_a_text_that_is_not_utf8_names_its_file_and_line(images):
    touch(images, "1.jpg")
    write(images / "1.txt", b"sea\ncaf\xe9")
    with pytest.raises(TagFileError, match=r"1\.txt is not UTF-8: line 2"):
        find_tags("auto", images)


@pytest.mark.parametrize("text", ["0 0.5 0.5 0.3 0.25\n3 0.1 .2 0.3 1e-05\n", "7 0.1 0.2 0.3 0.4 0.5 0.6\n"])
def test_boxes_and_outlines_of_yolo_are_no_tags(images, text):
    touch(images, "1.jpg")
    write(images / "1.txt", text)
    with pytest.raises(TagFileError, match=r"1\.txt has boxes of YOLO, no tags. Make a table"):
        find_tags("auto", images)
    write(images / "1.txt", "2 0 1 9\n1984\n")
    assert find_tags("auto", images).records[0].tags == ["2 0 1 9", "1984"]


def test_auto_that_finds_nothing_lists_what_it_looked_for(images):
    touch(images, "1.jpg", "notes.txt")
    with refused("tags", value="auto", error=NoTagsError) as refusal:
        find_tags("auto", images)
    looked_for = ("metadata.jsonl or metadata.csv", ".txt beside", "folder per tag")
    assert all(each in refusal.value.problem for each in looked_for)


def test_auto_with_a_named_column_looks_for_tables_only(images):
    touch(images, "beach/1.jpg")
    with refused("tags", value="auto", error=NoTagsError) as refusal:
        find_tags("auto", images, tags_column="words")
    assert "beside" not in refusal.value.problem


def test_numbers_in_json_are_keywords_as_they_are_written(images):
    listed = '[{"SourceFile": "1.jpg", "Keywords": [2.80, 2019, "sea"]}]'
    assert read(images, listed, "tags.json") == [("1.jpg", ["2.80", "2019", "sea"])]
    assert read(images, '{"file_name": "1.jpg", "tags": 2.8}', "tags.jsonl") == [("1.jpg", ["2.8"])]
