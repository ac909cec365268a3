"""The onnx encoder shows photos to a network as it wants them, and makes rows of what it gives."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import onnx
import pytest
from sklearn.base import clone

from refusals import refused
from tiny_networks import WEIGHTS, colour_network, greedy_network, sum_network
from visterm.core.errors import DataError, EncoderMismatchError, StorageError, UnknownNameError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import ENCODERS
from visterm.encoders.onnx import Onnx
from visterm.encoders.onnx_network import OnnxNetwork
from visterm.encoders.preparation import IMAGENET_MEAN, IMAGENET_STD, channels_last, pooled

PLAIN = {"root": False, "centre": False, "normalise": False}
RED, GREEN, BLUE = (200, 0, 0), (0, 100, 0), (0, 0, 50)


def picture(colour, height=8, width=8):
    return np.full((height, width, 3), colour, np.uint8)


def striped(*colours, side=8):
    """Squares of one colour each, side by side."""
    return np.concatenate([picture(colour, side, side) for colour in colours], axis=1)


@pytest.fixture
def network(tmp_path):
    return colour_network(tmp_path / "net.onnx")


@pytest.fixture
def photos():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in [(8, 8), (20, 30), (40, 11), (9, 9), (8, 64)]]


def test_pixels_go_into_a_uint8_network_as_they_are(network):
    rows = Onnx(path=network, **PLAIN).fit_transform([picture((10, 20, 30)), picture(RED)])
    np.testing.assert_allclose(rows, [[10, 20, 30, 0], [200, 0, 0, 200]], rtol=1e-6)
    assert rows.dtype == np.float32


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_colours_of_a_float_network_are_scaled_as_imagenets_networks_are_trained(tmp_path, dtype, channels_last):
    path = colour_network(tmp_path / "net.onnx", dtype=dtype, channels_last=channels_last)
    rows = Onnx(path=path, **PLAIN).fit_transform([picture((51, 102, 204))])
    colour = (np.array([0.2, 0.4, 0.8]) - IMAGENET_MEAN) / IMAGENET_STD
    np.testing.assert_allclose(rows, [colour @ WEIGHTS], rtol=1e-5 if dtype == "float32" else 1e-2)


def test_mean_std_and_scale_are_the_users(tmp_path):
    path = colour_network(tmp_path / "net.onnx", dtype="float32", channels_last=False)
    rows = Onnx(path=path, mean=1, std=[1, 2, 4], scale=0.1, **PLAIN).fit_transform([picture((10, 50, 130))])
    np.testing.assert_allclose(rows, [[0, 2, 3, -1]], atol=1e-6)


@pytest.mark.parametrize("setting", [{"mean": (1, 2)}, {"mean": "grey"}, {"std": 0}, {"std": (1, 1, -1)}])
def test_colours_that_cannot_be_are_refused(network, setting):
    [(name, value)] = setting.items()
    with refused(name, value=value):
        Onnx(path=network, **setting).fit([picture(RED)])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("output", ["maps", "tokens"])
def test_maps_and_tokens_are_averaged_to_the_row_of_the_features(tmp_path, output, channels_last, photos):
    path = colour_network(
        tmp_path / "net.onnx", dtype="float32", channels_last=channels_last, outputs=("features", output)
    )
    expected = Onnx(path=path, output="features").fit_transform(photos)
    np.testing.assert_allclose(Onnx(path=path, output=output).fit_transform(photos), expected, atol=1e-5)


SQUARE = np.random.default_rng(5).normal(size=(3, 8)).astype(np.float32)
"""As many features as rows and columns of the pictures."""


@pytest.mark.parametrize("size", [8, (8, 12)])
def test_maps_with_channels_first_of_pictures_with_channels_last_are_averaged_over_places(tmp_path, size, photos):
    path = colour_network(tmp_path / "net.onnx", outputs=("features", "maps_first"), size=size)
    expected = Onnx(path=path, output="features").fit_transform(photos)
    np.testing.assert_allclose(Onnx(path=path, output="maps_first").fit_transform(photos), expected, atol=1e-5)


def test_the_layout_is_requested_where_nothing_says_which_axis_of_a_map_is_the_channels(tmp_path, photos):
    path = colour_network(tmp_path / "net.onnx", outputs=("features", "maps_first"), weights=SQUARE)
    with refused("layout"):
        Onnx(path=path, output="maps_first").fit(photos)
    expected = Onnx(path=path, output="features").fit_transform(photos)
    told = Onnx(path=path, output="maps_first", layout=("channels_last", "channels_first"))
    np.testing.assert_allclose(told.fit_transform(photos), expected, atol=1e-5)
    with refused("layout", value=("channels_last", "NCHW")):
        told.set_params(layout=("channels_last", "NCHW")).fit(photos)


@pytest.mark.parametrize(
    ("axes", "size", "last"),
    [
        ((1280, 7, 7), (224, 224), False),
        ((7, 7, 1280), (224, 224), True),
        ((64, 56, 56), (224, 224), False),
        ((1280, 1, 1), (224, 224), False),
        ((1, 1, 1280), (224, 224), True),
        ((10, 8, 16), (256, 512), False),
        ((8, 16, 10), (250, 500), True),
        ((4, 7, 5), (224, 150), False),
        ((7, 7, 7), (224, 224), False),  # as pictures with channels first
    ],
)
def test_the_axes_of_a_map_say_which_are_height_and_width(axes, size, last):
    assert channels_last(axes, size, pictures_last=False, label="It") == last


def test_rows_are_rooted_centred_and_of_length_one(network):
    images = [picture((4, 16, 25)), picture((100, 36, 81))]
    encoder = Onnx(path=network, output="features").fit(images)
    assert not encoder.rooted_  # the fourth feature of the first photo is 4 + 16 - 25
    path = colour_network(network.with_name("positive.onnx"), weights=np.eye(3, dtype=np.float32))
    encoder = Onnx(path=path).fit(images)
    assert encoder.rooted_
    np.testing.assert_allclose(encoder.centre_, [6, 5, 7], rtol=1e-6)
    np.testing.assert_allclose(encoder.transform(images), np.array([[-4, -1, -2], [4, 1, 2]]) / 21**0.5, rtol=1e-5)


def test_features_that_were_never_negative_may_become_so_later(tmp_path):
    path = colour_network(tmp_path / "net.onnx")
    encoder = Onnx(path=path, centre=False, normalise=False).fit([picture(RED)])
    assert encoder.rooted_
    np.testing.assert_allclose(encoder.transform([picture((0, 0, 49))]), [[0, 0, 7, -7]], rtol=1e-6)


def test_a_row_of_zeros_stays_one(network):
    rows = Onnx(path=network, centre=False).fit([picture(RED)]).transform([picture((0, 0, 0))])
    assert (rows == 0).all()


def test_the_whole_photo_is_squeezed_and_the_centre_cut_out(network):
    photo = striped(RED, GREEN, BLUE)
    whole, centre = (Onnx(path=network, views=v, **PLAIN).fit_transform([photo])[0] for v in ("whole", "centre"))
    np.testing.assert_allclose(whole[:3], np.add(np.add(RED, GREEN), BLUE) / 3, rtol=0.02)
    np.testing.assert_array_equal(centre[:3], GREEN)
    upright = Onnx(path=network, views="centre", **PLAIN).fit_transform([photo.transpose(1, 0, 2)])[0]
    np.testing.assert_array_equal(upright, centre)


def test_three_views_are_the_mean_of_the_whole_and_both_ends(network):
    photo = striped(RED, GREEN, BLUE)
    three, whole = (Onnx(path=network, views=v, **PLAIN).fit_transform([photo])[0] for v in ("three", "whole"))
    np.testing.assert_allclose(three, (whole + np.array([*RED, 200]) + np.array([*BLUE, -50])) / 3, rtol=1e-5)


def test_a_square_photo_has_one_view(network, photos):
    rows = [
        Onnx(path=network, views=v, **PLAIN).fit(photos).transform(photos[:1]) for v in ("three", "whole", "centre")
    ]
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[0], rows[2])


def test_unknown_views_are_refused_with_those_that_are_known(network):
    with refused("views", value="five"):
        Onnx(path=network, views="five").fit([picture(RED)])


def test_bytes_are_the_same_for_any_threads_and_any_company(tmp_path, photos):
    path = colour_network(tmp_path / "net.onnx", dtype="float32", size="S")
    encoders = [Onnx(path=path, n_jobs=j, batch_size=b).fit(photos) for j, b in [(1, 32), (2, 32), (2, 1), (1, 2)]]
    rows = [encoder.transform(photos) for encoder in encoders]
    assert all(row.tobytes() == rows[0].tobytes() for row in rows)
    assert len({encoder.fingerprint for encoder in encoders}) == 1
    assert b"".join(encoders[0].transform([photo]).tobytes() for photo in photos) == rows[0].tobytes()


@pytest.mark.parametrize(
    ("output", "large", "calls"),
    [("features", False, [2, 2, 1]), ("features", True, [4, 1]), ("likened", True, [1, 1, 1, 1, 1])],
)
def test_pictures_go_through_together_only_where_that_changes_no_byte(
    tmp_path, photos, monkeypatch, output, large, calls
):
    monkeypatch.setattr("visterm.encoders.onnx_network.LARGE_NETWORK", 0 if large else 2**26)
    network = OnnxNetwork(str(colour_network(tmp_path / "net.onnx", outputs=(output,))), {"output": output})
    shown = np.stack([photo[:8, :8] for photo in photos])
    rows, run, sizes = network.rows(shown), network._run, []
    assert np.concatenate([network.rows(picture[None]) for picture in shown]).tobytes() == rows.tobytes()
    monkeypatch.setattr(network, "_run", lambda some: sizes.append(len(some)) or run(some))
    network.rows(shown)
    assert sizes == calls


def test_the_only_output_or_the_one_named_as_features_is_read_unasked(tmp_path):
    images = [picture((10, 20, 30))]
    only = colour_network(tmp_path / "only.onnx", outputs=("negated",))
    assert Onnx(path=only, **PLAIN).fit_transform(images)[0, 0] == -10
    several = colour_network(tmp_path / "several.onnx", outputs=("negated", "embedding"))
    assert Onnx(path=several, **PLAIN).fit_transform(images)[0, 0] == 10
    assert Onnx(path=several, output="negated", **PLAIN).fit_transform(images)[0, 0] == -10


def test_several_outputs_of_which_none_looks_like_features_are_listed(tmp_path):
    path = colour_network(tmp_path / "net.onnx", outputs=("logits", "negated"))
    with refused("output", value=None):
        Onnx(path=path).fit([picture(RED)])


def test_an_output_that_is_not_there_is_refused_with_the_nearest(network):
    with pytest.raises(UnknownNameError, match=r"'feature'.*Did you mean 'features'"):
        Onnx(path=network, output="feature").fit([picture(RED)])


@pytest.mark.parametrize(("output", "words"), [("total", "has the shape"), ("nothing", "NaN or infinity")])
def test_outputs_that_make_no_row_are_refused(tmp_path, output, words):
    path = colour_network(tmp_path / "net.onnx", outputs=("features", output))
    with pytest.raises(DataError, match=words):
        Onnx(path=path, output=output).fit([picture(RED)])


@pytest.mark.parametrize("shape", [(1, 0), (1, 0, 3), (1, 3, 0), (1, 0, 2, 2)])
def test_outputs_without_a_number_are_refused(shape):
    with pytest.raises(DataError, match=r"The output 'y' has the shape \(1, .*Choose another output"):
        pooled(np.zeros(shape, np.float32), 1, "The output 'y'")


def size_of(encoder):
    return encoder._open().preparation.size


def test_the_size_is_the_networks_or_where_it_takes_any_the_users(tmp_path, network):
    free = colour_network(tmp_path / "free.onnx", size="S")
    images = [striped(RED, BLUE)]
    assert size_of(Onnx(path=free, size=5).fit(images)) == (5, 5)
    assert size_of(Onnx(path=free, size=(4, 6)).fit(images)) == (4, 6)
    assert size_of(Onnx(path=free).fit(images)) == (224, 224)
    assert size_of(Onnx(path=network).fit(images)) == (8, 8)
    with refused("size", value=9):
        Onnx(path=network, size=9).fit(images)
    with refused("size", value=0):
        Onnx(path=free, size=0).fit(images)


def test_a_network_for_one_image_gives_the_same_rows(tmp_path, network, photos):
    fixed = colour_network(tmp_path / "fixed.onnx", batch=1)
    np.testing.assert_array_equal(
        Onnx(path=fixed, **PLAIN).fit_transform(photos), Onnx(path=network, **PLAIN).fit_transform(photos)
    )


@pytest.mark.parametrize(
    "inputs",
    [{"a": [1, 8, 8, 3], "b": [1, 8, 8, 3]}, {"a": [1, 12]}, {"a": [1, 8, 8, 4]}, {"a": [3, 8, 8, 3]}, {"a": []}],
)
def test_a_network_that_takes_no_images_is_refused_with_what_it_takes(tmp_path, inputs):
    path = sum_network(tmp_path / "sum.onnx", inputs=inputs)
    with pytest.raises(UserError, match=r"takes a tensor\(float\).*expected"):
        Onnx(path=path).fit([picture(RED)])


def test_without_a_network_the_message_says_how_to_give_one():
    with refused("path") as refusal:
        Onnx().fit([picture(RED)])
    assert str(refusal.value).endswith("Name it: `encoder` onnx:PATH, or `encoder.path`=PATH.")


def test_nothing_is_opened_before_the_first_use(tmp_path):
    encoder = Onnx(path=tmp_path / "none.onnx")
    with pytest.raises(StorageError, match=r"no file .*none\.onnx"):
        encoder.fit([picture(RED)])
    (tmp_path / "none.onnx").write_bytes(b"not a network")
    with pytest.raises(StorageError, match="cannot be opened as an ONNX network"):
        encoder.fit([picture(RED)])


def test_the_fingerprint_names_the_content_of_the_network_and_not_its_place(tmp_path, network):
    copied = tmp_path / "elsewhere" / "other.onnx"
    copied.parent.mkdir()
    copied.write_bytes(network.read_bytes())
    other = colour_network(tmp_path / "changed.onnx", weights=2 * WEIGHTS)
    assert Onnx(path=network).fingerprint == Onnx(path=copied).fingerprint != Onnx(path=other).fingerprint
    fitted = [Onnx(path=path).fit([picture(RED)]).fingerprint for path in (network, copied, other)]
    assert fitted[0] == fitted[1] != fitted[2]


def test_weights_in_a_file_beside_the_network_are_part_of_the_fingerprint(tmp_path, photos):
    path = colour_network(tmp_path / "net.onnx", weights_beside="net.onnx.data")
    encoder = Onnx(path=path, **PLAIN)
    rows, first = encoder.fit_transform(photos), encoder.fingerprint
    inside = Onnx(path=colour_network(tmp_path / "inside.onnx"), **PLAIN)
    np.testing.assert_array_equal(inside.fit_transform(photos), rows)
    graph = path.read_bytes()
    colour_network(path, weights=2 * WEIGHTS, weights_beside="net.onnx.data")
    assert path.read_bytes() == graph
    with pytest.raises(EncoderMismatchError, match=r"net\.onnx has changed"):
        copy.deepcopy(encoder).transform(photos)
    again = Onnx(path=path, **PLAIN)
    np.testing.assert_array_equal(again.fit_transform(photos), 2 * rows)
    assert again.fingerprint != first
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(StorageError, match=r"net\.onnx keeps weights in net\.onnx\.data, which is not at"):
        Onnx(path=path).fit(photos)


def saved_and_loaded(encoder, folder):
    folder.mkdir(exist_ok=True)
    save_estimator(encoder, ENCODERS, folder, "encoder")
    return load_estimator(ENCODERS, folder, "encoder")


def test_a_saved_encoder_finds_its_network_from_another_working_folder(tmp_path, network, photos, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder = Onnx(path="net.onnx").fit(photos)
    loaded = saved_and_loaded(encoder, tmp_path / "run")
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    assert loaded.transform(photos).tobytes() == encoder.transform(photos).tobytes()


def test_a_saved_encoder_whose_network_is_gone_says_where_it_should_be(tmp_path, network, photos):
    encoder = Onnx(path=network).fit(photos)
    expected = encoder.transform(photos)
    loaded = saved_and_loaded(encoder, tmp_path / "run")
    moved = network.rename(tmp_path / "moved.onnx")
    assert loaded.fingerprint == encoder.fingerprint
    with pytest.raises(StorageError, match=r"not at .*net\.onnx.*Put it back"):
        loaded.transform(photos)
    np.testing.assert_array_equal(loaded.set_params(path=moved).transform(photos), expected)


def test_a_saved_encoder_refuses_a_network_that_was_changed(tmp_path, network, photos):
    loaded = saved_and_loaded(Onnx(path=network).fit(photos), tmp_path / "run")
    colour_network(network, weights=2 * WEIGHTS)
    with pytest.raises(EncoderMismatchError, match=r"net\.onnx has changed.*fit again"):
        loaded.transform(photos)


def test_fitting_again_takes_the_network_as_it_is_now(network):
    encoder = Onnx(path=network, **PLAIN)
    assert encoder.fit_transform([picture(RED)])[0, 0] == 200
    colour_network(network, weights=3 * WEIGHTS)
    assert encoder.fit_transform([picture(RED)])[0, 0] == 600


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda encoder: pickle.loads(pickle.dumps(encoder))])
def test_a_copy_works_without_the_session(network, photos, duplicate):
    encoder = Onnx(path=network).fit(photos)
    copied = duplicate(encoder)
    assert not any("opened" in name for name in vars(copied))
    assert copied.transform(photos).tobytes() == encoder.transform(photos).tobytes()


def test_a_clone_has_the_settings_and_nothing_learned(network, photos):
    copied = clone(Onnx(path=network, views="centre").fit(photos))
    assert copied.get_params() == Onnx(path=network, views="centre").get_params()
    assert not hasattr(copied, "network_sha256_")


@pytest.mark.shared
def test_mobilenet_gives_rows_of_length_one_and_sees_what_photos_share(shared):
    photos = sorted((shared / "data/corel5k/images").iterdir())[:12]
    encoder = Onnx(path=shared / "models/mobilenet_v2.onnx", views="whole").fit(photos)
    rows = encoder.transform(photos)
    assert rows.shape == (12, 1280)
    assert encoder.rooted_
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("runs", [False, True])
def test_a_network_that_asks_for_more_memory_than_there_is_is_named(tmp_path, runs, capfd):
    path = greedy_network(tmp_path / "greedy.onnx", 4 * 10**14, runs=runs)
    with pytest.raises(StorageError, match=rf"^{re.escape(str(path))} cannot be .*: it asks for 1600000\.0 GB"):
        Onnx(path=path).fit([np.zeros((8, 8, 3), np.uint8)])
    assert capfd.readouterr() == ("", "")


def test_weights_beside_a_network_that_are_larger_than_memory_are_refused(tmp_path):
    path = colour_network(tmp_path / "net.onnx", weights_beside="weights.bin")
    model = onnx.load(path, load_external_data=False)
    (weights,) = [each for each in model.graph.initializer if each.name == "weights"]
    weights.dims[1] = 4 * 10**14
    for entry in weights.external_data:
        entry.value = str(3 * weights.dims[1] * 4) if entry.key == "length" else entry.value
    path.write_bytes(model.SerializeToString())
    with pytest.raises(StorageError, match=rf"^{re.escape(str(path))} cannot be "):
        Onnx(path=path).fit([np.zeros((8, 8, 3), np.uint8)])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_pictures_that_no_memory_holds_are_refused(tmp_path, dtype):
    path, photo = tmp_path / "net.onnx", np.zeros((8, 8, 3), np.uint8)
    for size in (200_000, (8, 200_000)):
        colour_network(path, dtype=dtype, size=size)
        with pytest.raises(UserError, match=rf"^{re.escape(str(path))}: size is \(.*200000\); expected .* 1 to 8192"):
            Onnx(path=path).fit([photo])
    colour_network(path, dtype=dtype, batch=10**9)
    with pytest.raises(UserError, match="for one image or any number of images"):
        Onnx(path=path).fit([photo])
    colour_network(path, dtype=dtype, size="S")
    with refused("size", value=200_000):
        Onnx(path=path, size=200_000).fit([photo])


def test_names_in_a_network_that_are_no_utf_8_are_refused(tmp_path, capfd):
    path = colour_network(tmp_path / "net.onnx", metadata={"Image.BitmapPixelFormat": "Rgb8"})
    whole = path.read_bytes()
    for name in (b"image", b"features", b"Rgb8"):
        path.write_bytes(whole.replace(name, b"\xff" + name[1:]))
        with pytest.raises(StorageError, match=rf"^{re.escape(str(path))} cannot be opened as an ONNX network"):
            Onnx(path=path).fit([np.zeros((8, 8, 3), np.uint8)])
    assert capfd.readouterr() == ("", "")
