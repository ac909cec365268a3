"""A run whose encoder or other files say what cannot be is refused in one line that names the file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from tiny_catalogues import save_unchecked
from visterm.core.errors import CorruptFileError
from visterm.core.persist import MANIFEST, file_hash
from visterm.core.vocabulary import Vocabulary
from visterm.encoders.by_name import Ids, Precomputed
from visterm.models.baselines import Prior
from visterm.tagging.tagger import Tagger


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The files of a small run of visterms."""
    rng = np.random.default_rng(0)
    photos = list(rng.integers(0, 256, (8, 16, 16, 3), np.uint8))
    settings = {"colours": 4, "codebook": 12, "scales": (1.0,), "max_side": 16, "sample_blocks": 200}
    tagger = Tagger(encoder="visterms", encoder_params=settings, model="prior", n_jobs=1)
    run = tmp_path_factory.mktemp("runs") / "run"
    tagger.fit(photos, [["sea"], ["sky"]] * 4, calibrate=False).save(run)
    return {file.name: file.read_bytes() for file in run.iterdir()}


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("encoder.json", '"neighbours": 4', '"neighbours": 0'),
        ("encoder.json", '"levels": 1', '"levels": 2'),
        ("encoder.json", '"fitted_"', '"transform"'),
        ("vocabulary.json", '"sea"', "7"),
        ("vocabulary.json", '"counts"', '"count"'),
        ("facts.json", '"images": 8', '"images": "eight"'),
        ("facts.json", "{", "[" * 100_000),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_that_names_the_file(file, before, after, contents, tmp_path):
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    text = contents[file].decode()
    assert before in text
    (tmp_path / file).write_text(text.replace(before, after, 1))
    manifest = json.loads(contents[MANIFEST])
    manifest["sha256"] = {name: file_hash(tmp_path / name) for name in manifest["sha256"]}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CorruptFileError, match=file) as refused:
        Tagger.load(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_model_knows_no_more_images_by_number_than_its_encoder_names(tmp_path):
    np.save(tmp_path / "features.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "features.names.txt").write_text("a\nb\n")
    precomputed = Precomputed(path=str(tmp_path / "features.npy")).fit(["a", "b"])
    Y = sp.csr_array(np.array([[1, 0], [0, 1]], np.float32))
    for encoder in (Ids().fit(["a", "b"]), precomputed):
        model = Prior().fit(None, Y)
        tagger = Tagger.from_parts(encoder, model, Vocabulary(["sea", "sky"]))
        tagger.save(tmp_path / "sound", overwrite=True)
        assert Tagger.load(tmp_path / "sound").model.annotate(None, 1).ids.shape == (2, 1)
        model.n_features_in_ = 2**52
        save_unchecked(tagger, tmp_path / "damaged")
        with pytest.raises(CorruptFileError, match=r"the encoder (names 2|gives rows of 2 features)"):
            Tagger.load(tmp_path / "damaged")


def test_an_encoder_of_a_features_file_names_the_images_that_it_was_fitted_on(tmp_path):
    np.save(tmp_path / "features.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "features.names.txt").write_text("a\nb\n")
    encoder = Precomputed(path=str(tmp_path / "features.npy")).fit(["a", "b"])
    encoder.names_ = []
    model = Prior().fit(np.eye(2), sp.csr_array(np.eye(2, dtype=np.float32)))
    save_unchecked(Tagger.from_parts(encoder, model, Vocabulary(["sea", "sky"])), tmp_path / "run")
    with pytest.raises(CorruptFileError, match="names_ is empty; expected at least 1 image"):
        Tagger.load(tmp_path / "run")
