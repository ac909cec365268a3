"""What every encoder promises: one row an image, names for its output, and nothing lost by saving."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from sklearn.base import clone

from fakes.immich_ml import immich_ml
from tiny_networks import colour_network
from visterm.core import registry
from visterm.core.errors import DataError, ImageError, MissingExtraError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import ENCODERS


def precomputed_arguments(folder):
    names = [*(f"{i}.png" for i in range(len(SIZES))), "broken.jpeg", "nowhere/1.jpg", "7", "Île"]
    np.save(folder / "features.npy", np.random.default_rng(3).normal(size=(len(names), 5)))
    (folder / "features.names.txt").write_text("\n".join(names), encoding="utf-8")
    return {"path": str(folder / "features.npy")}


ARGUMENTS = {
    "onnx": lambda folder: {"path": str(colour_network(folder / "tiny.onnx"))},
    "precomputed": precomputed_arguments,
}
"""What an encoder needs that no class can hold: files, made in a folder."""

DATA_SET = "data_set"  # Knows rows of files by their names, and learns only which features there are
ROWS = "rows"  # Takes rows in place of photos, and learns only their width
SIZES = [(48, 64), (64, 48), (40, 40), (33, 90), (70, 31), (57, 59)]

RESEARCH = False
"""Whether a module that has these tests runs them on the encoders of visterm-research, or on all others."""


def pytest_generate_tests(metafunc):
    research = metafunc.module.RESEARCH
    names = [entry.name for entry in ENCODERS if (entry.package == registry.RESEARCH) == research]
    metafunc.parametrize("name", names)


@pytest.fixture(autouse=True)
def installed(name):
    """Skip encoders whose extra is not installed."""
    try:
        ENCODERS.load(name)
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def data_set_rows(tmp_path_factory):
    """Names of the rows of a data set, which stand for the photos."""
    path = tmp_path_factory.mktemp("rows") / "rows.svm"
    path.write_text("".join(f"{i % 2} 1:{i} 2:0.5\n" for i in range(len(SIZES))))
    return [f"{path}#{i + 1}" for i in range(len(SIZES))]


@pytest.fixture
def photos(name, photo_files, data_set_rows):
    """What an encoder is fitted on."""
    return in_place_of_photos(data_set_rows).get(name, photo_files)


def in_place_of_photos(data_set_rows):
    """Return what the encoders that take no photos are fitted on, by their names."""
    return {DATA_SET: data_set_rows, ROWS: list(np.random.default_rng(5).normal(size=(len(SIZES), 3)))}


@pytest.fixture(scope="module")
def photo_files(tmp_path_factory):
    """Files of blocks of colour under noise, no two of one size."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(7)
    paths = []
    for i, (height, width) in enumerate(SIZES):
        blocks = rng.integers(0, 256, (8, 8, 3)).repeat(12, axis=0).repeat(12, axis=1)[:height, :width]
        noisy = np.clip(blocks + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)
        paths.append(folder / f"{i}.png")
        Image.fromarray(noisy).save(paths[-1])
    return paths


@pytest.fixture(scope="module")
def needed(tmp_path_factory):
    """What an encoder needs that no class can hold, made once: function of its name."""
    with immich_ml() as server:
        made = {"immich": lambda folder: {"url": server.url}, **ARGUMENTS}
        yield functools.cache(lambda name: made[name](tmp_path_factory.mktemp(name)) if name in made else {})


@pytest.fixture(scope="module")
def make(needed):
    """Make the small instance of an encoder, with other settings if given."""

    def made(name, **params):
        return ENCODERS.create(name, **{**ENCODERS.load(name).test_params, **needed(name), **params})

    return made


@pytest.fixture(scope="module")
def fitted(make, photo_files, data_set_rows):
    """Each encoder fitted once on the photos: function of its name; tests must not change it."""
    images = in_place_of_photos(data_set_rows)
    return functools.cache(lambda name: make(name).fit(images.get(name, photo_files)))


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken.jpeg"
    path.write_bytes(b"\xff\xd8\xff\xe0 cut off")
    return path


def wants_pixels(name):
    if ENCODERS.load(name).reads != "pixels":
        pytest.skip(f"{name} opens no image")


def wants_names(name):
    if ENCODERS.load(name).reads != "names":
        pytest.skip(f"{name} looks at pixels")
    if name == DATA_SET:
        pytest.skip(f"{name} knows rows of files, see test_data_sets.py")


def as_array(rows):
    return rows.toarray() if sp.issparse(rows) else rows


def has(name, param):
    return param in inspect.signature(ENCODERS.load(name)).parameters


def assert_same_bytes(a, b):
    assert as_array(a).dtype == np.float32
    np.testing.assert_array_equal(as_array(a), as_array(b))


def test_gives_exactly_one_finite_row_an_image_in_order(name, fitted, photos):
    encoder = fitted(name)
    rows = as_array(encoder.transform(photos))
    assert rows.dtype == np.float32
    assert rows.shape[0] == len(photos)
    assert np.isfinite(rows).all()
    assert len(np.unique(rows, axis=0)) == len(photos)
    np.testing.assert_allclose(as_array(encoder.transform(photos[::-1])), rows[::-1], atol=1e-5)


def test_a_row_does_not_depend_on_its_company(name, fitted, photos):
    encoder = fitted(name)
    together = as_array(encoder.transform(photos))
    alone = np.concatenate([as_array(encoder.transform([photo])) for photo in photos])
    np.testing.assert_allclose(alone, together, atol=1e-5)


def test_arrays_are_encoded_as_the_files_that_hold_them(name, fitted, photos):
    wants_pixels(name)
    encoder = fitted(name)
    expected = encoder.transform(photos)
    assert_same_bytes(encoder.transform([np.asarray(Image.open(path)) for path in photos]), expected)
    assert_same_bytes(encoder.transform([str(path) for path in photos]), expected)


def test_very_small_and_very_long_images_have_a_row_too(name, fitted, photos):
    wants_pixels(name)
    encoder = fitted(name)
    images = [np.full(shape, 90, np.uint8) for shape in [(1, 1, 3), (2, 2, 3), (1, 300, 3), (300, 1, 3)]]
    rows = as_array(encoder.transform(images))
    assert rows.shape == (4, as_array(encoder.transform(photos[:1])).shape[1])
    assert np.isfinite(rows).all()


def test_images_that_cannot_be_read_are_skipped_and_listed(name, fitted, photos, broken):
    wants_pixels(name)
    encoder = fitted(name)
    missing = broken.with_name("missing.png")
    rows, kept, skipped = encoder.encode([photos[0], broken, *photos[1:3], missing])
    assert kept.tolist() == [0, 2, 3]
    assert [entry.image for entry in skipped] == [str(broken), str(missing)]
    assert all(entry.reason for entry in skipped)
    np.testing.assert_allclose(as_array(rows), as_array(encoder.transform(photos[:3])), atol=1e-5)


def test_transform_raises_for_an_image_that_cannot_be_read(name, fitted, photos, broken):
    wants_pixels(name)
    with pytest.raises(ImageError, match=r"broken\.jpeg"):
        fitted(name).transform([photos[0], broken])


def test_fit_skips_unreadable_images_only_if_asked(name, make, photos, broken):
    wants_pixels(name)
    encoder = make(name)
    if not encoder._learns():
        pytest.skip(f"{name} learns nothing, so fit reads no images")
    with pytest.raises(ImageError, match=r"broken\.jpeg"):
        encoder.fit([*photos, broken])
    assert encoder.fit([*photos, broken], skip_unreadable=True).transform(photos).shape[0] == len(photos)
    with pytest.raises(DataError):
        encoder.fit([broken], skip_unreadable=True)


def test_an_encoder_of_names_opens_no_file_and_takes_texts_paths_and_numbers_alike(name, make):
    wants_names(name)
    encoder = make(name).fit(["nowhere/1.jpg", 7, "Île"])
    rows = encoder.transform(["nowhere/1.jpg", "7", "Île"])
    assert_same_bytes(encoder.transform([Path("nowhere/1.jpg"), 7, "Île"]), rows)
    assert len(np.unique(as_array(rows), axis=0)) == 3


def test_an_encoder_of_names_lists_images_that_it_does_not_know_with_what_to_do(name, make, photos):
    wants_names(name)
    encoder = make(name).fit(photos[:3])
    images = [photos[2], "never seen.png", photos[0]]
    found = encoder.encode(images)
    assert found.kept.tolist() == [0, 2]
    assert_same_bytes(found.rows, encoder.transform([photos[2], photos[0]]))
    [left_out] = found.skipped
    assert left_out.image == "never seen.png"
    assert "with an encoder that looks at pixels" in left_out.reason
    with pytest.raises(DataError, match=r"'never seen\.png' is not among the \d+ images"):
        encoder.transform(images)
    encoder.refuse_unknown(images, only_if_all=True)
    with pytest.raises(DataError, match=r"None of the 2 images is known\. The image 'a' is not among"):
        encoder.refuse_unknown(["a", "b"], only_if_all=True)
    with pytest.raises(DataError, match="looks up images by name"):
        encoder.encode([np.zeros((4, 4, 3), np.uint8)])


def test_no_images_to_learn_from_is_an_error(name, make):
    with pytest.raises(DataError, match="no images"):
        make(name).fit([])


def test_no_images_to_encode_is_no_error(name, fitted):
    rows, kept, skipped = fitted(name).encode([])
    assert rows.shape[0] == 0
    assert kept.size == 0
    assert skipped == []


def test_what_only_changes_the_speed_changes_no_byte_and_no_fingerprint(name, make, photos):
    # Both settings in one comparison: whichever changes a byte, it is seen here.
    ways = [{"n_jobs": 1, "batch_size": 2}, {"n_jobs": 2, "batch_size": 1}]
    ways = [{param: value for param, value in way.items() if has(name, param)} for way in ways]
    if not ways[0]:
        pytest.skip(f"{name} has neither n_jobs nor batch_size")
    one, two = (make(name, **way).fit(photos) for way in ways)
    assert one.fingerprint == two.fingerprint
    assert_same_bytes(one.transform(photos), two.transform(photos))


def test_the_same_photos_and_seed_give_the_same_fingerprint_and_a_second_fit_forgets_the_first(
    name, make, fitted, photos
):
    again = make(name).fit(photos[:2]).fit(photos)
    assert again.fingerprint == fitted(name).fingerprint
    assert_same_bytes(again.transform(photos), fitted(name).transform(photos))


def test_the_fingerprint_changes_with_every_number_and_choice_that_shapes_the_rows(name, make, needed):
    plain = make(name)
    for param, value in plain.get_params(deep=False).items():
        if param in plain.speed_params or param in needed(name) or param == plain.argument:
            continue
        if (name, param) == ("onnx", "network"):
            continue  # in place of the path that is needed, and refused beside it
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else "other"
        changed = clone(plain).set_params(**{param: other})
        assert changed.fingerprint != plain.fingerprint, param


def test_the_fingerprint_changes_with_what_was_learned(name, make, fitted, photos):
    encoder = make(name)
    if not encoder._learns() or name in (DATA_SET, ROWS):
        pytest.skip(f"{name} learns nothing of the photos")
    before = encoder.fingerprint
    assert len({before, fitted(name).fingerprint, encoder.fit(photos[3:]).fingerprint}) == 3


def test_saved_and_loaded_it_gives_the_same_bytes_under_the_same_fingerprint(name, fitted, photos, tmp_path):
    encoder = fitted(name)
    save_estimator(encoder, ENCODERS, tmp_path, "encoder")
    loaded = load_estimator(ENCODERS, tmp_path, "encoder")
    assert type(loaded) is type(encoder)
    assert loaded.fingerprint == encoder.fingerprint
    assert_same_bytes(loaded.transform(photos), encoder.transform(photos))
    assert {path.suffix for path in Path(tmp_path).glob("encoder.*")} == {".json", ".safetensors"}


def test_texts_have_vectors_of_length_one_in_the_space_of_rows_or_are_refused_with_advice(name, fitted, photos):
    encoder = fitted(name)
    if not encoder.reads_texts:
        with pytest.raises(UserError, match=r"has no text tower.*visterm encoders"):
            encoder.text_rows(["sky"])
        with pytest.raises(UserError, match="has no text tower"):
            _ = encoder.text_fingerprint
        return
    texts = ["sky", "a photo of a polar bear."]
    rows = encoder.text_rows(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (2, encoder.transform(photos[:1]).shape[1])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert_same_bytes(np.concatenate([encoder.text_rows([text]) for text in texts]), rows)
    assert len(encoder.text_rows([])) == 0
    assert clone(encoder).text_fingerprint == encoder.text_fingerprint != ""


def test_the_constructor_only_assigns(name, make):
    defaults = inspect.signature(ENCODERS.load(name)).parameters.values()
    assert all(param.kind is param.KEYWORD_ONLY and param.default is not param.empty for param in defaults)
    encoder = make(name)
    assert set(vars(encoder)) == set(encoder.get_params(deep=False))
    nonsense = {param.name: object() for param in defaults}
    assert ENCODERS.create(name, **nonsense).get_params(deep=False) == nonsense


def test_a_clone_has_the_settings_and_learns_the_same(name, fitted, photos):
    encoder = fitted(name)
    copied = clone(encoder)
    assert copied.get_params() == encoder.get_params()
    assert not [key for key in vars(copied) if key.endswith("_")]
    assert copied.fit(photos).fingerprint == encoder.fingerprint


def test_encoding_reports_each_image(name, make, photos, broken):
    class Counter:
        def __init__(self):
            self.steps, self.open = 0, 0

        def start(self, task, total=None):
            assert task
            self.open += 1

        def advance(self, steps=1, note=""):
            assert note == ""  # there is nothing about an encoder's steps that a person could judge
            self.steps += steps

        def finish(self):
            self.open -= 1

    images = [*photos, photos[0] if name == ROWS else broken]
    encoder = make(name).fit(images, skip_unreadable=True, progress=(fitting := Counter()))
    encoder.encode(images, progress=(encoding := Counter()))
    assert encoding.steps == len(photos) + 1
    assert fitting.open == encoding.open == 0
