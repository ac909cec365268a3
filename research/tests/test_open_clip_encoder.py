"""The open_clip encoder gives the image tower's vectors, and the text tower's of words, from a local file alone."""

# ruff: noqa: E402 (what follows the skips needs torch)
from __future__ import annotations

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("huggingface_hub", reason="the extra 'torch' is not installed")

from PIL import Image
from safetensors.torch import load_file, save_file

from tiny_towers import CLIP_NAME, clip_weights, open_clip
from visterm.core.errors import DataError, StorageError, UnknownNameError, UserError
from visterm_research.encoders import open_clip_model, torch_weights
from visterm_research.encoders.open_clip import OpenClip
from visterm_research.encoders.open_clip_model import open_clip_preparation

WORDS = ["sky", "polar bear", "Île-de-France"]


@pytest.fixture
def weights(tmp_path):
    return clip_weights(tmp_path / "towers.safetensors")


@pytest.fixture
def encoder(weights):
    return OpenClip(network=CLIP_NAME, weights=weights, device="cpu", n_jobs=1)


@pytest.fixture
def photos():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in [(48, 48), (32, 64), (72, 36)]]


def towers(weights):
    model = open_clip.create_model(CLIP_NAME, pretrained=str(weights)).eval()
    return model, open_clip.transform.image_transform_v2(open_clip.transform.PreprocessCfg(size=32), is_train=False)


def test_rows_are_the_image_towers_unit_vectors_for_photos_that_open_clip_prepares(encoder, weights, photos):
    rows = encoder.fit_transform(photos)
    model, prepare = towers(weights)
    with torch.inference_mode():
        images = torch.stack([prepare(Image.fromarray(photo)) for photo in photos])
        expected = model.encode_image(images, normalize=True).numpy()
    assert not encoder.rooted_
    np.testing.assert_allclose(rows, expected, atol=5e-3)


def test_words_have_the_text_towers_unit_vectors(encoder, weights):
    vectors = encoder.word_vectors(WORDS)
    model, _ = towers(weights)
    tokens = open_clip.get_tokenizer(CLIP_NAME)([f"a photo of a {word}." for word in WORDS])
    with torch.inference_mode():
        expected = model.encode_text(tokens, normalize=True).numpy()
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_several_templates_are_averaged_over_vectors_of_length_one(encoder):
    one, two = (encoder.word_vectors(WORDS, templates=[template]) for template in ("{}", "a drawing of a {}"))
    both = encoder.word_vectors(WORDS, templates=["{}", "a drawing of a {}"])
    np.testing.assert_allclose(both, (one + two) / np.linalg.norm(one + two, axis=1, keepdims=True), atol=1e-6)


def test_a_words_vector_depends_on_no_other_word_and_on_no_number_of_threads(encoder, weights):
    vectors = encoder.word_vectors(WORDS)
    assert b"".join(encoder.word_vectors([word]).tobytes() for word in WORDS) == vectors.tobytes()
    threaded = OpenClip(network=CLIP_NAME, weights=weights, device="cpu", n_jobs=2)
    assert threaded.word_vectors(WORDS).tobytes() == vectors.tobytes()


def test_words_and_photos_have_one_space(encoder, photos):
    assert encoder.word_vectors(WORDS).shape[1] == encoder.fit_transform(photos).shape[1] == 16


@pytest.mark.parametrize("words", [[], "sky"])
def test_no_words_are_refused(encoder, words):
    with pytest.raises(DataError, match="expected a list of at least one word"):
        encoder.word_vectors(words)


@pytest.mark.parametrize("templates", [[], "{}", ["a photo"]])
def test_templates_without_a_place_for_the_word_are_refused(encoder, templates):
    with pytest.raises(UserError, match=r"expected texts with \{\} for the word"):
        encoder.word_vectors(WORDS, templates=templates)


def test_names_that_open_clip_does_not_know_are_refused_with_the_nearest(weights, photos):
    with pytest.raises(UnknownNameError, match=r"'ViT-B-33'. Did you mean 'ViT-B-32'\?"):
        OpenClip(network="ViT-B-33", weights=weights).fit(photos)
    with pytest.raises(UnknownNameError, match=r"'laion2b'. (Known|Did you mean)"):
        OpenClip(network="ViT-B/32", weights=weights, pretrained="laion2b").fit(photos)
    with pytest.raises(UserError, match="--encoder open_clip:ViT-B-32"):
        OpenClip(weights=weights).fit(photos)


def test_weights_of_towers_with_another_activation_are_refused(weights, photos):
    with pytest.raises(UserError, match="'openai' are not of open_clip's 'ViT-B-32', but of 'ViT-B-32-quickgelu'"):
        OpenClip(network="ViT-B-32", pretrained="openai", weights=weights).fit(photos)


def test_without_weights_the_message_says_what_to_get(tmp_path, monkeypatch, photos):
    monkeypatch.setattr(torch_weights.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"weights=PATH, or the name .*pretrained=NAME \(.*laion2b_s34b_b79k"):
        OpenClip(network="ViT-B-32").fit(photos)
    repo = "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"
    with pytest.raises(UserError, match=f"hf download {repo} open_clip_model.safetensors"):
        OpenClip(network="ViT-B-32", pretrained="laion2b_s34b_b79k").fit(photos)


def test_weights_of_other_towers_are_refused(tmp_path, weights, photos):
    other = tmp_path / "other.safetensors"
    state = load_file(weights)
    state.pop("visual.proj")
    save_file(state, other)
    with pytest.raises(StorageError, match=r"cannot be used as the weights of open_clip's 'tiny-towers'.*visual\.proj"):
        OpenClip(network=CLIP_NAME, weights=other).fit(photos)


def test_photos_are_prepared_as_the_weights_were_trained():
    clip = open_clip_preparation("ViT-B-32", "laion2b_s34b_b79k", 224)
    assert clip == open_clip_preparation("ViT-B-32", None, 224)
    assert (clip.interpolation, clip.crop, clip.mean[0]) == ("bicubic", 1.0, 0.48145466)
    siglip = open_clip_preparation("ViT-B-16-SigLIP", "webli", (224, 224))
    assert (siglip.crop, siglip.mean) == (None, (0.5, 0.5, 0.5))


def test_weights_trained_on_differently_prepared_photos_must_be_named(monkeypatch):
    configs = {"a": {"mean": [0.5, 0.5, 0.5]}, "b": {"mean": [0.4, 0.4, 0.4]}}
    monkeypatch.setattr(open_clip_model, "known_weights", lambda name: list(configs))
    monkeypatch.setattr(open_clip_model.open_clip, "get_pretrained_cfg", lambda name, tag: configs[tag])
    with pytest.raises(UserError, match=r"differently prepared photos.*pretrained= one of a, b"):
        open_clip_preparation("ViT-B-32", None, 224)
    assert open_clip_preparation("ViT-B-32", "b", 224).mean == (0.4, 0.4, 0.4)


def test_a_tokenizer_that_is_not_here_is_named(encoder, monkeypatch):
    def nowhere(name):
        raise OSError("no such tokenizer here")

    monkeypatch.setattr(open_clip_model.open_clip, "get_tokenizer", nowhere)
    with pytest.raises(StorageError, match="cannot be opened, and visterm downloads nothing: no such tokenizer here"):
        encoder.word_vectors(WORDS)


def test_the_root_logger_stays_as_it_was(encoder, photos, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    encoder.fit(photos).word_vectors(WORDS)
    assert logging.getLogger().handlers == []
