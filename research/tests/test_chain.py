"""The `chain` encoder: blocks that weigh alike, images read once, and encoders named in one line."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image

from tiny_networks import colour_network
from tiny_scenes import scene
from visterm.core.errors import DataError, UnknownNameError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import ENCODERS
from visterm.data import images as reading
from visterm.encoders import network as networks
from visterm.encoders.chain import Chain
from visterm.encoders.named import make_encoder, split_specs
from visterm.encoders.onnx import Onnx
from visterm.encoders.onnx_network import OnnxNetwork
from visterm.encoders.visterms import Visterms
from visterm.tagging.tagger import Tagger
from visterm_research.encoders.histograms import Histograms
from visterm_research.encoders.kernel_pca import KernelPca

WORDS = ("visterms", {"colours": 8, "codebook": 60, "sample_blocks": 2000})
COLOURS = ("histograms", {"colours": 8, "textons": 0, "scales": (1.0,), "levels": 1})


@pytest.fixture(scope="module")
def scenes():
    return [scene(("stripes", "dots")[i % 2], i) for i in range(16)]


@pytest.fixture
def files(tmp_path, scenes):
    paths = []
    for i, pixels in enumerate(scenes):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return str(colour_network(tmp_path_factory.mktemp("network") / "tiny.onnx"))


def blocks(encoder, images):
    """Take the rows apart, as arrays."""
    rows = encoder.transform(images)
    rows = rows.toarray() if sp.issparse(rows) else rows
    widths = [part.transform(images[:1]).shape[1] for part in encoder.parts_]
    assert rows.shape[1] == sum(widths)
    return np.split(rows, np.cumsum(widths)[:-1], axis=1)


def test_each_block_is_its_encoders_rows_times_one_factor(scenes):
    encoder = Chain(encoders=[WORDS, COLOURS], n_jobs=1).fit(scenes)
    alone = [Visterms(**WORDS[1]).fit(scenes).transform(scenes).toarray(), Histograms(**COLOURS[1]).fit(scenes)]
    alone[1] = alone[1].transform(scenes)
    for block, rows, factor in zip(blocks(encoder, scenes), alone, encoder.factors_, strict=True):
        np.testing.assert_allclose(block, rows * factor, rtol=1e-5)


def test_a_chain_passes_the_widths_of_its_blocks_to_models_that_compare_by_blocks(scenes):
    both = ("histograms", {"colours": 6, "textons": 5, "orientations": 2, "levels": 2, "sample_pixels": 300})
    tagger = Tagger(encoder="chain", encoder_params={"encoders": [WORDS, both]}, model="jec")
    tagger.fit(scenes, [["stripes"] if i % 2 == 0 else ["dots"] for i in range(len(scenes))])
    words, *counts = tagger.encoder.blocks
    assert words == tagger.encoder.parts_[0].transform(scenes[:1]).shape[1]
    assert counts == [6 * 5, 5 * 5, 6 * 5, 5 * 5]  # colours, textons; full size and half; 1 + 4 cells
    assert tagger.model.blocks_ == [words, *counts]
    assert len(tagger.model.scales_) == 5
    assert sum(tagger.model.blocks_) == tagger.encoder.transform(scenes[:1]).shape[1]


def test_a_model_keeps_the_blocks_that_it_was_given(scenes):
    model = {"blocks": [(0, 3), (2, 9)]}
    tagger = Tagger(encoder="chain", encoder_params={"encoders": [WORDS, COLOURS]}, model="jec", model_params=model)
    tagger.fit(scenes, [["stripes"] if i % 2 == 0 else ["dots"] for i in range(len(scenes))])
    assert tagger.model.blocks == [(0, 3), (2, 9)]


def test_blocks_weigh_alike_and_rows_are_about_one_long(scenes):
    parts = blocks(Chain(encoders=[WORDS, COLOURS]).fit(scenes), scenes)
    means = [np.linalg.norm(part, axis=1).mean() for part in parts]
    np.testing.assert_allclose(means, np.sqrt([0.5, 0.5]), rtol=1e-5)


def test_weights_say_how_long_the_blocks_are_beside_each_other(scenes):
    parts = blocks(Chain(encoders=[WORDS, COLOURS], weights=[3, 4]).fit(scenes), scenes)
    means = [np.linalg.norm(part, axis=1).mean() for part in parts]
    np.testing.assert_allclose(means, [0.6, 0.8], rtol=1e-5)


def test_an_encoder_that_gives_only_zeros_does_no_harm():
    same = [np.full((20, 20, 3), 9, np.uint8)] * 2  # each word is in all training images: idf 0
    encoder = Chain(encoders=[WORDS, COLOURS]).fit(same)
    assert encoder.factors_[0] == pytest.approx(np.sqrt(0.5))
    assert np.isfinite(encoder.transform(same).data).all()


def test_rows_are_sparse_where_that_is_smaller_and_arrays_if_all_encoders_give_arrays(scenes):
    many_words = ("visterms", {**WORDS[1], "codebook": 400, "sample_blocks": 20_000, "neighbours": 1})
    assert sp.issparse(Chain(encoders=[many_words, COLOURS]).fit(scenes).transform(scenes))
    few_words = ("visterms", {**WORDS[1], "codebook": 6})
    components = ("kernel_pca", {"encoder": COLOURS, "dim": 10})
    assert not sp.issparse(Chain(encoders=[few_words, components]).fit(scenes).transform(scenes))
    assert not sp.issparse(Chain(encoders=[COLOURS, COLOURS]).fit(scenes).transform(scenes))


def test_each_image_is_decoded_once_to_encode(files, monkeypatch):
    encoder = Chain(encoders=[WORDS, COLOURS, WORDS], n_jobs=1).fit(files)
    opened = []
    pixels = reading._pixels
    monkeypatch.setattr(reading, "_pixels", lambda path, *rest: opened.append(path) or pixels(path, *rest))
    encoder.transform(files)
    assert opened == [str(path) for path in files]


@pytest.fixture
def shown(monkeypatch):
    """The pictures that are shown to ONNX networks, one after the other."""
    pictures = []
    feed = OnnxNetwork.feed
    monkeypatch.setattr(OnnxNetwork, "_can_batch", False)  # To find that out, it is shown drawn pictures
    monkeypatch.setattr(OnnxNetwork, "feed", lambda self, picture: pictures.append(1) or feed(self, picture))
    return pictures


def loaded(encoder, folder):
    """The encoder as another process has it."""
    save_estimator(encoder, ENCODERS, folder, "encoder")
    return load_estimator(ENCODERS, folder, "encoder")


def test_to_learn_and_then_encode_shows_each_photo_to_a_network_once(files, network, shown, tmp_path):
    centre = ("onnx", {"path": network, "views": "centre"})
    encoder = Chain(encoders=[COLOURS, centre], n_jobs=1).fit(files)
    rows = encoder.transform(files)
    assert len(shown) == len(files)
    np.testing.assert_array_equal(loaded(encoder, tmp_path).transform(files), rows)
    assert len(shown) == 2 * len(files)
    Image.fromarray(scene("dots", 99)).save(files[0])
    again = encoder.transform(files)
    assert len(shown) == 2 * len(files) + 1
    assert not np.array_equal(again[0], rows[0])
    np.testing.assert_array_equal(again[1:], rows[1:])


def test_what_a_network_gave_is_kept_of_a_few_photos_only_and_of_that_network(files, network, shown, monkeypatch):
    monkeypatch.setattr(networks, "MAX_KEPT_OUTPUTS", 3)
    encoder = Onnx(path=network, views="centre", n_jobs=1).fit(files)
    rows = encoder.transform(files)
    assert len(shown) == 2 * len(files) - 4  # Four go through a network together
    np.testing.assert_array_equal(encoder.transform(files), rows)
    shown.clear()
    encoder.set_params(scale=0.5).transform(files)
    assert len(shown) == len(files), "with other settings, all are shown again"


def test_each_encoder_sees_images_of_the_size_that_it_asks_for(scenes):
    small, large = ("histograms", {**COLOURS[1], "max_side": 24}), ("histograms", {**COLOURS[1], "max_side": 64})
    encoder = Chain(encoders=[small, large]).fit(scenes)
    assert encoder._max_side == 64
    first, second = blocks(encoder, scenes)
    alone = Histograms(**small[1]).fit(scenes).transform(scenes) * encoder.factors_[0]
    np.testing.assert_allclose(first, alone, atol=0.05)  # reduced to 64 first, and then to 24
    assert np.abs(first - second).max() > 0.02


def test_an_image_that_cannot_be_read_has_no_row_in_any_block(files, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG cut off")
    encoder = Chain(encoders=[WORDS, COLOURS]).fit([*files, broken], skip_unreadable=True)
    rows, kept, skipped = encoder.encode([files[0], broken, files[1]])
    assert rows.shape[0] == 2
    assert kept.tolist() == [0, 2]
    assert [entry.image for entry in skipped] == [str(broken)]


def test_rows_made_elsewhere_stand_beside_those_of_pixels(files, scenes, tmp_path):
    made = np.random.default_rng(0).random((len(files), 5)).astype(np.float32)
    np.save(tmp_path / "rows.npy", made)
    (tmp_path / "rows.names.txt").write_text("\n".join(path.name for path in files))
    encoder = make_encoder(f"chain:precomputed:{tmp_path / 'rows.npy'}+visterms", {}, {"n_jobs": 1}).fit(files)
    block = blocks(encoder, files)[0]
    np.testing.assert_allclose(block, made * encoder.factors_[0], rtol=1e-6)
    rows = encoder.transform(files[::-1])
    np.testing.assert_allclose(rows[:, :5].toarray()[::-1] if sp.issparse(rows) else rows[::-1, :5], block, rtol=1e-6)
    with pytest.raises(DataError, match="looks up images by name"):
        encoder.transform(scenes)


def test_encoders_are_named_in_one_line_and_get_seed_and_threads(network, scenes):
    encoder = make_encoder(f"chain:histograms+onnx:{network}+visterms", {}, {"n_jobs": 2, "random_state": 5})
    parts = encoder._make_parts()
    assert [type(part) for part in parts] == [Histograms, Onnx, Visterms]
    assert parts[1].path == network
    assert [(part.n_jobs, part.random_state) for part in parts] == [(2, 5)] * 3


def test_kernel_pca_goes_into_a_chain_and_a_chain_into_kernel_pca(network):
    outer = make_encoder(f"chain:kernel_pca:histograms+onnx:{network}", {}, {})
    assert [type(part) for part in outer._make_parts()] == [KernelPca, Onnx]
    inner = make_encoder(f"kernel_pca:chain:visterms+onnx:{network}", {"kernel": "rbf"}, {})._make_parts()[0]
    assert [type(part) for part in inner._make_parts()] == [Visterms, Onnx]


def test_a_plus_in_a_path_splits_only_before_the_name_of_an_encoder():
    assert split_specs("onnx:a+b/c++.onnx+visterms+onnx:d") == ["onnx:a+b/c++.onnx", "visterms", "onnx:d"]
    assert split_specs("visterms+histogram") == ["visterms", "histogram"]


def test_settings_of_an_encoder_inside_win_over_those_that_are_shared(scenes):
    encoder = Chain(encoders=[("visterms", {**WORDS[1], "random_state": 9}), COLOURS], random_state=1, n_jobs=1)
    encoder.fit(scenes)
    assert [part.random_state for part in encoder.parts_] == [9, 1]
    encoder.set_params(n_jobs=2)
    assert [part.n_jobs for part in encoder.parts_] == [2, 2]


def test_the_same_encoders_have_one_fingerprint_however_they_are_given(scenes):
    given = [[COLOURS, "visterms"], [Histograms(**COLOURS[1]), Visterms()], [list(COLOURS), ["visterms", {}]]]
    assert len({Chain(encoders=encoders).fingerprint for encoders in given}) == 1
    assert Chain(encoders=[COLOURS]).fingerprint != Chain(encoders=[COLOURS, "visterms"]).fingerprint
    assert Chain(encoders=[COLOURS, COLOURS]).fingerprint != Chain(encoders=[COLOURS]).fingerprint


def test_encoders_given_as_objects_are_cloned_and_saved_by_name(scenes, tmp_path):
    given = Histograms(**COLOURS[1])
    encoder = KernelPca(encoder=Chain(encoders=[given, Visterms(**WORDS[1])]), dim=5).fit(scenes)
    assert not hasattr(given, "fitted_")
    save_estimator(encoder, ENCODERS, tmp_path, "encoder")
    loaded = load_estimator(ENCODERS, tmp_path, "encoder")
    assert loaded.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(loaded.transform(scenes), encoder.transform(scenes))


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_any_number_of_threads_and_any_batch_learns_and_encodes_the_same_bytes(scenes, n_jobs):
    one = Chain(encoders=[WORDS, COLOURS], n_jobs=1).fit(scenes)
    other = Chain(encoders=[WORDS, COLOURS], n_jobs=n_jobs, batch_size=3).fit(scenes)
    assert other.fingerprint == one.fingerprint
    np.testing.assert_array_equal(other.factors_, one.factors_)
    rows, expected = other.transform(scenes), one.transform(scenes)
    np.testing.assert_array_equal(
        *(each.toarray() if sp.issparse(each) else each for each in (rows, expected)), strict=True
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "encoders is None; expected one or more"),
        ({"encoders": []}, r"encoders is \[\]"),
        ({"encoders": ["ids", COLOURS]}, "'ids' knows images by number only"),
        (
            {"encoders": [COLOURS], "weights": [1, 2]},
            r"weights is \[1, 2\]; expected None, or 1 finite numbers above 0",
        ),
        ({"encoders": [COLOURS, COLOURS], "weights": [1, 0]}, "weights is"),
        ({"encoders": [COLOURS], "weights": "heavy"}, "weights is 'heavy'"),
        ({"encoders": [("histograms", {"colour": 3})]}, "The encoder histograms has no setting 'colour'"),
        ({"encoders": [COLOURS], "batch_size": 0}, "batch_size is 0"),
    ],
)
def test_what_cannot_be_chained_is_named_with_what_can(scenes, params, message):
    with pytest.raises(UserError, match=message):
        Chain(**params).fit(scenes[:3])


def test_an_unknown_name_in_a_chain_is_reported_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"Unknown encoder 'histogram'\. Did you mean 'histograms'"):
        make_encoder("chain:visterms+histogram", {}, {})._make_parts()
