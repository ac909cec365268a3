"""Features made elsewhere: the files that are read, how rows find their images, and what a run needs of the file."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from sklearn.datasets import dump_svmlight_file
from typer.testing import CliRunner

import visterm
from refusals import refused
from test_cli import lines
from visterm import Catalogue, Tagger
from visterm.cli.command_line import app
from visterm.core.errors import DataError, EncoderMismatchError, ShapeError, StorageError, UserError
from visterm.core.persist import read_skipped
from visterm.data.feature_files import read_features
from visterm.data.feature_shards import Shard, shard_bytes
from visterm.encoders.by_name import Precomputed
from visterm.encoders.chain import Chain
from visterm.evaluation.evaluate_run import EvaluateRequest, evaluate_run
from visterm.learning.fit_request import FitRequest
from visterm.learning.tune import tune

pytestmark = pytest.mark.usefixtures("plugin")

NAMES = ["sea/1.jpg", "sea/2.jpg", "3.jpg", "Île.jpg"]
ROWS = np.array([[1, 0, 0.5], [0, 2, 0], [0, 0, 0], [-1, 0.25, 3]], np.float32)


def write_names(path, names=NAMES):
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return path


def write_npy(folder, rows=ROWS, names=NAMES):
    np.save(folder / "features.npy", rows)
    write_names(folder / "features.names.txt", names)
    return folder / "features.npy"


def write_npz(folder):
    sp.save_npz(folder / "features.npz", sp.csr_matrix(ROWS))
    write_names(folder / "features.names.txt")
    return folder / "features.npz"


def write_svmlight(folder, zero_based=True):
    dump_svmlight_file(ROWS, [1, 0, 2, 1], str(folder / "features.svm"), zero_based=zero_based)
    write_names(folder / "features.names.txt")
    return folder / "features.svm"


def write_shards(folder, form=np.asarray):
    (folder / "features" / "data").mkdir(parents=True)
    for i in range(2):
        half = slice(2 * i, 2 * i + 2)
        shard = shard_bytes(Shard(NAMES[half], ["0" * 64] * 2, form(ROWS[half])))
        (folder / "features" / "data" / f"part-{i}.safetensors").write_bytes(shard)
    return folder / "features"


FORMATS = {
    "npy": write_npy,
    "npy of float16": lambda folder: write_npy(folder, ROWS.astype(np.float16)),
    "npy in Fortran's order": lambda folder: write_npy(folder, np.asfortranarray(ROWS.astype(np.float64))),
    "npz": write_npz,
    "svmlight": write_svmlight,
    "svmlight that counts from 1": lambda folder: write_svmlight(folder, zero_based=False),
    "a features folder": write_shards,
    "a features folder of sparse rows": lambda folder: write_shards(folder, sp.csr_array),
}


def as_array(rows):
    return rows.toarray() if sp.issparse(rows) else rows


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_rows_by_name(form, tmp_path):
    encoder = Precomputed(path=FORMATS[form](tmp_path)).fit(NAMES)
    rows = encoder.transform(NAMES[::-1])
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(as_array(rows), ROWS[::-1])


def test_gzipped_svmlight_with_many_labels_a_line_is_read(tmp_path):
    with gzip.open(tmp_path / "features.svm.gz", "wt") as file:
        file.write("3,7 0:1 2:0.5\n 1:2\n2 0:0 # nothing\n1 0:-1 1:0.25 2:3\n")
    write_names(tmp_path / "features.names.txt")
    np.testing.assert_array_equal(read_features(tmp_path / "features.svm.gz").rows.toarray(), ROWS)


def test_names_may_lie_elsewhere_with_the_line_ends_and_the_mark_of_windows(tmp_path):
    path = write_npy(tmp_path)
    (tmp_path / "features.names.txt").rename(tmp_path / "list.txt")
    with pytest.raises(StorageError, match=r"features\.names\.txt.*encoder\.names"):
        read_features(path)
    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(NAMES).encode())
    for names in ("list.txt", "windows.txt"):
        assert read_features(path, names=tmp_path / names).names == NAMES


def test_a_matrix_on_disk_is_mapped_and_not_read(tmp_path):
    assert isinstance(read_features(write_npy(tmp_path)).rows, np.memmap)


def nothing(folder, name="features.npy", content=b""):
    (folder / name).write_bytes(content)
    write_names(folder / "features.names.txt")
    return folder / name


def pickled(folder):
    np.save(folder / "features.npy", np.array([{}, {}, {}, {}]), allow_pickle=True)
    return write_names(folder / "features.names.txt").with_name("features.npy")


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [
        (lambda f: f / "nothing.npy", {}, StorageError, "no features file"),
        (lambda f: nothing(f, "features.csv"), {}, UserError, r"ending that is not known; expected one of \.npy"),
        (nothing, {}, DataError, "cannot be read as a NumPy matrix"),
        (pickled, {}, DataError, "cannot be read as a NumPy matrix.*Python objects"),
        (lambda f: nothing(f, "features.npz", b"PK"), {}, DataError, "cannot be read as a sparse matrix"),
        (lambda f: nothing(f, "features.svm", b"1 x:y\n"), {}, DataError, "line 1: 'x:y'; expected INDEX:NUMBER"),
        (lambda f: write_npy(f, ROWS[0]), {}, ShapeError, r"shape \(3,\); expected a matrix"),
        (lambda f: write_npy(f, ROWS[:, :0]), {}, ShapeError, r"of shape \(4, 0\); expected a matrix"),
        (lambda f: write_npy(f, names=NAMES[:3]), {}, ShapeError, "4 rows, and there are 3 names"),
        (lambda f: write_npy(f, names=[*NAMES[:3], NAMES[0]]), {}, DataError, "name of the rows 1 and 4"),
        (write_npy, {"column": "x"}, UserError, "Only Parquet files have columns"),
        (write_shards, {"name_column": "x"}, UserError, "Only Parquet files have columns"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported(make, options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        read_features(make(tmp_path), **options)


def test_an_image_has_the_row_of_the_one_path_that_ends_as_its_own(tmp_path):
    encoder = Precomputed(path=write_npy(tmp_path)).fit(NAMES)
    found = encoder.transform([tmp_path / "photos" / "sea" / "2.jpg", "2.jpg", "photos/3.jpg", "I\u0302le.jpg"])
    np.testing.assert_array_equal(found, ROWS[[1, 1, 2, 3]])
    with pytest.raises(DataError, match=r"'ea/1\.jpg' is not among the 4 images of .*features\.npy"):
        encoder.transform(["ea/1.jpg"])
    with pytest.raises(DataError, match=r"'a/3\.jpg' and 'b/3\.jpg' would both have the row '3\.jpg'"):
        encoder.transform(["a/3.jpg", "b/3.jpg"])
    write_names(tmp_path / "features.names.txt", ["sea/1.jpg", "lake/1.jpg", "3.jpg", "4.jpg"])
    with pytest.raises(DataError, match=r"'1\.jpg' may be 2 rows .*sea/1\.jpg, lake/1\.jpg"):
        Precomputed(path=tmp_path / "features.npy").fit(["1.jpg"])


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e300])
def test_features_that_are_not_finite_are_refused_with_the_name_of_their_image(number, tmp_path):
    rows = ROWS.astype(np.float64)
    rows[2, 1] = number
    encoder = Precomputed(path=write_npy(tmp_path, rows)).fit(NAMES)
    np.testing.assert_array_equal(encoder.transform(NAMES[:2]), ROWS[:2])
    with pytest.raises(DataError, match=r"features of '3\.jpg' .* expected finite numbers"):
        encoder.transform(NAMES)


def test_the_file_may_grow_and_move_but_what_was_learned_from_must_stay(tmp_path):
    encoder = Precomputed(path=write_npy(tmp_path)).fit(NAMES)
    fingerprint = encoder.fingerprint

    def again(path):
        state = {key: value for key, value in vars(encoder).items() if not key.startswith("_")}
        copy = Precomputed()
        vars(copy).update(state | {"path": path})
        return copy

    new = np.vstack([[[9, 9, 9]], ROWS[::-1]])
    write_npy(tmp_path, new, ["new.jpg", *NAMES[::-1]])
    grown = again(tmp_path / "features.npy")
    assert grown.fingerprint == fingerprint
    np.testing.assert_array_equal(grown.transform(["new.jpg", NAMES[1]]), [[9, 9, 9], ROWS[1]])
    write_npy(tmp_path, ROWS * 2)
    with pytest.raises(EncoderMismatchError, match=r"other rows than those .* fitted on \(4 images"):
        again(tmp_path / "features.npy").transform(NAMES)
    write_npy(tmp_path, ROWS[:3], NAMES[:3])
    with pytest.raises(EncoderMismatchError, match=r"no longer has a row of 'Île\.jpg'"):
        again(tmp_path / "features.npy").transform(NAMES[:1])
    write_npy(tmp_path)
    np.testing.assert_array_equal(again("gone.npy").transform(NAMES), ROWS)
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "features.npy", tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"not at .*gone\.npy nor at .*features\.npy"):
        again("gone.npy").transform(NAMES)
    shutil.move(tmp_path / "features.names.txt", tmp_path / "elsewhere")
    np.testing.assert_array_equal(again(tmp_path / "elsewhere" / "features.npy").transform(NAMES), ROWS)


def test_memory_is_refused_for_features_of_other_programs_which_do_not_stream(tmp_path):
    path = write_npy(tmp_path)
    with refused("memory", value=2**21):
        visterm.fit(NAMES, tags=[["a"], ["b"]] * 2, encoder=f"precomputed:{path}", model="ridge", memory=2**21)


def test_without_a_file_it_says_how_to_name_one():
    with refused("path"):
        Precomputed().fit(["a"])


N = 40


@pytest.fixture
def library(tmp_path):
    """Features of 40 photos of two kinds, in photos/; tags of all but two; one tagged photo has no features."""
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    names = [f"{i:02}.png" for i in range(N)]
    rows = np.eye(2)[np.arange(N) % 2] + rng.normal(0, 0.1, (N, 2))
    for name in [*names, "none.png"]:
        patches = rng.integers(0, 256, (6, 6, 3), np.uint8).repeat(8, axis=0).repeat(8, axis=1)
        Image.fromarray(patches).save(tmp_path / "photos" / name)
    table = [f"{name},{'cat' if i % 2 else 'dog'},{'test' if i >= 30 else 'train'}" for i, name in enumerate(names)]
    (tmp_path / "tags.csv").write_text("\n".join(["image,tags,split", *table[2:], "none.png,bird,train"]) + "\n")
    write_npy(tmp_path, rows, names)
    return tmp_path


def command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("with_images", [True, False])
def test_fit_joins_features_with_tags_and_reports_missing_and_extra_names(with_images, library):
    images = [library / "photos"] if with_images else []
    tags = ("--tags", library / "tags.csv")
    encoder = ("--encoder", f"precomputed:{library / 'features.npy'}")
    done = command("fit", *images, *tags, *encoder, "--model", "ridge", "-o", library / "run")
    assert done.exit_code == 3, done.output
    [left_out] = read_skipped(library / "run" / "skipped.jsonl")
    assert Path(left_out.image).name == "none.png"
    assert "add its row to the file" in left_out.reason
    assert len(Tagger.load(library / "run").vocabulary) == 2, "nobody else has the tag of none.png"
    found = lines(command("annotate", library / "run", "00.png", library / "photos" / "01.png", "-k", 1, "--json"))
    assert [answer["tags"][0]["tag"] for answer in found] == ["dog", "cat"]
    measured = lines(command("evaluate", library / "run", *images, *tags, "--metric", "p@1", "--json"))
    assert measured == [{"p@1": 1.0}]


def test_a_folder_is_annotated_and_indexed_by_the_names_of_its_files(library):
    tagger = Tagger(encoder=f"precomputed:{library / 'features.npy'}", model="ridge")
    tagger.fit(None, tags=library / "tags.csv")
    found, [left_out] = tagger.annotate(library / "photos", k=1)
    assert left_out.image == str(library / "photos" / "none.png")
    assert left_out.reason.startswith("not among the 40 images of ")
    assert [item.tags[0].tag for item in found] == ["dog", "cat"] * (N // 2)
    assert tagger.annotate("07.png", k=1).images[0].image == "07.png"
    with pytest.warns(UserWarning, match=r"Skipped 1 photo, such as .*none\.png: not among the 40 images"):
        catalogue = Catalogue(tagger).add(library / "photos")
    assert catalogue.skipped == [left_out]
    with pytest.raises(DataError, match="None of the 2 images is known"):
        Catalogue(tagger).add(["a.png", "b.png"])
    hits = catalogue.search("cat", k=N // 2).hits
    assert {int(Path(hit.image).stem) % 2 for hit in hits} == {1}


def test_evaluation_lists_images_without_features_among_those_it_measures(library):
    tags = library / "tags.csv"
    encoder = f"precomputed:{library / 'features.npy'}"
    Tagger(encoder=encoder, model="ridge").fit(None, tags=tags).save(library / "run")
    measured = {"runs": [library / "run"], "tags": tags, "metrics": ["p@1"]}
    assert evaluate_run(EvaluateRequest(**measured), say=print).skipped == [], "none.png is not among the test images"
    done = evaluate_run(EvaluateRequest(**measured, split="all"), say=print)
    assert [item.image for item in done.skipped] == ["none.png"]


def test_inside_a_chain_images_without_features_are_skipped_too(library):
    photos = sorted((library / "photos").iterdir())
    inside = [("precomputed", {"path": str(library / "features.npy")}), ("mean_colour", {})]
    encoder = Chain(encoders=inside, n_jobs=1)
    with pytest.raises(DataError, match=r"none\.png' is not among"):
        encoder.fit(photos)
    found = encoder.fit(photos, skip_unreadable=True).encode(photos[::-1])
    assert found.kept.tolist() == list(range(1, N + 1))
    assert [item.image for item in found.skipped] == [str(photos[-1])]


def test_a_chain_of_features_of_other_programs_opens_no_image(tmp_path):
    files = [tmp_path / name for name in ("one", "other")]
    for file in files:
        file.mkdir()
    inside = [f"precomputed:{write_npy(file)}" for file in files]
    encoder = Chain(encoders=inside, batch_size=3, n_jobs=1).fit(NAMES)
    found = encoder.encode(["3.jpg", "none.jpg", *NAMES])
    assert found.kept.tolist() == [0, 2, 3, 4, 5]
    np.testing.assert_array_equal(found.rows[:, :3], found.rows[:, 3:])
    np.testing.assert_allclose(found.rows[1:, :3] / encoder.factors_[0], ROWS, rtol=1e-6)


def test_tune_and_lists_of_names_take_precomputed_features_too(library):
    encoder = f"precomputed:{library / 'features.npy'}"
    request = FitRequest(tags=library / "tags.csv", out=library / "run", encoder=encoder, model="ridge")
    tuned = tune(request, grid={"alpha": [0.1, 1.0]})
    assert tuned.trials[0].value == 1
    names = [f"{i:02}.png" for i in range(4)]
    tagger = Tagger(encoder=encoder, model="ridge").fit([*names, "unknown.png"], [["a"], ["b"], ["a"], ["b"], ["a"]])
    assert tagger.facts["images"] == 4
    with pytest.raises(DataError, match=r"The image 'x\.png' is not among the \d+ images of .* \(such as '00\.png'\)"):
        Tagger(encoder=encoder, model="ridge").fit(["x.png"], [["a"]])


def test_a_score_of_names_without_any_row_says_that_none_is_known(tmp_path):
    path = write_npy(tmp_path)
    tagger = Tagger(encoder=f"precomputed:{path}", model="ridge").fit(NAMES, [["a"], ["b"], ["a"], ["b"]])
    assert tagger.score(["3.jpg", "other.jpg"], [["a"], ["b"]]) == tagger.score(["3.jpg"], [["a"]])
    with pytest.raises(DataError, match=r"None of the 2 images is known.*'other.jpg'.*not among the 4 images"):
        tagger.score(["other.jpg", "another.jpg"], [["a"], ["b"]])


def test_a_features_folder_of_visterm_is_a_file_of_features_like_any_other(library):
    from visterm.features.job import encode_folder

    settings = {"codebook": 20, "colours": 10, "sample_blocks": 1000}
    encode_folder(library / "photos", library / "F", encoder="visterms", encoder_params=settings, n_jobs=1)
    tagger = Tagger(encoder=f"precomputed:{library / 'F'}", model="ridge").fit(None, tags=library / "tags.csv")
    direct = Tagger(model="ridge").fit(library / "F", tags=library / "tags.csv")
    scores = [
        t.annotate(["03.png"] if t is tagger else [library / "photos" / "03.png"]).images for t in (tagger, direct)
    ]
    assert [tag.score for tag in scores[0][0].tags] == pytest.approx([tag.score for tag in scores[1][0].tags], abs=1e-4)
