"""A run whose encoder or other files say what cannot be is refused in one line that names the file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from visterm.core.errors import CorruptFileError
from visterm.core.persist import MANIFEST, file_hash
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
