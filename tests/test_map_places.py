"""What each cell of a feature map gave to a network's row, for outputs that are averages of maps."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
import scipy.sparse as sp
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tiny_networks import WEIGHTS, colour_network
from visterm.core.errors import MissingExtraError, StorageError, UserError
from visterm.encoders.chain import Chain
from visterm.encoders.onnx import Onnx
from visterm.encoders.onnx_graph import averaged_into, with_outputs
from visterm.tagging.explain import explain, heat
from visterm.tagging.tagger import Tagger

pytestmark = pytest.mark.usefixtures("plugin")

LINEAR = {"root": False}


def pooled_network(path, *, last=("GlobalAveragePool", "Flatten"), size=8, seed=0, relu=True):
    """Write a network of one convolution (stride 2) that ends in some steps; "map" is the tensor before them."""
    rng = np.random.default_rng(seed)
    made = [
        helper.make_node("Cast", ["image"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["floats"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "weights"], ["conv"], strides=[2, 2], kernel_shape=[2, 2]),
        helper.make_node("Relu" if relu else "Identity", ["conv"], ["map"]),
    ]
    name = "map"
    for number, step in enumerate(last):
        inputs, settings = [name], {}
        if step == "ReduceMean":
            settings = {"axes": [2, 3], "keepdims": 0}
        elif step == "Gemm":
            inputs.append("matrix")
        elif step == "Reshape":
            inputs.append("shape")
        elif step == "AveragePool":
            settings = {"kernel_shape": [size // 2, size // 2]}
        name = f"step{number}" if number < len(last) - 1 else "features"
        made.append(helper.make_node(step, inputs, [name], **settings))
    graph = helper.make_graph(
        made,
        "pooled",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["N", size, size, 3])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array((rng.normal(size=(5, 3, 2, 2)) / 100).astype(np.float32), "weights"),
            numpy_helper.from_array(rng.normal(size=(5, 4)).astype(np.float32), "matrix"),
            numpy_helper.from_array(np.array([0, -1], np.int64), "shape"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture
def photos():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (*shape, 3), np.uint8) for shape in [(8, 8), (20, 30), (40, 11), (9, 9), (8, 64)]]


def assert_sums_to_the_row(encoder, photo, atol=1e-5):
    seen = encoder.places(photo)
    np.testing.assert_allclose(seen.rows.sum(axis=0) + seen.elsewhere, encoder.transform([photo])[0], atol=atol)
    return seen


@pytest.mark.parametrize("settings", [{}, {"centre": False}, {"normalise": False}, {"centre": False, "views": "whole"}])
@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("views", ["three", "whole", "centre", "trained"])
def test_what_the_cells_gave_and_the_mean_sum_to_the_row(tmp_path, photos, settings, root, views):
    path = pooled_network(tmp_path / "net.onnx")
    encoder = Onnx(path=path, root=root, n_jobs=1, **{"views": views, **settings}).fit(photos)
    assert encoder.rooted_ is root
    for photo in photos:
        assert_sums_to_the_row(encoder, photo)


@pytest.mark.parametrize(
    "last",
    [
        ("GlobalAveragePool", "Flatten"),
        ("GlobalAveragePool", "Reshape"),
        ("ReduceMean",),
        ("Identity", "ReduceMean", "Identity"),
        ("AveragePool", "Flatten"),
    ],
)
def test_the_map_is_found_behind_every_way_of_averaging_it(tmp_path, photos, last):
    seen = assert_sums_to_the_row(
        Onnx(path=pooled_network(tmp_path / "net.onnx", last=last), n_jobs=1, **LINEAR).fit(photos), photos[0]
    )
    assert seen.rows.shape == (16, 5)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("outputs", [("features",), ("maps",), ("embedding", "maps")])
@pytest.mark.parametrize("batch", ["N", 1])
def test_maps_of_either_layout_of_networks_for_one_or_any_number_of_images_are_taken_apart(
    tmp_path, photos, channels_last, outputs, batch
):
    path = colour_network(
        tmp_path / "net.onnx", dtype="float32", channels_last=channels_last, outputs=outputs, batch=batch
    )
    encoder = Onnx(path=path, output=outputs[0], n_jobs=1, **LINEAR).fit(photos)
    assert len(assert_sums_to_the_row(encoder, photos[1]).boxes) == 3 * 64


def test_a_cell_gives_its_own_colour_over_the_number_of_cells(tmp_path):
    photo = np.zeros((8, 8, 3), np.uint8)
    photo[2, 5] = (64, 32, 128)
    path = colour_network(tmp_path / "net.onnx")
    seen = Onnx(path=path, centre=False, normalise=False, **LINEAR).fit([photo]).places(photo)
    expected = np.zeros((64, 4))
    expected[2 * 8 + 5] = np.array([64, 32, 128]) @ WEIGHTS / 64
    np.testing.assert_allclose(seen.rows, expected, atol=1e-6)
    np.testing.assert_allclose(seen.boxes[21], [5 / 8, 2 / 8, 6 / 8, 3 / 8])


def test_the_cells_of_a_view_lie_where_the_view_was_cut_out(tmp_path):
    photo = np.zeros((8, 24, 3), np.uint8)
    photo[:, 16:] = 200
    path = colour_network(tmp_path / "net.onnx", weights=np.full((3, 1), 1 / 3, np.float32))
    seen = Onnx(path=path, centre=False, normalise=False, **LINEAR).fit([photo]).places(photo)
    whole, left, right = np.split(seen.rows[:, 0], 3)
    boxes = np.split(seen.boxes, 3)
    assert (left == 0).all()
    assert right.sum() == pytest.approx(200 / 3)
    assert whole.sum() == pytest.approx(200 / 9, rel=0.02)
    assert boxes[0][:, 2].max() == 1
    assert boxes[1][:, 2].max() == pytest.approx(1 / 3)
    assert boxes[2][:, 0].min() == pytest.approx(2 / 3)


@pytest.mark.parametrize("last", [("GlobalAveragePool", "Flatten", "Gemm"), ("GlobalAveragePool", "Flatten", "Relu")])
def test_an_output_that_is_no_average_of_a_map_is_refused_with_advice(tmp_path, photos, last):
    encoder = Onnx(path=pooled_network(tmp_path / "net.onnx", last=last, relu=False), n_jobs=1, **LINEAR).fit(photos)
    with pytest.raises(UserError, match=r"'features' of .*net.onnx is not the average"):
        encoder.places(photos[0])


def test_tokens_that_are_averages_of_a_map_are_taken_apart_by_its_cells(tmp_path, photos):
    path = colour_network(tmp_path / "net.onnx", outputs=("tokens",))
    encoder = Onnx(path=path, n_jobs=1, **LINEAR).fit(photos)
    assert len(assert_sums_to_the_row(encoder, photos[1]).boxes) == 3 * 64


def test_roots_of_a_map_that_is_negative_somewhere_are_refused_with_advice(tmp_path):
    photo = np.zeros((8, 8, 3), np.uint8)
    photo[:, :, 0], photo[:, 4:, 2] = 200, 255  # the fourth feature: red + green - blue
    encoder = Onnx(path=colour_network(tmp_path / "net.onnx")).fit([photo])
    assert encoder.rooted_
    with pytest.raises(UserError, match=r"below 0 \(down to -55\).*root`=False"):
        encoder.places(photo)


def test_with_the_root_a_feature_is_shared_out_by_what_the_cells_gave_to_its_mean(tmp_path):
    photo = np.zeros((8, 8, 3), np.uint8)
    photo[0, 0], photo[0, 1] = (90, 0, 0), (30, 0, 0)
    encoder = Onnx(path=colour_network(tmp_path / "net.onnx"), centre=False, normalise=False).fit([photo])
    seen = encoder.places(photo)
    red = np.sqrt((90 + 30) / 64)
    np.testing.assert_allclose(seen.rows[:3, 0], [red * 0.75, red * 0.25, 0], rtol=1e-5)


def test_what_is_averaged_is_read_off_the_file(tmp_path):
    model = pooled_network(tmp_path / "net.onnx").read_bytes()
    assert averaged_into(model, "features") == ["map"]
    assert averaged_into(model, "map") == []
    assert averaged_into(model, "nowhere") == []


def test_a_model_that_gives_more_out_is_a_valid_model_with_these_outputs(tmp_path):
    model = pooled_network(tmp_path / "net.onnx").read_bytes()
    more = onnx.load_from_string(with_outputs(model, ["map", "a long name" * 30]))
    assert [each.name for each in more.graph.output] == ["features", "map", "a long name" * 30]
    assert len(more.graph.node) == len(onnx.load_from_string(model).graph.node)
    assert with_outputs(model, []) == model


def test_a_network_whose_weights_lie_in_another_file_is_taken_apart(tmp_path, photos):
    path = tmp_path / "big.onnx"
    inside = onnx.load(pooled_network(tmp_path / "net.onnx"))
    onnx.save(inside, path, save_as_external_data=True, location="big.weights", size_threshold=0)
    assert_sums_to_the_row(Onnx(path=path, n_jobs=1, **LINEAR).fit(photos), photos[1])


def test_a_file_that_breaks_off_is_refused(tmp_path):
    model = pooled_network(tmp_path / "net.onnx").read_bytes()
    for broken in (model[:-9], b"\xff" * 30, model.replace(b"map", b"\xff\xff\xff")):
        with pytest.raises(StorageError, match="not an ONNX network, or it is truncated"):
            averaged_into(broken, "features")


def test_without_the_package_onnx_a_network_is_used_and_what_looks_into_it_says_what_to_install(
    tmp_path, photos, monkeypatch
):
    path = pooled_network(tmp_path / "net.onnx")
    onnx.save(onnx.load(path), tmp_path / "big.onnx", save_as_external_data=True, location="big", size_threshold=0)
    monkeypatch.setitem(sys.modules, "onnx", None)
    encoder = Onnx(path=path, n_jobs=1, **LINEAR).fit(photos)
    for use in (lambda: encoder.places(photos[0]), lambda: Onnx(path=tmp_path / "big.onnx").fit(photos)):
        with pytest.raises(MissingExtraError, match=r"'onnx'.*pip install 'visterm\[onnx\]'"):
            use()


def test_a_tag_is_explained_by_the_cells_of_the_map(tmp_path):
    rng = np.random.default_rng(0)
    photos = rng.integers(60, 100, (24, 16, 16, 3), np.uint8)
    photos[12:, :, :8] = (220, 30, 30)
    path = pooled_network(tmp_path / "net.onnx", size=16)
    tagger = Tagger(encoder=f"onnx:{path}", model="ridge", n_jobs=1).fit(
        list(photos), tags=[["grey"]] * 12 + [["red"]] * 12
    )
    for tag in ("red", "grey"):
        found = explain(tagger, photos[15], tag)
        assert (found.place_noun, found.feature_noun, found.rank) == ("cell", "feature", 1 if tag == "red" else 2)
        assert set(found.elsewhere) == {"bias", "the mean of the training photos, subtracted"}
        total = sum(place.share for place in found.places) + sum(found.elsewhere.values())
        assert total == pytest.approx(found.score, abs=1e-5)
        assert sum(item.share for item in found.features) + found.bias == pytest.approx(found.score, abs=1e-5)
    warmth = heat(explain(tagger, photos[15], "red"), (16, 16))
    assert warmth[:, :8].sum() > warmth[:, 8:].sum()


def test_a_chain_is_taken_apart_by_the_places_of_all_its_encoders(tmp_path, photos):
    visterms = ("visterms", {"colours": 4, "codebook": 20, "sample_blocks": 500})
    network = ("onnx", {"path": str(pooled_network(tmp_path / "net.onnx"))})
    encoder = Chain(encoders=[visterms, network], weights=[1, 2], n_jobs=1).fit(photos)
    for photo in photos:
        seen = encoder.places(photo)
        given = np.asarray(seen.rows.sum(axis=0)).ravel()
        row = encoder.transform([photo])
        np.testing.assert_allclose(given + seen.elsewhere, (row.toarray() if sp.issparse(row) else row)[0], atol=1e-5)
        parts = [part.places(photo) for part in encoder.parts_]
        np.testing.assert_array_equal(seen.boxes, np.concatenate([part.boxes for part in parts]))
    assert (seen.place_noun, seen.feature_noun) == ("place", "feature")


def test_a_chain_with_an_encoder_without_places_is_taken_apart_by_the_others(photos):
    visterms = ("visterms", {"colours": 4, "codebook": 20, "sample_blocks": 500})
    means = ("mean_colour", {})
    encoder = Chain(encoders=[visterms, means], n_jobs=1).fit(photos)
    seen = encoder.places(photos[0])
    np.testing.assert_array_equal(seen.boxes, encoder.parts_[0].places(photos[0]).boxes)
    row = encoder.transform([photos[0]])
    given = np.asarray(seen.rows.sum(axis=0)).ravel() + seen.elsewhere
    np.testing.assert_allclose(given, (row.toarray() if sp.issparse(row) else row)[0], atol=1e-5)
    with pytest.raises(UserError, match=r"chain's encoders \(mean_colour\) cannot assign their features"):
        Chain(encoders=[means], n_jobs=1).fit(photos).places(photos[0])


@pytest.mark.shared
def test_the_map_behind_mobilenet_is_found_and_sums_to_its_row(shared):
    rng = np.random.default_rng(0)
    photos = [np.asarray(Image.fromarray(rng.integers(0, 256, (6, 9, 3), np.uint8)).resize((96, 64))) for _ in range(4)]
    for root in (False, True):
        encoder = Onnx(path=shared / "models" / "mobilenet_v2.onnx", root=root, n_jobs=1).fit(photos)
        seen = assert_sums_to_the_row(encoder, photos[1])
        assert seen.rows.shape == (3 * 49, 1280)
    logits = Onnx(path=shared / "models" / "mobilenet_v2.onnx", output="logits", n_jobs=1).fit(photos)
    with pytest.raises(UserError, match="is not the average"):
        logits.places(photos[0])
