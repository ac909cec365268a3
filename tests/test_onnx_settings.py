"""What an ONNX network wants stands in a JSON file beside it, in its metadata or in its input; parameters win."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tiny_networks import WEIGHTS, colour_network
from visterm.core.errors import DataError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import ENCODERS
from visterm.encoders.onnx import Onnx

PLAIN = {"root": False, "centre": False, "normalise": False}
COLOUR = (10, 50, 130)


def picture(colour, height=8, width=8):
    return np.full((height, width, 3), colour, np.uint8)


def beside(network, settings):
    network.with_suffix(".json").write_text(settings if isinstance(settings, str) else json.dumps(settings))


def row_of(network, image=None, **params):
    return Onnx(path=network, **PLAIN, **params).fit_transform([picture(COLOUR) if image is None else image])[0]


@pytest.fixture
def network(tmp_path):
    """A float network of any size, whose row is the mean colour as it gets it."""
    return colour_network(
        tmp_path / "net.onnx", dtype="float32", channels_last=False, size="S", weights=np.eye(3, dtype=np.float32)
    )


@pytest.fixture
def network_of_pixels(tmp_path):
    return colour_network(tmp_path / "pixels.onnx", weights=np.eye(3, dtype=np.float32))


def test_the_file_beside_the_network_says_what_numbers_it_takes(network):
    beside(network, {"mean": 1, "std": [1, 2, 4], "scale": 0.1, "size": [8, 6]})
    np.testing.assert_allclose(row_of(network), [0, 2, 3], atol=1e-6)


def test_a_parameter_wins_over_the_file(network):
    beside(network, {"mean": 1, "std": [1, 2, 4], "scale": 0.1, "size": 8})
    np.testing.assert_allclose(row_of(network, mean=0, std=(1, 1, 2)), [1, 5, 6.5], atol=1e-6)


@pytest.mark.parametrize("channels_last", [False, True])
def test_colours_go_in_as_the_file_orders_them_after_mean_and_std_of_their_own(tmp_path, channels_last):
    for dtype, expected in [("float32", [3, 2, 0]), ("uint8", [130, 50, 10])]:
        path = colour_network(
            tmp_path / f"{dtype}.onnx", dtype=dtype, channels_last=channels_last, weights=np.eye(3, dtype=np.float32)
        )
        beside(path, {"colours": "BGR", "mean": 1, "std": [1, 2, 4], "scale": 0.1})
        np.testing.assert_allclose(row_of(path), expected, atol=1e-6)


def test_the_file_names_the_output(tmp_path):
    path = colour_network(tmp_path / "net.onnx", outputs=("logits", "negated"))
    beside(path, {"output": "negated"})
    assert row_of(path)[0] == -10
    assert row_of(path, output="logits")[0] == 10


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
def test_the_file_says_where_the_channels_are_if_the_input_does_not(tmp_path, layout):
    path = colour_network(
        tmp_path / "net.onnx",
        dtype="float32",
        channels_last=layout == "channels_last",
        size=("H", "W"),
        channels="C",
        weights=np.eye(3, dtype=np.float32),
    )
    beside(path, {"layout": layout, "mean": 0, "std": 1, "scale": 1, "size": 8})
    np.testing.assert_allclose(row_of(path), COLOUR, rtol=1e-6)


def test_a_layout_that_contradicts_the_input_is_refused(network):
    with pytest.raises(UserError, match="expected images of 3 channels laid out with channels_last"):
        row_of(network.parent / colour_network(network, channels_last=False), layout="channels_last")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"means": 1}, r"Unknown key 'means'. Did you mean 'mean'\?"),
        ({"mean": [1, 2]}, "mean is .1, 2.; expected a number, or three"),
        ({"std": 0}, "std is 0; expected numbers above 0"),
        ({"scale": "big"}, "scale is 'big'"),
        ({"size": [224]}, "size is .224.; expected a whole number"),
        ({"size": "224"}, "size is '224'"),
        ({"colours": "GBR"}, "colours is 'GBR'; expected one of: RGB, BGR"),
        ({"layout": "NCHW"}, "layout is 'NCHW'; expected one of channels_first, channels_last"),
        ({"interpolation": "area"}, "expected one of: bilinear, bicubic, lanczos"),
        ({"crop": 1.5}, "crop is 1.5; expected a number above 0 and at most 1"),
        ({"output": 3}, "output is 3; expected the name"),
        ([1], "holds a list; expected a JSON object"),
        ("{mean: 1}", "is not JSON"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused_by_name(network, settings, words):
    beside(network, settings)
    with pytest.raises(DataError, match=rf"net\.json.*{words}"):
        row_of(network)


def test_the_file_is_part_of_the_fingerprint(network):
    plain = Onnx(path=network, size=8)
    fingerprints = [plain.fingerprint]
    for settings in ({"mean": 0}, {"mean": 0.5}):
        beside(network, settings)
        fingerprints += [plain.fingerprint, Onnx(path=network, size=8).fit([picture(COLOUR)]).fingerprint]
    assert len(set(fingerprints)) == 5


def test_a_fitted_encoder_keeps_to_what_the_file_said(network, tmp_path):
    beside(network, {"mean": 1, "size": 8})
    encoder = Onnx(path=network, **PLAIN).fit([picture(COLOUR)])
    expected = encoder.transform([picture(COLOUR)])
    save_estimator(encoder, ENCODERS, tmp_path, "encoder")
    beside(network, {"mean": 2, "size": 8})
    loaded = load_estimator(ENCODERS, tmp_path, "encoder")
    assert loaded.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(loaded.transform([picture(COLOUR)]), expected)
    assert encoder.fit_transform([picture(COLOUR)])[0, 0] != expected[0, 0]


@pytest.mark.parametrize(
    ("range_of_numbers", "expected"),
    [
        ("NominalRange_0_255", [10, 50, 130]),
        ("Normalized_0_1", [10 / 255, 50 / 255, 130 / 255]),
        ("Normalized_1_1", [10 / 127.5 - 1, 50 / 127.5 - 1, 130 / 127.5 - 1]),
    ],
)
def test_image_metadata_in_the_network_is_read_and_the_file_beside_it_wins(network, range_of_numbers, expected):
    metadata = {"Image.BitmapPixelFormat": "Bgr8", "Image.NominalPixelRange": range_of_numbers}
    colour_network(network, dtype="float32", weights=np.eye(3, dtype=np.float32), metadata=metadata)
    np.testing.assert_allclose(row_of(network), expected[::-1], rtol=1e-5)
    beside(network, {"colours": "RGB"})
    np.testing.assert_allclose(row_of(network), expected, rtol=1e-5)


def test_a_wide_network_sees_wide_pictures(tmp_path):
    path = colour_network(tmp_path / "wide.onnx", size=(4, 8))
    red, green, blue = (picture(colour) for colour in [(200, 0, 0), (0, 100, 0), (0, 0, 50)])
    tall = np.concatenate([red, green, blue])  # 24 high, 8 wide: pictures of 4 high, 8 wide are cut out
    np.testing.assert_array_equal(row_of(path, tall, views="centre")[:3], [0, 100, 0])
    whole = row_of(path, tall, views="whole")
    np.testing.assert_allclose(whole[:3], [200 / 3, 100 / 3, 50 / 3], rtol=0.1)
    ends = np.array([200, 0, 50, 150])
    np.testing.assert_allclose(row_of(path, tall, views="three"), (whole + ends) / 3, rtol=1e-5)


def test_a_photo_of_the_networks_own_shape_has_one_view(tmp_path):
    path = colour_network(tmp_path / "wide.onnx", size=(4, 8))
    photo = np.random.default_rng(0).integers(0, 256, (30, 60, 3), dtype=np.uint8)
    rows = [row_of(path, photo, views=views) for views in ("three", "whole", "centre", "trained")]
    assert all(row.tobytes() == rows[0].tobytes() for row in rows)


def test_the_trained_view_is_the_middle_that_the_network_was_evaluated_on(network_of_pixels):
    photo = picture((200, 0, 0), 16, 16)
    photo[4:12, 4:12] = (0, 100, 0)
    assert row_of(network_of_pixels, photo, views="centre")[0] > 100
    beside(network_of_pixels, {"crop": 0.5})
    np.testing.assert_array_equal(row_of(network_of_pixels, photo, views="trained"), [0, 100, 0])
    beside(network_of_pixels, {"crop": None})
    whole = row_of(network_of_pixels, photo, views="whole")
    np.testing.assert_array_equal(row_of(network_of_pixels, photo, views="trained"), whole)


def test_photos_are_resized_by_the_filter_that_is_named(network_of_pixels):
    photo = np.random.default_rng(1).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    plain = row_of(network_of_pixels, photo)
    assert (row_of(network_of_pixels, photo, interpolation="bilinear") == plain).all()
    beside(network_of_pixels, {"interpolation": "bicubic"})
    assert (row_of(network_of_pixels, photo) != plain).any()


def test_mean_colours_of_a_network_beside_no_file_stay_imagenets(tmp_path):
    path = colour_network(tmp_path / "net.onnx", dtype="float32")
    expected = ((np.array(COLOUR) / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)) @ WEIGHTS
    np.testing.assert_allclose(row_of(path), expected, rtol=1e-5)
