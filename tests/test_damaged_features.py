"""A features folder whose JSON files say what cannot be is refused in one line that names the file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.core.errors import CorruptFileError
from visterm.core.persist import MANIFEST, file_hash
from visterm.core.vocabulary import Vocabulary
from visterm.data.feature_shards import Shard, read_shard, shard_bytes
from visterm.encoders.by_name import Ids
from visterm.features.folder import Contents, FeatureFolder, FirstJob, ShardEntry
from visterm.library.info import describe
from visterm.models.baselines import Prior
from visterm.tagging.tagger import Tagger


@pytest.fixture
def features(tmp_path):
    """A folder of features, without its shard."""
    folder = FeatureFolder(tmp_path / "features")
    folder.path.mkdir()
    encoder = Ids().fit(["a"])
    folder.save_encoder(encoder, FirstJob(encoder.fingerprint, 100))
    folder.begin()
    shard = ShardEntry("part-0.safetensors", 1, "0" * 64)
    folder.commit(Contents("photos", 1, 0, "ids", {}, "asked", "made", 1, "sparse", 100, [shard]), [])
    return folder


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_images", -1),
        ("settings", [1]),
        ("layout", "other"),
        ("shard_size", 0),
        ("shards", 5),
        ("shards", [{"file": "../../x", "rows": 1, "sha256": "0" * 64}]),
        ("shards", [{"file": "part", "rows": "many", "sha256": "0" * 64}]),
        ("shards", [{"file": "part", "rows": 1, "sha256": "0" * 64, "more": 1}]),
    ],
)
def test_a_manifest_of_other_types_is_refused(name, value, features):
    assert describe(features.path)["shards"] == 1
    manifest = json.loads((features.path / MANIFEST).read_text())
    (features.path / MANIFEST).write_text(json.dumps(manifest | {name: value}))
    with pytest.raises(CorruptFileError, match=MANIFEST) as refused:
        describe(features.path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [5, {"fingerprint": "x"}, {"fingerprint": "x", "shard_size": "big"}])
def test_a_damaged_note_of_what_was_requested_is_refused(value, features):
    folder = features.path / "encoder"
    (folder / "asked.json").write_text(json.dumps(value))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["sha256"]["asked.json"] = file_hash(folder / "asked.json")
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CorruptFileError, match=r"asked\.json"):
        features.load_encoder(1)


@pytest.mark.parametrize("value", [7, {"entry": 1, "skipped": []}, {"entry": None, "skipped": [{"image": 1}]}])
def test_a_damaged_note_of_a_shard_is_refused(value, features):
    features.begin()
    (features.unfinished / "shard.json").write_text(json.dumps(value))
    with pytest.raises(CorruptFileError, match=r"shard\.json"):
        features.notes()


@pytest.mark.parametrize(
    ("file", "value"),
    [
        ("encoder.json", []),
        ("encoder.json", {"name": "ids", "params": {}, "values": {"names_": 1}}),
        ("model.json", {"name": "prior", "params": 3, "values": {}}),
        ("model.json", {"name": "prior", "params": {}, "values": {"history_": {"value": 5}}}),
        ("facts.json", [1]),
    ],
)
def test_what_info_shows_of_a_damaged_run_is_refused(file, value, tmp_path):
    run = tmp_path / "run"
    model = Prior().fit(None, sp.csr_array(np.eye(2, dtype=np.float32)))
    Tagger.from_parts(Ids().fit(["a", "b"]), model, Vocabulary(["sea", "sky"])).save(run)
    assert describe(run)["model"] == "prior"
    (run / file).write_text(json.dumps(value))
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["sha256"][file] = file_hash(run / file)
    (run / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CorruptFileError, match=file) as refused:
        describe(run)
    assert "\n" not in str(refused.value)


def test_a_flipped_byte_of_a_shard_is_told_in_one_sentence_with_what_to_do(tmp_path):
    content = bytearray(shard_bytes(Shard(["a"] * 50, ["0" * 64] * 50, np.eye(50, dtype=np.float32))))
    told = []
    for place in range(0, len(content), 47):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        (tmp_path / "a.safetensors").write_bytes(damaged)
        try:
            read_shard(tmp_path / "a.safetensors")
        except CorruptFileError as error:
            told.append(str(error).removeprefix(str(tmp_path)))
    told = [message for message in told if "cannot be read as a shard of features" in message]
    assert told
    for message in told:
        assert message.endswith(". Restore it from a backup, or run the command that wrote it again.")
        assert ".." not in message
        assert "\n" not in message
