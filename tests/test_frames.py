"""DataFrames, dicts and Pillow images in, DataFrames out: pandas, polars, pyarrow, and none of them unless passed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from PIL import Image

import visterm
from command_line import visterm as visterm_command
from refusals import refused
from tiny_catalogues import ENCODER, draw_photos
from visterm.core.errors import DataError, NoneReadableError, TagFileError, UserError
from visterm.core.types import Tag
from visterm.data.corpus import Corpus
from visterm.data.frames import as_table
from visterm.features.training_rows import tag_lists

SETTINGS = {"encoder": "visterms", "encoder_params": ENCODER, "model": "ridge", "n_jobs": 1}
FIT = {**SETTINGS, "calibrate": False}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Paths of 24 photos, and a list of tags for each."""
    folder = tmp_path_factory.mktemp("frames")
    tags = draw_photos(folder / "photos")
    return [str(folder / "photos" / name) for name in tags], list(tags.values())


@pytest.fixture(scope="module")
def tagger(photos):
    paths, tags = photos
    return visterm.fit(paths, tags, **FIT)


@pytest.fixture(scope="module")
def frame(photos):
    """A frame of pandas whose index doesn't count from 0."""
    paths, tags = photos
    return pd.DataFrame(
        {"path": paths, "tags": [";".join(one) for one in tags], "n": range(24)}, index=range(24, 0, -1)
    )


FORMS = {
    "pandas, texts": lambda frame: (frame,),
    "pandas, lists": lambda frame: (frame.assign(tags=frame["tags"].str.split(";")),),
    "pandas, arrays": lambda frame: (frame.assign(tags=[np.array(one.split(";")) for one in frame["tags"]]),),
    "polars, texts": lambda frame: (pl.from_pandas(frame),),
    "polars, lists": lambda frame: (pl.from_pandas(frame).with_columns(pl.col("tags").str.split(";")),),
    "polars, lazy": lambda frame: (pl.from_pandas(frame).lazy(),),
    "pyarrow": lambda frame: (pa.table({"image": list(frame["path"]), "labels": list(frame["tags"].str.split(";"))}),),
    "dicts": lambda frame: (frame.assign(tags=frame["tags"].str.split(";")).to_dict("records"),),
    "dicts, file_name": lambda frame: (frame.rename(columns={"path": "file_name"}).to_dict("records"),),
    "a dict of columns": lambda frame: (frame.to_dict("list"),),
    "a dict of Series": lambda frame: (dict(frame[["path", "tags"]].items()),),
    "two Series": lambda frame: (frame["path"], frame["tags"]),
    "two Series of polars": lambda frame: (pl.Series(frame["path"]), pl.Series(frame["tags"].str.split(";"))),
    "a frame and lists": lambda frame: (frame, [one.split(";") for one in frame["tags"]]),
    "columns and a matrix with names": lambda frame: (frame[["path"]], frame["tags"].str.get_dummies(";")),
    "a row a pair": lambda frame: (frame.assign(tags=frame["tags"].str.split(";")).explode("tags"),),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_learned_as_lists_are(form, frame, tagger):
    found = visterm.fit(*FORMS[form](frame), **FIT)
    assert found.vocabulary == tagger.vocabulary
    assert found.fingerprint == tagger.fingerprint


def test_a_folder_and_a_frame_that_names_its_files_go_together(photos, frame, tagger):
    named = frame.assign(path=frame["path"].str.split("/").str[-1])
    found = visterm.fit(photos[0][0].rpartition("/")[0], named, **FIT)
    assert found.fingerprint == tagger.fingerprint


def test_features_on_disk_and_a_frame_of_tags_go_together_unless_they_are_streamed(photos, frame, tmp_path):
    settings = "--encoder-set codebook=12 --encoder-set max_side=32 --encoder-set sample_blocks=2000"
    command = f"encode {photos[0][0].rpartition('/')[0]} -o features --encoder visterms {settings}"
    assert visterm_command(command, tmp_path)[0] == 0
    named = frame.assign(path=frame["path"].str.split("/").str[-1])
    found = visterm.fit(tmp_path / "features", named, model="ridge", calibrate=False)
    assert (found.facts["images"], len(found.vocabulary)) == (24, 6)
    assert visterm.evaluate(found, tmp_path / "features", named, metrics="map", say=print).values["map"] > 0.5
    for work in (visterm.fit, lambda *given, **how: visterm.evaluate(found, *given, memory=how["memory"])):
        with refused("tags", error=TagFileError):
            work(tmp_path / "features", named, model="wsabie", memory=1000, work=tmp_path)


@pytest.mark.parametrize("form", ["frame", "csv"])
def test_photos_that_are_named_without_a_tag_are_left_out_and_counted(form, photos, frame, tmp_path):
    folder = Path(photos[0][0]).parent
    named = frame.assign(path=frame["path"].str.split("/").str[-1])
    named["tags"] = ["-warm" if n == 4 else tags if n > 3 else "" for n, tags in named[["n", "tags"]].to_numpy()]
    named.to_csv(tmp_path / "tags.csv", index=False)
    lines = []
    found = visterm.fit(folder, named if form == "frame" else tmp_path / "tags.csv", say=lines.append, **FIT)
    assert "Without tags: 4 of 24 photos (such as '000.png'), named without a tag." in lines
    assert found.facts["images"] == 20


def test_photos_without_the_only_tag_and_rows_without_marks_are_learned_as_having_none(photos, frame, tmp_path):
    folder = Path(photos[0][0]).parent
    names = frame["path"].str.split("/").str[-1]
    for tags in (["" if n % 2 else "even" for n in range(24)], ["even; green" if n % 2 else "even" for n in range(24)]):
        table = pd.DataFrame({"path": names, "tags": [*tags[:20], "", "", "", ""]})
        assert visterm.fit(folder, table, **FIT).facts["images"] == 24
    marks = pd.DataFrame(
        {"path": names, "dog": [n % 3 == 0 for n in range(24)], "cat": [n % 3 == 1 for n in range(24)]}
    )
    marks.astype({"dog": int, "cat": int}).to_csv(tmp_path / "marks.csv", index=False)
    assert visterm.fit(folder, tmp_path / "marks.csv", **FIT).facts["images"] == 24


def test_columns_are_named_and_rows_without_tags_and_splits_are_kept_apart(frame):
    named = frame.rename(columns={"path": "where", "tags": "what"})
    named["what"] = named["what"].where(named["n"] > 3)
    named["split"] = ["test" if n % 4 == 3 else "train" for n in named["n"]]
    found = visterm.fit(named, tag_rules={"image_column": "where", "tags_column": "what", "separator": ";"}, **FIT)
    assert found.vocabulary.tags == ["blue", "cool", "green", "red", "warm"]
    assert found.facts["images"] == 18


@pytest.mark.parametrize(
    "library",
    [
        lambda columns, names: pd.DataFrame(list(zip(*columns, strict=True)), columns=names),
        lambda columns, names: pa.table(columns, names=names),
    ],
)
def test_columns_of_tags_with_one_name_are_joined_and_other_columns_of_one_name_refused(photos, library):
    paths, tags = photos
    columns = [paths, [";".join(some) for some in tags], ["extra"] * len(paths)]
    twice = library(columns, ["path", "tags", "tags"])
    assert [set(row) for row in Corpus.of_table(as_table(twice)).tags] == [{*some, "extra"} for some in tags]
    assert [set(row) for row in tag_lists(twice)] == [{*some, "extra"} for some in tags]
    with pytest.raises(TagFileError, match="has 2 columns named 'path'"):
        Corpus.of_table(as_table(library([*columns, paths], ["path", "tags", "note", "path"])))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "where"}, "file names named 'file_name' or .*; its columns are: where, tags, n"),
        ({"tags": "what"}, "tags named 'tags' or .*; its columns are: path, what, n.*tags_column = .NAME"),
    ],
    ids=["images", "tags"],
)
def test_a_missing_column_is_named_with_those_that_are_there(change, message, frame):
    with pytest.raises(TagFileError, match=f"The table has no column of {message}"):
        visterm.fit(frame.rename(columns=change), **FIT)
    with pytest.raises(TagFileError, match=f"The table has no column of {message}"):
        visterm.fit(frame.rename(columns=change).to_dict("records"), **FIT)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([{"path": "1.jpg", "tags": ["sea"]}, "2.jpg"], "Entry 1 of the list is a str, and the first is a dict"),
        ([{"path": "1.jpg", "tags": 3.5}], "the table, line 1: 'tags' is 3.5; expected text or a list of texts"),
        (
            {"path": ["1.jpg", "2.jpg"], "tags": [["sea"]]},
            r"The dict has 'path' \(2\), 'tags' \(1\); expected a list for",
        ),
        ({"path": "1.jpg", "tags": ["sea"]}, r"'path' \(no list\), 'tags' \(1\).*For one photo, pass a list"),
        ([{"path": None, "tags": ["sea"]}], "the table, line 1: the cell 'path' is empty"),
        (pd.DataFrame({"path": [], "tags": []}), "The table has no rows"),
    ],
    ids=["mixed", "number", "lengths", "a dict alone", "no path", "empty"],
)
def test_what_no_table_can_hold_is_refused_with_its_place(table, message):
    with pytest.raises(DataError, match=message):
        visterm.fit(table, **FIT)


def test_numbers_and_their_tags_come_from_a_frame_of_pairs():
    pairs = pd.DataFrame({"image": [1, 1, 2, 3, 3, 4], "tag": ["a", "b", "a", "b", "c", "c"]})
    tagger = visterm.fit(tags=pl.from_pandas(pairs), encoder="ids", model="knn", n_jobs=1)
    assert tagger.vocabulary.tags == ["a", "b", "c"]
    found = tagger.annotate(pd.Series([2, 4]), k=1, new_only=True).to_pandas()
    assert (found["image"].tolist(), found.loc[0, "tag"]) == (["2", "4"], "b")


def test_a_frame_without_images_cannot_be_tagged(tagger, frame):
    with pytest.raises(TagFileError, match=r"no column of file names .*image_column = .NAME"):
        tagger.annotate(frame.drop(columns="path"))
    with pytest.raises(DataError, match="Image 1 is missing"):
        tagger.annotate(pd.DataFrame({"path": [frame["path"].iloc[0], None]}))


def test_pixels_in_a_frame_in_dicts_and_alone_are_tagged_as_their_files(photos, tagger):
    paths, tags = photos
    pictures = [Image.open(path) for path in paths]
    held = visterm.fit([{"image": one, "tags": own} for one, own in zip(pictures, tags, strict=True)], **FIT)
    assert held.fingerprint == tagger.fingerprint
    of_files = [one.tags for one in tagger.annotate(paths, k=2).images]
    for images in (pictures, pd.DataFrame({"image": pictures}), [np.asarray(one) for one in pictures]):
        tagged, skipped = tagger.annotate(images, k=2)
        assert ([one.tags for one in tagged], skipped) == (of_files, [])
        assert tagged[3].image == "image 3"
    assert repr(tagger.annotate(pictures[0], k=2).images[0].tags) == repr(of_files[0])


def test_a_pillow_image_is_read_upright_and_left_as_it_is(tmp_path, photos, tagger):
    picture = Image.new("RGBA", (40, 20), (200, 40, 40, 255))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    picture.convert("RGB").save(tmp_path / "turned.jpg", exif=exif)
    opened = Image.open(tmp_path / "turned.jpg")
    rows = tagger.encoder.transform([opened, tmp_path / "turned.jpg"])
    assert np.array_equal(*rows.toarray())
    assert opened.size == (40, 20)
    cut = tmp_path / "cut.png"
    cut.write_bytes(Path(photos[0][0]).read_bytes()[:1500])
    with Image.open(cut) as opened:
        tagged, skipped = tagger.annotate([picture, opened])
    assert (len(tagged), skipped[0].image, "truncated" in skipped[0].reason) == (1, str(cut), True)


@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_array], ids=["array", "sparse"])
def test_a_matrix_without_names_has_numbers_for_tags(matrix):
    assert tag_lists(matrix([[1, 0, -1], [0, 1, 0]])) == [["0", "-2"], ["1"]]


def test_a_catalogue_takes_frames_and_pixels_and_keeps_their_tags(photos, frame, tagger):
    catalogue = visterm.Catalogue(tagger).add(pl.from_pandas(frame))
    assert catalogue.image(0).tags == ["red", "warm"]
    catalogue.add([{"image": Image.new("RGB", (32, 32), (60, 60, 60)), "tags": "fog"}]).add(frame[["path"]])
    assert len(catalogue) == 25
    assert catalogue.search("fog").hits[0].image == "image 0"
    hits = catalogue.search("red", k=2).to_pandas()
    assert (list(hits["image"]), hits["path"].tolist()) == (photos[0][:1] + photos[0][4:5], hits["image"].tolist())
    assert catalogue.like(Image.open(photos[0][0]), k=1).hits[0].path == photos[0][0]
    assert {"tag", "given"} <= set(visterm.to_frame(catalogue.tags(), "polars").columns)


@pytest.mark.parametrize("given", ["frame", "column of tags apart"])
def test_where_no_photo_can_be_read_the_first_and_its_reason_are_named_and_another_column_may_be(given, photos):
    paths, tags = photos
    names = [Path(path).name for path in paths]
    frame = pd.DataFrame({"file_name": names, "tags": tags, "full": paths})
    args = (frame,) if given == "frame" else (frame.drop(columns="tags"), tags)
    with pytest.raises(NoneReadableError) as raised:
        visterm.fit(*args, **FIT)
    assert str(raised.value) == "None of the 24 images could be read. The first, 000.png, is skipped: no such file."
    assert visterm.fit(*args, tag_rules={"image_column": "full"}, **FIT)


def test_a_catalogue_warns_of_photos_that_it_could_not_read_and_refuses_if_that_is_all(photos, frame, tagger):
    paths, tags = photos
    table = pd.DataFrame({"path": [*paths[:2], "gone.jpg"], "tags": tags[:3]})
    with pytest.warns(UserWarning, match=r"Skipped 1 photo, such as gone\.jpg: "):
        catalogue = visterm.Catalogue(tagger).add(table)
    assert (len(catalogue), [item.image for item in catalogue.skipped]) == (2, ["gone.jpg"])
    with pytest.raises(NoneReadableError, match=r"None of the 2 images could be read\. The first, a\.jpg, is skipped"):
        visterm.Catalogue(tagger).add(["a.jpg", "b.jpg"])


def test_a_name_that_no_file_can_have_stops_no_other_photo_and_a_number_is_no_image(photos, tagger):
    with pytest.warns(UserWarning, match="Skipped 1 photo, such as a\\0b.jpg: "):
        assert len(visterm.Catalogue(tagger).add([photos[0][0], "a\0b.jpg"])) == 1
    with pytest.raises(DataError, match=r"An image is a path, a Pillow image .*, not int"):
        visterm.Catalogue(tagger).add(pd.DataFrame({"file_name": [1, 2]}))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tagged_photos_and_figures_are_frames_of_the_library_asked_for(library, frame, tagger):
    tags = tagger.annotate(frame, k=2).to_frame(library)
    assert type(tags).__module__.partition(".")[0] == library
    assert tags.shape == (48, 5)
    figures = visterm.evaluate(tagger, frame, metrics=["map", "p@1"], say=print).to_frame(library)
    names = figures.column_names if library == "pyarrow" else list(figures.columns)
    assert names == ["run", "metric", "mean", "low", "high"]
    assert figures.shape == (2, 5)


def test_an_evaluation_on_photos_that_were_learned_from_says_so(photos, frame, tagger):
    problem = "The run has learned from 24 of these 24 photos"
    with pytest.warns(UserWarning, match=problem) as warned:
        visterm.evaluate(tagger, frame, metrics="map")
    assert warned[0].filename == __file__
    lines = []
    visterm.evaluate(tagger, frame, metrics="map", say=lines.append)
    assert [line for line in lines if line.startswith(problem)] == [str(warned[0].message)]
    pixels = [np.asarray(Image.open(path)) for path in frame["path"]]
    visterm.evaluate(visterm.fit(pixels, frame["tags"], **FIT), pixels, frame["tags"], metrics="map")


def test_a_frame_of_results_says_what_they_say(frame, tagger):
    tagged = tagger.annotate(frame, k=2)
    tags = tagged.to_pandas()
    assert list(tags.columns) == ["image", "rank", "tag", "confidence", "score"]
    assert tags.iloc[1].to_dict()["tag"] == tagged.images[0].tags[1].tag
    assert list(tags.groupby("image")["tag"].agg(list)) == [[tag.tag for tag in one.tags] for one in tagged.images]
    assert tagged.to_polars().filter(pl.col("rank") == 1)["score"].to_list() == [
        one.tags[0].score for one in tagged.images
    ]
    values = visterm.evaluate(tagger, frame, metrics="map", say=print)
    ends = values.to_pandas().iloc[0]
    assert repr(values) == f"Measured:\nrun 1 map {ends['mean']:.4g} ({ends['low']:.4g} to {ends['high']:.4g})"
    assert values.to_pandas().loc[0, "mean"] == pytest.approx(values.values["map"])


def test_an_unknown_library_or_result_is_an_error_that_says_what_to_do(tagger, frame):
    with refused("library", value="excel"):
        tagger.annotate(frame, k=1).to_frame("excel")
    with pytest.raises(UserError, match="A Tagger cannot be a row of a frame"):
        visterm.to_frame([tagger])


def test_a_notebook_shows_photos_with_escaped_names_and_a_prompt_a_few_lines(tmp_path, tagger):
    Image.new("RGB", (32, 32), (200, 40, 40)).save(tmp_path / "<script>alert(1)&.png")
    shown = tagger.annotate(tmp_path, k=1)
    page = shown._repr_html_()
    assert "<script" not in page
    assert 'alt="' in page
    assert "&lt;script&gt;alert(1)&amp;.png" in page
    assert 'src="data:image/jpeg;base64,' in page
    [photo] = shown.images
    assert photo._repr_html_() == page
    assert "<b>sea 91%, sky</b>" in photo._replace(tags=[Tag("sea", 1, confidence=0.91), Tag("sky", 1)])._repr_html_()
    renamed = visterm.Tagger.from_parts(tagger.encoder, tagger.model, tagger.vocabulary, {"photos <b>": 1234, "p": 0.5})
    assert "photos &lt;b&gt;</th>" in renamed._repr_html_()
    assert "1,234</td>" in renamed._repr_html_()
    found = visterm.Catalogue(tagger).add(tmp_path).search("red")
    assert found._repr_html_().count("<figure") == 1
    assert repr(found).startswith("Found(1 photo: [Hit(")
    many = visterm.Catalogue(tagger).add([np.full((8, 8, 3), n, np.uint8) for n in range(30)]).search("red", k=0)
    assert repr(many).endswith("… 25 more])")
    assert "… and 6 more" in many._repr_html_()
    assert repr(tagger).endswith(" with 6 tags of 24 photos: blue, cool, green, grey, red, …")
    assert repr(visterm.Tagger(model="ridge")) == "Tagger(model='ridge')"
    assert repr(visterm.Catalogue(tagger)).startswith("Catalogue of 0 photos in memory, searched by Tagger(")


def test_without_pandas_and_polars_all_but_their_frames_works(photos):
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import visterm
tagged = visterm.fit({photos[0]!r}, {photos[1]!r}, **{FIT!r}).annotate({photos[0][0]!r}, k=2)
print(tagged.to_frame("pyarrow").shape)
try:
    tagged.to_pandas()
except visterm.VistermError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(2, 5)\npandas is not installed. Install it with: pip install pandas\n"


@pytest.mark.parametrize("frame_of", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_cells_are_numbered_by_their_first_occurrence(frame_of):
    values, numbers = as_table(frame_of({"name": ["b", "a", None, "b", None]})).numbered("name")
    assert values == ["b", "a", None]
    assert np.asarray(numbers).tolist() == [0, 1, 2, 0, 2]
