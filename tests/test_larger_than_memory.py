"""Features larger than memory: what streams join, hold out and visit, that kills lose nothing, and who is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from planted import plant_corpus
from planted_features import N_TAGS, N, fitted_encoder, name_of, plant, write, write_table
from refusals import refused
from visterm import Tagger
from visterm.cli.command_line import app
from visterm.core.errors import (
    CorruptFileError,
    DataError,
    OutOfSpaceError,
    TagFileError,
    UnknownNameError,
    VistermError,
)
from visterm.data.tag_formats.tables import read_table, stream_table
from visterm.features.streaming.joining import NO_SPLIT, TagsOnDisk
from visterm.features.streaming.memory import Plan, machine_memory, plan_memory, read_size
from visterm.features.streaming.shards import NameIndex, Shards
from visterm.features.training_rows import NONE_HELD_OUT, read_corpus
from visterm.learning.fit_request import FitRequest
from visterm.learning.streamed_fit import IMAGES_PER_DRAW, ShardWindows, Survey, draw_positions, fit_streamed
from visterm.models.baselines import Prior
from visterm.models.ranking.training import CHECKPOINT, FileCheckpoints
from visterm.models.ranking.vse_ens import VseEns

SMALL = Plan(2, 8 * 160 * 50 * 2)
"""Memory for windows of two shards."""


@pytest.fixture(scope="module")
def encoder():
    return fitted_encoder()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, encoder):
    return plant(tmp_path_factory.mktemp("drawn"), encoder)


def test_the_block_of_the_page_learns_from_a_matrix_on_disk_piece_by_piece(tmp_path, monkeypatch):
    planted = plant_corpus(n_train=N, n_test=60, n_tags=N_TAGS, random_state=5)
    np.save(tmp_path / "features.npy", planted.X_train)
    sp.save_npz(tmp_path / "tags.npz", planted.Y_train)
    page = (Path(__file__).parents[1] / "docs" / "larger_than_memory.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(block.replace("100_000", "250"), names)  # three pieces
    assert names["model"].n_epochs_ == 60
    usual = Prior().fit(planted.X_train, planted.Y_train)
    assert names["model"].score(planted.X_test, planted.Y_test) > 1.2 * usual.score(planted.X_test, planted.Y_test)


def joined(tmp_path, drawn, table="tags.jsonl", **settings):
    shards = Shards(drawn / "features")
    return TagsOnDisk(tmp_path, shards, drawn / table, **settings)


def fit(drawn, work, *, model="wsabie", table="tags.jsonl", epochs=3, n_jobs=1, checkpoint_seconds=20.0, **how):
    params = {"epochs": epochs} | ({"dim": 8} if model == "wsabie" else {})
    tagger = Tagger(model=model, model_params=params, n_jobs=n_jobs)
    request = FitRequest(images=drawn / "features", tags=drawn / table, work=work, **how)
    tagger.parts, tagger.told = fit_streamed(
        tagger.parts, request, SMALL, any_encoder=True, checkpoint_seconds=checkpoint_seconds
    )
    return tagger


def assert_same_model(tagger, other):
    np.testing.assert_array_equal(tagger.model.tag_rows_, other.model.tag_rows_, strict=True)
    assert tagger.vocabulary == other.vocabulary
    assert tagger.fingerprint == other.fingerprint


# -- parts ------------------------------------------------------------------------------------------------------------


def test_a_sample_of_a_stream_is_uniform(monkeypatch):
    monkeypatch.setattr("visterm.learning.streamed_fit.IMAGES_PER_DRAW", 4)
    rows, tags = SimpleNamespace(n_rows=10), SimpleNamespace(bits=np.full(10, NO_SPLIT, np.uint8))
    counts = Counter()
    for seed in range(2000):
        drawn = draw_positions(rows, tags, NO_SPLIT, 3, seed)
        assert drawn.size == 3
        counts.update(drawn.tolist())
    assert sorted(counts) == list(range(10))
    assert all(500 < count < 700 for count in counts.values())  # 600 expected, deviation 20


def test_the_memory_for_a_sample_does_not_grow_with_the_images():
    n = 6 * IMAGES_PER_DRAW
    tags = SimpleNamespace(bits=np.full(n, NO_SPLIT, np.uint8))
    tracemalloc.start()
    try:
        assert draw_positions(SimpleNamespace(n_rows=n), tags, NO_SPLIT, 1000, 0).size == 1000
        assert tracemalloc.get_traced_memory()[1] < 8 * 8 * IMAGES_PER_DRAW
    finally:
        tracemalloc.stop()


def test_a_sample_of_more_than_there_is_has_all(monkeypatch):
    monkeypatch.setattr("visterm.learning.streamed_fit.IMAGES_PER_DRAW", 4)
    tags = SimpleNamespace(bits=np.isin(np.arange(10), [4, 7]).astype(np.uint8))
    assert draw_positions(SimpleNamespace(n_rows=10), tags, NO_SPLIT, 5, 0).tolist() == [4, 7]


def test_names_are_found_where_they_lie():
    names = [name_of(i) for i in range(40)]
    index = NameIndex([names[:15], [], names[15:]])
    assert index.find([name_of(39), "none.jpg", name_of(0), name_of(17)]).tolist() == [39, -1, 0, 17]
    assert (np.diff(index.hashes.astype(object)) > 0).all()


def test_a_name_is_found_as_it_is_written_and_else_without_spaces_and_backslashes():
    index = NameIndex([["1.jpg", " 1.jpg", "a/2.jpg", "a\\2.jpg", "b/3.jpg"]])
    assert index.find([" 1.jpg", "1.jpg ", "a\\2.jpg", "b\\3.jpg", " none.jpg"]).tolist() == [1, 0, 3, 4, -1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'file_name,tags,split\n1.jpg,"sea,sky",train\n2.jpg,sea;-sun,valid\n'),
        ("a.csv", "image;labels\n1.jpg;sea,sky\n./2.jpg;\n"),
        ("a.tsv", "\ufefffile_name\ttags\n1.jpg\t['sea', 'sky']\n\n2.jpg\tsea\n"),
        ("a.jsonl", '{"file_name": "1.jpg", "tags": ["Sea", " sea "]}\n\n{"file_name": "2.jpg", "split": "dev"}\n'),
        ("a.txt", '{"image": "1.jpg", "tag": "sea, sky"}\n'),
    ],
)
def test_a_table_read_row_by_row_gives_the_records_of_one_read_whole(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert list(stream_table(tmp_path / name)) == read_table(tmp_path / name)


@pytest.mark.parametrize(
    "text", ["file_name,other\n1.jpg,sea\n", "", "file_name,tags\n", 'file_name,tags\n1.jpg,"sea\n']
)
def test_a_table_read_row_by_row_is_refused_as_one_read_whole(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    with pytest.raises(TagFileError) as whole:
        read_table(tmp_path / "a.csv")
    with pytest.raises(TagFileError) as streamed:
        list(stream_table(tmp_path / "a.csv"))
    assert str(streamed.value) == str(whole.value)


@pytest.mark.parametrize(
    ("text", "size"), [("1G", 2**30), ("800m", 800 * 2**20), ("1.5 GB", 3 * 2**29), ("2097152", 2**21), ("1GiB", 2**30)]
)
def test_amounts_of_memory_are_read_in_powers_of_1024(text, size):
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["much", "-1G", "1000", "1X"])
def test_what_is_no_amount_of_memory_is_refused(text):
    with refused("memory", value=text):
        read_size(text)


def test_features_stream_when_three_copies_and_the_names_take_more_than_there_is():
    enough, less = (plan_memory(1000, 10**6, 3 * 10**6 + 2048 * 1000 - n) for n in (0, 1))
    assert enough.needed <= enough.memory
    assert less.needed > less.memory
    assert plan_memory(0, 0, None).memory == machine_memory() // 2


# -- joining and windows ----------------------------------------------------------------------------------------------


def test_tags_join_as_they_do_in_memory(tmp_path, drawn):
    tags = joined(tmp_path, drawn, min_count=100)
    corpus = read_corpus(None, drawn / "features", drawn / "tags.jsonl")
    by_name = dict(zip(corpus.names, corpus.tags, strict=True))
    in_memory = Tagger(model="prior", min_count=100).fit(corpus, calibrate=False).vocabulary
    assert tags.vocabulary == in_memory
    assert 0 < len(in_memory) < N_TAGS
    expected = in_memory.encode([by_name[name_of(i)] for i in range(100, 130)]).toarray()
    kept = np.arange(30) % 3 > 0
    np.testing.assert_array_equal(tags.rows_at(np.arange(100, 130)).toarray(), expected)
    np.testing.assert_array_equal(tags.rows_at(100 + np.flatnonzero(kept)).toarray(), expected[kept])


def test_spellings_repetitions_aliases_and_rows_of_one_image_join_to_one_tag(tmp_path, drawn):
    rows = [
        {"file_name": name_of(3), "tags": ["Sea", "ocean"]},
        {"file_name": name_of(1), "tags": ["sea", "-sky"]},
        {"file_name": name_of(3), "tags": ["SEA", "sky"]},
        {"file_name": name_of(2), "tags": ["sea"]},
        {"file_name": "gone.jpg", "tags": ["sea"]},
    ]
    write_table(drawn / "small.jsonl", rows)
    tags = joined(tmp_path, drawn, "small.jsonl", aliases={"ocean": "sea"})
    assert tags.vocabulary.tags == ["sea", "sky"]
    assert tags.vocabulary.counts.tolist() == [3, 1]
    assert tags.rows_at(np.arange(4)).toarray().tolist() == [[0, 0], [1, 0], [1, 0], [1, 1]]
    assert tags.remarks[:-1] == ["1 row of the tags (such as of 'gone.jpg') is of images without features; left out."]


def test_only_the_training_split_is_counted_and_another_can_be_requested(tmp_path, drawn):
    splits = ["train", "train", "valid", "test", None]
    rows = [{"file_name": name_of(i), "tags": ["sea", f"of {s}"], "split": s} for i, s in enumerate(splits)]
    write_table(drawn / "split.jsonl", rows)
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    tags = joined(tmp_path / "a", drawn, "split.jsonl")
    assert (tags.vocabulary.tags, tags.vocabulary.counts.tolist()) == (["of train", "sea"], [2, 2])
    assert tags.learned_among(0, 6).tolist() == [True, True, False, False, False, False]
    assert tags.remarks[:-1] == ["Not learned from: 2 rows outside the splits 'train' and 'valid'."]
    tags = joined(tmp_path / "b", drawn, "split.jsonl", split="testing")
    assert tags.vocabulary.tags == ["of test", "sea"]
    assert tags.remarks[:-1] == []
    with pytest.raises(UnknownNameError, match="No row is in the split 'other'"):
        joined(tmp_path, drawn, "split.jsonl", split="other")


def test_tables_that_do_not_meet_the_features_are_refused(tmp_path, drawn):
    write_table(drawn / "bad.jsonl", [{"file_name": "a/b.jpg", "tags": ["sea"]}])
    with pytest.raises(TagFileError, match=r"the tags name 'a/b.jpg', the features '0000.jpg'"):
        joined(tmp_path, drawn, "bad.jsonl")
    write_table(drawn / "bad.jsonl", [{"file_name": name_of(7), "tags": [], "split": s} for s in ("train", "test")])
    with pytest.raises(TagFileError, match=r"The image 0007.jpg is in two splits"):
        joined(tmp_path, drawn, "bad.jsonl")
    write_table(drawn / "bad.jsonl", [{"file_name": name_of(7), "tags": ["sea"]}])
    with refused("min_count", value=2, error=DataError):
        joined(tmp_path, drawn, "bad.jsonl", min_count=2)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_an_epoch_visits_each_row_once_in_windows_that_fit_and_in_an_order_of_its_own(tmp_path, encoder, drawn, form):
    numbers = np.zeros((230, 3), np.float32)
    numbers[:, 0] = np.arange(1, 231)
    write(tmp_path / "features", form(numbers), encoder)
    shards = Shards(tmp_path / "features")
    tags = TagsOnDisk(tmp_path, shards, drawn / "tags.jsonl")
    held_out = np.array([0, 99, 229])
    window = int(2 * shards.sizes.max())
    windows = ShardWindows(shards, tags, Survey(1.0, None, held_out, 0, 1), window=window, seed=4)

    def visited(epoch, first=0):
        found = []
        for X, Y in windows.epoch(epoch, first):
            rows = np.asarray(X.toarray() if sp.issparse(X) else X).copy()
            assert len(rows) <= 100
            assert X.shape[0] == Y.shape[0]
            found.append([int(value) - 1 for value in rows[:, 0]])
            for position, row in zip(found[-1], Y.toarray(), strict=True):
                np.testing.assert_array_equal(row, tags.rows_at(np.array([position])).toarray()[0])
        return found

    first = visited(1)
    assert sorted(chain.from_iterable(first)) == sorted(set(range(230)) - {0, 99, 229})
    assert first != visited(2)
    assert first == visited(1)
    assert visited(1, 1) == first[1:]


# -- fitting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["wsabie", "vse_ens"])
def test_a_streamed_fit_learns_as_well_as_one_in_memory_and_the_same_for_any_number_of_threads(tmp_path, drawn, model):
    streamed = fit(drawn, tmp_path / "work", model=model, epochs=12)
    in_memory = Tagger(model=model, model_params={"epochs": 12} | ({"dim": 8} if model == "wsabie" else {}))
    in_memory.fit(drawn / "features", drawn / "tags.jsonl")
    best, other = (max(entry["map"] for entry in tagger.model.history_) for tagger in (streamed, in_memory))
    assert best > 0.95 * other > 0.7
    assert_same_model(streamed, fit(drawn, tmp_path / "work", model=model, epochs=12, n_jobs=2))
    assert not (tmp_path / "work").exists()
    assert streamed.facts["images"] == 540
    assert streamed.facts["validation images"] == 60
    assert streamed.calibration is not None
    assert streamed.learned_images.count([name_of(0), name_of(599), "other"]) == 2


def test_the_rows_held_out_are_not_learned_from_and_the_mean_length_is_that_of_all(tmp_path, drawn):
    tagger = fit(drawn, tmp_path / "work", model="vse_ens", epochs=1)
    planted = plant_corpus(n_train=N, n_test=1, n_tags=N_TAGS, random_state=5)
    whole = VseEns(epochs=1, valid_share=0).fit(planted.X_train, planted.Y_train)
    assert tagger.model.scale_ == pytest.approx(whole.scale_, rel=1e-5)
    assert tagger.facts["tags given"] < planted.Y_train.nnz


def test_validation_rows_of_the_table_say_when_to_stop(tmp_path, drawn):
    rows = [json.loads(line) for line in (drawn / "tags.jsonl").read_text(encoding="utf-8").splitlines()]
    write_table(drawn / "valid.jsonl", [{**row, "split": "valid" if i < 70 else "train"} for i, row in enumerate(rows)])
    tagger = fit(drawn, tmp_path / "work", table="valid.jsonl")
    assert (tagger.facts["images"], tagger.facts["validation images"]) == (530, 70)
    assert tagger.model.history_[0]["map"] is not None


def test_what_needs_images_held_out_is_told_where_there_are_none(tmp_path, drawn):
    rows = [json.loads(line) for line in (drawn / "tags.jsonl").read_text(encoding="utf-8").splitlines()]
    write_table(drawn / "few.jsonl", rows[:40])
    no_confidences = "There are no confidences: with streamed features, they need held-out images."
    assert fit(drawn, tmp_path / "work", table="few.jsonl").told[-2:] == [NONE_HELD_OUT, no_confidences]
    assert fit(drawn, tmp_path / "work", valid=0).told[1:] == [no_confidences]
    assert fit(drawn, tmp_path / "work", valid=0, calibrate=False).told == ["Read 12 tags; 0 on one photo only."]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="wants a device that is always full")
def test_a_full_disk_is_an_error_that_leaves_no_temporary_files(tmp_path, drawn):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "pairs.bin").symlink_to("/dev/full")
    with pytest.raises(OutOfSpaceError, match="is full"):
        fit(drawn, tmp_path / "work")
    assert list(tmp_path.iterdir()) == []


def test_a_fit_that_is_refused_leaves_nothing_but_a_checkpoint(tmp_path, drawn, monkeypatch):
    with pytest.raises(UnknownNameError, match="No row is in the split 'other'"):
        fit(drawn, tmp_path / "work", split="other")
    assert list(tmp_path.iterdir()) == []
    epoch = ShardWindows.epoch

    def cut_short(self, number, first=0):
        for window in epoch(self, number, first):
            yield window
            if number == 2:
                raise CorruptFileError("A shard was changed.")

    monkeypatch.setattr(ShardWindows, "epoch", cut_short)
    with pytest.raises(CorruptFileError):
        fit(drawn, tmp_path / "work", checkpoint_seconds=0)
    assert (tmp_path / "work" / "checkpoint.safetensors").exists()


def test_a_fit_that_is_stopped_anywhere_goes_on_to_the_same_bytes(tmp_path, drawn, monkeypatch):
    whole = fit(drawn, tmp_path / "whole", epochs=2)
    offer = FileCheckpoints.offer
    for stop in (1, 7, 14):
        left = [stop]

        def stopped(self, make, left=left):
            offer(self, make)
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        monkeypatch.setattr(FileCheckpoints, "offer", stopped)
        with pytest.raises(KeyboardInterrupt):
            fit(drawn, tmp_path / "work", epochs=2, checkpoint_seconds=0)
        monkeypatch.setattr(FileCheckpoints, "offer", offer)
        again = fit(drawn, tmp_path / "work", epochs=2)
        assert "Resumed from the checkpoint of an interrupted fit." in again.told
        assert_same_model(whole, again)


def test_a_checkpoint_of_other_settings_is_passed_over(tmp_path, drawn, monkeypatch):
    def refuse(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("visterm.learning.streamed_fit._learned", refuse)
    with pytest.raises(KeyboardInterrupt):
        fit(drawn, tmp_path / "work", epochs=2, checkpoint_seconds=0)
    monkeypatch.undo()
    assert (tmp_path / "work" / CHECKPOINT).exists()
    other = fit(drawn, tmp_path / "work", epochs=3)
    assert len(other.told) == 1  # the tags that were read, and not that it went on
    assert_same_model(other, fit(drawn, tmp_path / "work", epochs=3))


KILLED = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
import test_larger_than_memory as tests
offer, left = tests.FileCheckpoints.offer, iter(range(20))

def offer_and_hang(self, make):
    offer(self, make)
    if next(left, None) is None:
        print("hangs", flush=True)
        time.sleep(3600)

tests.FileCheckpoints.offer = offer_and_hang
tests.fit(Path(sys.argv[1]), Path(sys.argv[2]), epochs=4, checkpoint_seconds=0)
"""


def test_a_fit_that_was_killed_without_a_word_goes_on_to_the_same_bytes(tmp_path, drawn):
    folder = os.path.dirname(__file__)
    kept = tmp_path / "work" / CHECKPOINT
    command = [sys.executable, "-c", KILLED, drawn, tmp_path / "work"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout.readline() == b"hangs\n"
        finally:
            child.send_signal(signal.SIGKILL)
    assert kept.exists()
    again = fit(drawn, tmp_path / "work", epochs=4)
    assert "Resumed from the checkpoint of an interrupted fit." in again.told
    assert_same_model(again, fit(drawn, tmp_path / "whole", epochs=4))


def test_a_changed_shard_is_refused(tmp_path, drawn, encoder):
    planted = plant_corpus(n_train=100, n_test=1, n_tags=N_TAGS, random_state=5)
    write(tmp_path / "features", planted.X_train, encoder)
    shard = next((tmp_path / "features" / "data").glob("*000001.safetensors"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    (tmp_path / "tags.jsonl").write_bytes((drawn / "tags.jsonl").read_bytes())
    with pytest.raises(CorruptFileError, match="was changed since it was written"):
        fit(tmp_path, tmp_path / "work")


# -- commands ---------------------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_fit_and_annotate_stream_what_does_not_fit_and_say_so(tmp_path, drawn, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted = ["fit", drawn / "features", "--tags", drawn / "tags.jsonl", "--set", "epochs=2", "--model", "wsabie"]
    done = run(*fitted, "-o", "run", "--memory", "1M", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["run"], told["tags"], told["validation images"]) == ("run", 12, 60)
    assert "of 1 MB that may be used: streamed from disk in windows of 128 KB." in done.stderr
    assert "Learned 12 tags from 540 photos" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    done = run("annotate", "run", drawn / "features", "-k", "2", "--json")
    assert done.exit_code == 0, done.output
    items = [json.loads(line) for line in done.stdout.splitlines()]
    assert [item["image"] for item in items] == [name_of(i) for i in range(N)]
    tagger = Tagger.load("run")
    planted = plant_corpus(n_train=N, n_test=1, n_tags=N_TAGS, random_state=5)
    ids, _ = tagger.model.annotate(planted.X_train, 2)
    assert [[tag["tag"] for tag in item["tags"]] for item in items] == [
        [tagger.vocabulary.tags[i] for i in row] for row in ids
    ]


def test_what_fits_stays_in_memory_and_is_reported(tmp_path, drawn):
    fitted = ["fit", drawn / "features", "--tags", drawn / "tags.jsonl", "--set", "epochs=1", "--model", "vse_ens"]
    done = run(*fitted, "-o", tmp_path / "run", "--memory", "1G", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["images"] == 600
    assert "of 1.0 GB that may be used: held in memory." in done.stderr
    assert "Learned 12 tags from 600 photos" in done.stderr


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--model", "knn"], "the model 'knn' needs all in memory. Choose a --model that streams them (wsabie, "),
        (["--model", "wsabie", "--tag-rules", "RULES"], "max_share needs the tags of all images in memory"),
        (["--model", "wsabie", "--tree", "paths"], "or write the tags above each tag into the table yourself"),
        (["--model", "wsabie", "--tags", "auto"], "are read from a table, and 'auto' is not a table"),
        (["--model", "wsabie", "--memory", "lots"], "--memory is 'lots'"),
    ],
)
def test_what_cannot_stream_is_refused_with_the_way_out(tmp_path, drawn, more, told):
    rules = tmp_path.with_suffix(".toml")
    rules.write_text("max_share = 0.5\n", encoding="utf-8")
    more = [rules if word == "RULES" else word for word in more]
    done = run(
        "fit", drawn / "features", "--tags", drawn / "tags.jsonl", "-o", tmp_path / "run", "--memory", "1M", *more
    )
    assert isinstance(done.exception, VistermError)
    assert told in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_memory_is_said_of_features_only_and_features_are_annotated_alone(tmp_path, drawn):
    done = run("fit", tmp_path, "-o", tmp_path / "run", "--memory", "1G")
    assert "--memory is for features on disk" in str(done.exception)
    run("fit", drawn / "features", "--tags", drawn / "tags.jsonl", "--model", "prior", "-o", tmp_path / "run")
    done = run("annotate", tmp_path / "run", drawn / "features", "other.jpg")
    assert "is a features folder, which cannot be combined" in str(done.exception)
