"""The shares of features and of places sum to the score, and are painted where they come from."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image

from command_line import run_command
from planted import plant_corpus
from refusals import refused
from visterm.core.errors import ImageError, ShapeError, UnknownNameError, UserError
from visterm.core.registry import PACKAGE
from visterm.core.tables import MODELS
from visterm.data.images import read_image
from visterm.encoders.blocks import pixel_codes
from visterm.encoders.visterms import Visterms
from visterm.models.abilities import Explains
from visterm.models.blend.ensemble import Ensemble
from visterm.models.linear.ridge import Ridge
from visterm.models.neighbours.knn import Knn
from visterm.tagging.explain import Explanation, Region, draw_heat, explain, heat, smooth_heat
from visterm.tagging.tagger import Tagger

pytestmark = pytest.mark.usefixtures("plugin")


def explaining(package):
    """List the models of a package that explain."""
    return [entry.name for entry in MODELS if entry.package == package and hasattr(entry.load(), "explain")]


EXPLAINING = explaining(PACKAGE)
KINDS = ["sparse", "dense, few features", "dense, many features"]
SMALL = {"colours": 8, "codebook": 60, "sample_blocks": 3000, "n_jobs": 1}


@pytest.fixture(scope="module")
def pictures():
    """Noise: grey, red at the left half, or blue at the top half."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(90, 160, (30, 48, 72, 3), np.uint8)
    drawn[10:20, :, :36] = rng.integers(0, 40, (10, 48, 36, 3)) + np.array([200, 0, 0])
    drawn[20:, :24] = rng.integers(0, 40, (10, 24, 72, 3)) + np.array([0, 0, 200])
    return list(drawn)


TAGS = [["grey"]] * 10 + [["red"]] * 10 + [["blue"]] * 10


def fitted(pictures, model, params=None, **settings):
    tagger = Tagger(model=model, encoder_params={**SMALL, **settings}, model_params=params, n_jobs=1)
    return tagger.fit(pictures, tags=TAGS)


@pytest.fixture(scope="module")
def tagger(pictures):
    return fitted(pictures, "ridge")


def sum_of(found):
    return sum(place.share for place in found.places) + sum(found.elsewhere.values())


def check_shares(name, kind):
    """Fit a model on features of a kind, and check that the shares of an image's features sum to its score."""
    cls = MODELS.load(name)
    rng = np.random.default_rng(1)
    X = rng.random((40, 3 if kind == "dense, few features" else 9)).astype(np.float32)
    X[X < 0.4] = 0
    Y = (rng.random((40, 5)) < 0.4).astype(np.float32)
    Y[np.arange(40), np.arange(40) % 5] = 1
    data = sp.csr_array(X) if kind == "sparse" else X
    model = cls(**cls.test_params).fit(data, Y)
    assert isinstance(model, Explains)
    scores = model.decision_function(data[:4])
    for image in range(4):
        for tag in range(5):
            found = model.explain(data[[image]], tag)
            np.testing.assert_allclose(found.shares.sum() + found.constant, scores[image, tag], atol=1e-5)
            np.testing.assert_allclose(found.shares, X[image] * found.weights)


@pytest.mark.parametrize("name", [name for name in EXPLAINING if name != "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_of_the_features_sum_to_the_score_of_every_model_that_explains(name, kind):
    check_shares(name, kind)


def test_models_that_explain_are_those_of_weights_and_of_embeddings():
    assert {"wsabie", "ridge", "vse_ens", "ensemble"} <= set(EXPLAINING)
    assert {"knn", "prior"}.isdisjoint(EXPLAINING)


def test_the_bias_of_an_embedding_is_its_constant_share():
    rng = np.random.default_rng(0)
    X, Y = rng.random((60, 6)).astype(np.float32), (rng.random((60, 4)) < 0.5).astype(np.float32)
    model = MODELS.create("wsabie", dim=4, epochs=5, bias=1.0, n_jobs=1).fit(X, Y)
    found = model.explain(np.zeros((1, 6)), 2)
    assert found.constant != 0
    np.testing.assert_allclose(found.constant, model.decision_function(np.zeros((1, 6)))[0, 2], rtol=1e-5)


def test_an_ensemble_is_explained_by_the_members_that_can_also_within_a_member():
    rng = np.random.default_rng(0)
    X, Y = rng.random((30, 4)).astype(np.float32), (rng.random((30, 3)) < 0.5).astype(np.float32)
    members = [Ridge(alpha=1), Knn(n_neighbors=3, power=1)]
    inner = Ensemble(members=members, weights=[1, 1])
    for model in (inner, Ensemble(members=[inner, Ridge(alpha=1)], weights=[1, 3])):
        shares = model.fit(X, Y).explain(X[:1], 0)
        assert shares.elsewhere != 0
        score = model.decision_function(X[:1])[0, 0]
        np.testing.assert_allclose(shares.shares.sum() + shares.constant + shares.elsewhere, score, rtol=1e-6)
    with pytest.raises(UserError, match="All models of this blend"):
        Ensemble(members=[Knn(n_neighbors=3, power=1)]).fit(X, Y).explain(X[:1], 0)


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_a_blend_is_explained_by_the_models_that_score_by_features_and_names_the_rest(sparse):
    planted = plant_corpus(n_tags=12, random_state=0)
    noise = (
        np.random.default_rng(0).standard_normal(planted.X_train.shape).astype(np.float32)
    )  # else one model is enough
    candidates = [["knn", {"n_neighbors": 10, "power": 2}], ["ridge", {"alpha": 1.0}]]
    model = MODELS.create("auto", candidates=candidates, valid_share=0.3, n_jobs=1)
    X, X_test = (sp.csr_array(X) if sparse else X for X in (planted.X_train + noise, planted.X_test))
    model.fit(X, planted.Y_train)
    assert {MODELS.name_of(member) for member in model.members_} == {"knn", "ridge"}
    [at] = [i for i, member in enumerate(model.members_) if isinstance(member, Ridge)]
    row = planted.X_test[7].astype(np.float64)
    found = model.explain(X_test[[7]], 3)
    ridge = model.members_[at].explain(X_test[[7]], 3)
    factor = model.tag_factors_[3] * model.weights_[at] / model.scales_[at]
    np.testing.assert_allclose(found.shares, row * ridge.weights * factor, rtol=1e-6)
    score = model.decision_function(X_test)[7, 3]
    np.testing.assert_allclose(found.shares.sum() + found.constant + found.elsewhere, score, rtol=1e-6)
    assert found.elsewhere != 0


def test_a_blend_of_models_that_compare_whole_images_cannot_be_explained():
    planted = plant_corpus(n_tags=12, random_state=3)
    candidates = [["knn", {"n_neighbors": 10, "power": 2}]]
    model = MODELS.create("auto", candidates=candidates, valid_share=0.3, n_jobs=1, explainable=False)
    model.fit(planted.X_train, planted.Y_train)
    with pytest.raises(UserError, match=r"blend \(knn\) compare whole images"):
        model.explain(planted.X_test[:1], 0)


def test_explaining_two_images_or_an_unknown_tag_is_refused():
    rng = np.random.default_rng(0)
    X, Y = rng.random((30, 4)).astype(np.float32), (rng.random((30, 3)) < 0.5).astype(np.float32)
    model = Ridge(alpha=1.0).fit(X, Y)
    with pytest.raises(ShapeError, match="x has 2 rows"):
        model.explain(X[:2], 0)
    with refused("tag", value=3):
        model.explain(X[:1], 3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"neighbours": 1, "root_terms": False},
        {"scales": (0.5, 2.0), "neighbours": 70},
        {"overlap": 0},
        {"levels": 3},
        {"levels": 2, "level_weights": (1, 5), "root_terms": False},
    ],
)
def test_what_the_blocks_gave_sums_to_the_row(pictures, settings):
    encoder = Visterms(**{**SMALL, **settings}).fit(pictures)
    for picture in (pictures[0], pictures[15], np.ascontiguousarray(pictures[25][:3, :2])):
        seen = encoder.places(picture)
        assert seen.rows.shape == (len(seen.boxes), len(encoder.idf_))
        assert (seen.rows.data > 0).all()
        row = encoder.transform([picture]).toarray()[0]
        np.testing.assert_allclose(seen.rows.sum(axis=0) + seen.elsewhere, row, atol=1e-6)


def test_what_is_counted_in_a_cell_is_given_by_the_blocks_whose_centres_lie_in_it(pictures):
    encoder = Visterms(**SMALL, levels=2).fit(pictures)
    seen = encoder.places(pictures[12])
    given, columns = seen.rows.tocoo().coords
    n = len(encoder.codebook_)
    cells = (columns - n) // n  # -1: the whole picture
    across, down = seen.boxes[:, [0, 2]].mean(axis=1), seen.boxes[:, [1, 3]].mean(axis=1)
    for cell, (right, below) in enumerate([(False, False), (True, False), (False, True), (True, True)]):
        blocks = given[cells == cell]
        assert len(blocks) > 10
        assert ((across[blocks] >= 0.5) == right).all()
        assert ((down[blocks] >= 0.5) == below).all()


def test_a_block_gives_in_proportion_to_what_it_counts_for_a_visterm(pictures):
    encoder = Visterms(**SMALL, scales=(1.0,), neighbours=1).fit(pictures)
    seen = encoder.places(pictures[12])
    row = encoder.transform([pictures[12]]).toarray()[0]
    given = seen.rows.toarray()
    for visterm in np.flatnonzero(row):
        blocks = np.flatnonzero(given[:, visterm])
        np.testing.assert_allclose(given[blocks, visterm], row[visterm] / len(blocks), rtol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"overlap": 0}, {"overlap": 0.75, "scales": (2.0,)}])
@pytest.mark.parametrize("shape", [(48, 72), (72, 48), (5, 60), (3, 3)])
def test_boxes_are_where_the_blocks_were_counted(settings, shape, pictures):
    encoder = Visterms(**{**SMALL, **settings}).fit(pictures)
    photo = np.random.default_rng(3).integers(0, 256, (*shape, 3), np.uint8)
    codes = pixel_codes(photo, encoder._table())
    cutter = encoder._cutter()
    for scale in range(len(encoder.scales)):
        points = cutter.points(codes, scale)
        boxes = np.rint(cutter.boxes(codes, scale) * [shape[1], shape[0], shape[1], shape[0]]).astype(int)
        assert len(points) == len(boxes)
        for point, (left, top, right, bottom) in zip(points, boxes, strict=True):
            counts = np.bincount(codes.colour[top:bottom, left:right].ravel(), minlength=cutter.n_colours)
            np.testing.assert_allclose(point[59:] ** 2, counts / counts.sum(), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "params", "settings"),
    [
        ("ridge", {}, {}),
        ("ridge", {}, {"levels": 3}),
        ("vse_ens", {"dim": 8, "epochs": 5}, {}),
        ("wsabie", {"dim": 8, "epochs": 5, "bias": 1.0}, {}),
        ("pamir", {"epochs": 3}, {"levels": 2}),
        ("ensemble", {"members": [["ridge", {}], ["wsabie", {"dim": 4, "epochs": 3}]], "weights": [1, 2]}, {}),
    ],
)
def test_the_shares_of_the_blocks_and_of_no_place_sum_to_the_score(pictures, model, params, settings):
    tagger = fitted(pictures, model, params, **settings)
    for picture in (pictures[3], pictures[13], pictures[23]):
        scores = {tag.tag: tag.score for tag in tagger.annotate([picture], k=0).images[0].tags}
        for number, (tag, score) in enumerate(scores.items()):
            found = explain(tagger, picture, tag)
            assert found.score == pytest.approx(score, abs=1e-6)
            assert found.rank == number + 1
            assert sum_of(found) == pytest.approx(score, abs=1e-5)
            assert sum(item.share for item in found.features) + found.bias == pytest.approx(score, abs=1e-5)


def test_the_half_of_the_picture_that_is_red_speaks_for_red(tagger, pictures):
    found = explain(tagger, pictures[14], "red")
    assert found.rank == 1
    warmth = heat(found, (72, 48))
    assert warmth[:, :36].sum() > 2 * abs(warmth[:, 36:].sum())
    assert max(found.places, key=lambda place: place.share).right <= 48
    assert explain(tagger, pictures[24], "red").score < found.score


def test_features_come_strongest_first_with_the_number_of_their_blocks(tagger, pictures):
    found = explain(tagger, pictures[14], "blue")
    strengths = [abs(item.share) for item in found.features]
    assert strengths == sorted(strengths, reverse=True)
    seen = tagger.encoder.places(pictures[14]).rows.toarray()
    assert [item.places for item in found.features] == [(seen[:, item.index] > 0).sum() for item in found.features]


def test_boxes_are_in_pixels_of_the_upright_picture_at_its_full_size(tagger, pictures, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "a.jpg"
    turned = Image.fromarray(np.ascontiguousarray(np.rot90(pictures[14])))
    turned.resize((480, 720), Image.Resampling.NEAREST).save(path, exif=exif, quality=95)
    found = explain(tagger, path, "red")
    assert found.size == (720, 480)
    assert max(place.right for place in found.places) == pytest.approx(720)
    assert max(place.bottom for place in found.places) == pytest.approx(480)
    assert heat(found, (72, 48))[:, :36].sum() > abs(heat(found, (72, 48))[:, 36:].sum())


def explained(places, size=(10, 10), **more):
    given = {"image": "a", "tag": "t", "score": 1.0, "rank": 1, "n_tags": 3, "place_noun": "block"}
    given |= {"feature_noun": "visterm", "features": [], "bias": 0.25, "elsewhere": {"bias": 0.25}, "explained_by": []}
    return Explanation(**(given | more), size=size, places=places)


def test_a_share_is_spread_evenly_over_its_rectangle_and_all_pixels_sum_to_all_shares():
    found = explained([Region(0, 0, 4, 2, 0.8), Region(2, 0, 6, 5, -0.4)])
    expected = np.zeros((10, 10))
    expected[:2, :4] += 0.1
    expected[:5, 2:6] -= 0.02
    np.testing.assert_allclose(heat(found, (10, 10)), expected, atol=1e-12)
    for size in [(20, 20), (7, 3), (1, 1), (33, 90)]:
        assert heat(found, size).sum() == pytest.approx(0.4)


def test_a_rectangle_that_ends_inside_a_pixel_covers_its_part_of_it():
    found = explained([Region(0.5, 0, 2, 1, 0.3)], size=(3, 1))
    np.testing.assert_allclose(heat(found, (3, 1)), [[0.1, 0.2, 0]])


@pytest.mark.parametrize("shape", [(48, 72), (300, 20), (1, 1), (900, 1400)])
def test_the_picture_shows_warm_colours_where_a_place_adds_and_blue_where_it_takes(tmp_path, shape):
    height, width = shape
    places = [Region(0, 0, width / 2, height, 0.6), Region(width / 2, 0, width, height, -0.6)]
    photo = np.full((*shape, 3), 128, np.uint8)
    path = tmp_path / "new" / "heat.png"
    draw_heat(photo, explained(places, (width, height), tag="日本 sea"), path)
    with Image.open(path) as image:
        assert image.format == "PNG"
        drawn = np.asarray(image.convert("RGB")).astype(int)
    scale = 640 / max(shape)
    across, down = max(1, round(width * scale)), max(1, round(height * scale))
    overlay = drawn[16 : 16 + down, 32 + across : 32 + 2 * across]
    left, right = overlay[down // 2, across // 4], overlay[down // 2, -1 - across // 4]
    if width > 1:
        assert left[0] > left[2] + 80
    assert right[2] > right[0] + 80 or width == 1
    assert (drawn[16 + down :] < 60).all(axis=2).any()  # words


def test_the_heat_is_drawn_without_the_edges_of_the_places():
    rng = np.random.default_rng(0)
    places = [Region(x, y, x + 10, y + 10, rng.normal()) for x in range(0, 70, 10) for y in range(0, 70, 10)]
    blocks, smooth = (draw(explained(places, (70, 70)), (140, 140)) for draw in (heat, smooth_heat))
    steps = [np.abs(np.diff(shares, axis=1)).max() / np.ptp(shares) for shares in (blocks, smooth)]
    assert steps[0] > 0.5
    assert steps[1] < 0.1
    assert smooth.sum() == pytest.approx(blocks.sum())


def test_a_photo_that_gives_nothing_is_drawn_too(tmp_path):
    draw_heat(np.zeros((4, 6, 3), np.uint8), explained([Region(0, 0, 6, 4, 0.0)], (6, 4)), tmp_path / "heat.png")
    assert (tmp_path / "heat.png").stat().st_size > 0


def test_what_cannot_be_explained_is_refused_with_what_can(pictures):
    with pytest.raises(UserError, match=r"model 'knn' of this run are not sums over features.*such as wsabie"):
        explain(fitted(pictures, "knn", {"n_neighbors": 3, "power": 1}), pictures[0], "red")
    by_name = Tagger(encoder="ids", model="ridge").fit(["a", "b", "c"], tags=[["x"], ["y"], ["x"]])
    with pytest.raises(UserError, match=r"known by number have no features.*visterm tags RUN --like"):
        explain(by_name, "a", "x")
    assert by_name.tags_compared_by == ["ridge"]
    assert [near.tag for near in by_name.neighbours("x")] == ["y"]


MEANS = ("mean_colour", {})


def test_without_places_the_features_have_shares_that_sum_to_the_score_and_there_is_no_heat_map(pictures):
    tagger = Tagger(model="ridge", encoder=MEANS[0], n_jobs=1)
    found = explain(tagger.fit(pictures, tags=TAGS), pictures[13], "red")
    assert found.places == []
    assert found.size == (72, 48)
    assert sum_of(found) == pytest.approx(found.score, abs=1e-5)
    assert sum(item.share for item in found.features) + found.bias == pytest.approx(found.score, abs=1e-5)
    assert found.explained_by == ["ridge"]
    assert "'mean_colour' cannot assign its features to places" in found.as_dict()["no_heat"]
    with pytest.raises(UserError, match="There is no heat map: The encoder 'mean_colour'"):
        heat(found, (72, 48))


def test_in_a_chain_the_heat_map_is_of_the_encoders_that_know_places_and_the_others_are_named(pictures):
    settings = {"encoders": [["visterms", SMALL], MEANS]}
    tagger = Tagger(model="ridge", encoder="chain", encoder_params=settings, n_jobs=1).fit(pictures, tags=TAGS)
    found = explain(tagger, pictures[13], "red")
    assert (found.place_noun, found.feature_noun, found.no_heat_map_reason) == ("block", "visterm", "")
    assert found.elsewhere.keys() == {"bias", "features of 'mean_colour', which have no place"}
    assert sum_of(found) == pytest.approx(found.score, abs=1e-5)
    assert heat(found, (72, 48)).sum() == pytest.approx(sum(place.share for place in found.places))
    settings = {"encoders": [MEANS, MEANS]}
    tagger = Tagger(model="ridge", encoder="chain", encoder_params=settings, n_jobs=1).fit(pictures, tags=TAGS)
    assert (
        "encoders (mean_colour, mean_colour) cannot assign their features"
        in explain(tagger, pictures[13], "red").no_heat_map_reason
    )


def test_rows_of_another_program_are_explained_by_their_features(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", rng.random((30, 6)).astype(np.float32))
    names = [f"{i}.jpg" for i in range(30)]
    (tmp_path / "rows.names.txt").write_text("\n".join(names))
    tagger = Tagger(model="auto", encoder=f"precomputed:{tmp_path / 'rows.npy'}", n_jobs=1).fit(names, tags=TAGS)
    found = explain(tagger, "7.jpg", "grey")
    assert found.size is None
    assert found.explained_by == ["ridge", "logistic"]
    assert "models that compare whole photos" in found.elsewhere
    assert sum_of(found) == pytest.approx(found.score, abs=1e-5)
    assert json.loads(json.dumps(found.as_dict()))["from"] == ["ridge", "logistic"]


def test_an_unknown_tag_and_a_broken_file_are_named(tagger, pictures, tmp_path):
    with pytest.raises(UnknownNameError, match="'read'"):
        explain(tagger, pictures[0], "read")
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(ImageError, match="not an image"):
        explain(tagger, tmp_path / "a.jpg", "red")


def test_json_has_shares_that_sum_to_the_score(tagger, pictures):
    found = json.loads(json.dumps(explain(tagger, pictures[14], "red").as_dict()))
    total = sum(block["share"] for block in found["blocks"]) + sum(found["elsewhere"].values())
    assert total == pytest.approx(found["score"], abs=1e-5)
    assert found["visterms"][0].keys() == {"visterm", "share", "blocks"}
    assert (found["width"], found["height"], found["rank"]) == (72, 48, 1)
    assert read_image(pictures[14]).shape == (48, 72, 3)


def visterm(*arguments, cwd):
    return run_command(arguments, cwd)


@pytest.fixture(scope="module")
def on_disk(tagger, pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    tagger.save(folder / "run")
    Image.fromarray(pictures[14]).save(folder / "photo.png")
    return folder


def test_the_command_lists_features_and_places_and_draws_a_picture(on_disk, tagger):
    done = visterm("explain", "run", "photo.png", "red", "-o", "out/heat.png", cwd=on_disk)
    assert done.returncode == 0, done.stderr
    found = explain(tagger, on_disk / "photo.png", "red")
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"photo.png: red: score {found.score:.3f}, rank 1 of 3 tags", "explained by ridge"]
    assert f"all {len(found.places)} blocks of the picture" in lines[4]
    assert float(lines[4].split()[-1]) + float(lines[5].split()[-1]) == pytest.approx(found.score, abs=2e-4)
    named = [line.split()[0] for line in lines[7:13]]
    assert named == ["visterm", *(str(item.index) for item in found.features[:5])]
    assert lines[14].split()[:4] == ["left", "top", "right", "bottom"]
    assert len(lines) == 20
    assert "heat.png" in done.stderr
    with Image.open(on_disk / "out" / "heat.png") as image:
        assert image.format == "PNG"


def test_the_command_prints_json_and_nothing_else(on_disk):
    done = visterm("explain", "run", "photo.png", "blue", "--json", "-o", "heat.png", cwd=on_disk)
    found = json.loads(done.stdout)
    total = sum(block["share"] for block in found["blocks"]) + sum(found["elsewhere"].values())
    assert total == pytest.approx(found["score"], abs=1e-5)
    assert (on_disk / "heat.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("photo.png", "reed"), "Did you mean 'red'"), (("nowhere.png", "red"), "nowhere.png: no such file")],
)
def test_mistakes_are_one_line_and_leave_no_picture(on_disk, arguments, message):
    done = visterm("explain", "run", *arguments, "-o", "none.png", cwd=on_disk)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (on_disk / "none.png").exists()
