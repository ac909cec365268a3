"""Text towers give words vectors in the space of the images: cut into tokens, said in several prompts, kept."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("tokenizers", reason="the extra 'onnx' is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import onnx
from onnx import TensorProto, helper, numpy_helper

from tiny_networks import sum_network
from tiny_text_towers import LENGTH, TEXTS, WIDTH, write_towers
from visterm.core.errors import DataError, StorageError, UnknownNameError, UserError
from visterm.encoders import word_rows as words_module
from visterm.encoders.named import TABLE_ENV, make_encoder, network_named
from visterm.encoders.onnx import Onnx
from visterm.encoders.word_rows import OnnxTextTower, prepared_text, prompts_of, word_cache_path, word_rows

LONG = " ".join(f"{word}{i}" for i in range(40) for word in ("husky", "snow"))
KINDS = ["clip", "siglip"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Towers of each kind, made once."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    return {kind: (folder, write_towers(folder, kind)) for kind, folder in folders.items()}


@pytest.fixture
def towers(written, tmp_path, monkeypatch):
    """Make a copy of the towers of a kind the user's table, and give what torch has: function of the kind."""

    def of(kind):
        folder, tower = written[kind]
        shutil.copytree(folder, tmp_path / kind)
        monkeypatch.setenv(TABLE_ENV, str(tmp_path / kind / "networks.toml"))
        return tower

    return of


def change(kind, tmp_path, old, new):
    table = tmp_path / kind / "networks.toml"
    assert old in table.read_text()
    table.write_text(table.read_text().replace(old, new))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_transformers(kind, towers):
    tower, encoder = towers(kind), make_encoder("tiny", {}, {"n_jobs": 2})
    texts = [*TEXTS, LONG, "x"]
    as_the_tower_wants = [prepared_text(text, canonicalise=kind == "siglip") for text in texts]
    rows = encoder.text_rows(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (6, WIDTH[kind])
    np.testing.assert_allclose(rows, tower.rows(as_the_tower_wants), atol=1e-4)
    assert (np.abs(rows @ rows.T - np.eye(6)) < 0.999).all()  # texts differ
    assert encoder.text_rows([]).shape[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_padded_to_the_length_of_the_tower_and_cut_before_the_end(kind, towers):
    tower = towers(kind)
    opened = OnnxTextTower(network_named("tiny"))
    for text in [*TEXTS, LONG, ""]:
        tokens = opened.tokens(text)
        right = tower.tokenizer(
            prepared_text(text, canonicalise=kind == "siglip"),
            padding="max_length",
            truncation=True,
            max_length=tower.length,
        )
        assert tokens["ids"].tolist() == right["input_ids"]
        assert tokens["mask"].tolist() == right["attention_mask"]
        assert len(tokens["ids"]) == LENGTH[kind]
        assert (tokens["ids"][tokens["mask"] == 0] == 0).all()
        assert tokens["ids"][tokens["mask"] == 1][-1] == {"clip": 2, "siglip": 1}[kind]
    assert opened.tokens(LONG)["mask"].all()


def test_a_text_is_canonicalised_as_siglip_was_trained():
    said = {" Polar_Bear's  ICE,\tand-sea! ": "polar bears ice andsea", "Île-de-France": "îledefrance", "...": ""}
    assert {text: prepared_text(text, canonicalise=True) for text in said} == said
    assert prepared_text(" Polar_Bear's  ICE\n", canonicalise=False) == "Polar_Bear's ICE"
    assert prepared_text("a\ud800b", canonicalise=False) == "a?b"


def test_a_texts_vector_depends_on_no_other_text_and_on_no_number_of_threads(towers):
    towers("siglip")
    rows = make_encoder("tiny", {}, {"n_jobs": 2}).text_rows(TEXTS)
    encoder = make_encoder("tiny", {}, {"n_jobs": 1})
    assert b"".join(encoder.text_rows([text]).tobytes() for text in TEXTS) == rows.tobytes()


def test_a_words_vector_is_the_mean_over_prompts_of_vectors_of_length_one(towers):
    tower, encoder = towers("clip"), make_encoder("tiny", {}, {})
    prompts = ["{}", "a photo of a {}.", "{} and {}"]
    made = word_rows(encoder, ["husky", " polar  bear", "husky"], prompts)
    assert made.words == ["husky", "polar bear"]
    said = [["husky", "a photo of a husky.", "husky and husky"],
            ["polar bear", "a photo of a polar bear.", "polar bear and polar bear"]]  # fmt: skip
    means = np.stack([tower.rows(texts).mean(axis=0) for texts in said])
    np.testing.assert_allclose(made.matrix, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-4)


def test_words_are_kept_by_tower_and_prompts_and_made_once(towers, monkeypatch, tmp_path):
    towers("clip")
    encoder, asked = make_encoder("tiny", {}, {}), []
    text_rows = Onnx.text_rows
    monkeypatch.setattr(Onnx, "text_rows", lambda self, texts: asked.append(texts) or text_rows(self, texts))
    first = word_rows(encoder, ["husky", "bear"], ["{}"])
    again = word_rows(make_encoder("tiny", {}, {}), ["bear", "sky", "husky"], ["{}"])
    assert asked == [["husky", "bear"], ["sky"]]
    assert again.matrix[[2, 0]].tobytes() == first.matrix.tobytes()
    word_rows(encoder, ["husky"], ["a {}"])
    assert asked[2:] == [["a husky"]]
    change("clip", tmp_path, "canonicalise = false", "canonicalise = true")
    word_rows(make_encoder("tiny", {}, {}), ["husky"], ["{}"])
    assert asked[3:] == [["husky"]]


def test_what_is_kept_may_be_damaged_or_not_writable(towers, caplog):
    towers("clip")
    encoder = make_encoder("tiny", {}, {})
    right = word_rows(encoder, ["husky"], ["{}"]).matrix
    word_cache_path().write_bytes(b"no database" * 100)
    assert word_rows(encoder, ["husky"], ["{}"]).matrix.tobytes() == right.tobytes()
    assert "are computed again" in caplog.text
    assert "are computed each time" in caplog.text


def test_the_oldest_words_go_where_too_many_are_kept(towers, monkeypatch):
    towers("clip")
    monkeypatch.setattr(words_module, "MAX_CACHED_WORDS", 3)
    encoder, asked = make_encoder("tiny", {}, {}), []
    for word in "abcd":
        word_rows(encoder, [word], ["{}"])
    text_rows = Onnx.text_rows
    monkeypatch.setattr(Onnx, "text_rows", lambda self, texts: asked.append(texts) or text_rows(self, texts))
    word_rows(encoder, list("abcd"), ["{}"])
    assert asked == [["a"]]


def test_languages_are_read_from_a_file_that_users_edit(towers, tmp_path):
    towers("clip")
    assert "a photo of a {}." in prompts_of("english")
    assert any("Foto" in prompt for prompt in prompts_of("german"))
    users = tmp_path / "clip" / "prompts.toml"
    users.write_text('[english]\nprompts = ["my {}"]\n[latin]\nprompts = ["imago {}"]\n')
    assert prompts_of("english") == ["my {}"]
    assert prompts_of("latin") == ["imago {}"]
    assert len(prompts_of("german")) > 1
    with pytest.raises(UnknownNameError, match=r"Unknown language 'latni'. Did you mean 'latin'.*prompts\.toml"):
        prompts_of("latni")
    for wrong in ["[english]\nprompts = []", '[english]\nprompts = ["no word"]', "english = 3", "[latin]\nx = 1", "[["]:
        users.write_text(wrong)
        with pytest.raises(DataError, match=r"prompts\.toml"):
            prompts_of("english")


def test_an_encoder_without_a_text_tower_says_where_there_is_one(towers, tmp_path):
    towers("clip")
    for encoder in [make_encoder("blind", {}, {}), make_encoder(f"onnx:{tmp_path}/clip/image.onnx", {}, {}),
                    make_encoder("visterms", {}, {}), make_encoder("ids", {}, {})]:  # fmt: skip
        assert not encoder.reads_texts
        with pytest.raises(UserError, match="has no text tower, so words have no vectors"):
            word_rows(encoder, ["husky"], ["{}"])
    assert make_encoder("tiny", {}, {}).reads_texts


def test_a_text_tower_that_is_not_here_is_an_error_with_the_command_that_fetches_it(towers, tmp_path):
    towers("clip")
    encoder = make_encoder("siglip2", {}, {})
    assert not encoder.reads_texts
    with pytest.raises(StorageError, match="visterm encoders get siglip2"):
        encoder.text_rows(["husky"])
    (tmp_path / "clip" / "text.onnx").unlink()
    assert not make_encoder("tiny", {}, {}).reads_texts
    with pytest.raises(StorageError, match=r"should be in .*text\.onnx, which does not exist"):
        make_encoder("tiny", {}, {}).text_rows(["husky"])


def test_a_row_that_does_not_fit_the_files_is_an_error_that_says_what_is_wrong(towers, tmp_path):
    towers("clip")
    folder = tmp_path / "clip"

    def said(error):
        with pytest.raises(error) as raised:
            make_encoder("tiny", {}, {}).text_rows(["husky"])
        return str(raised.value)

    change("clip", tmp_path, "pad_id = 0", "pad_id = 100000")
    assert "pad_id is 100000, which is not a token of" in said(UserError)
    change("clip", tmp_path, "pad_id = 100000", "pad_id = 0")
    change("clip", tmp_path, "length = 77", "length = 64")
    assert "takes text tensor(int32) ['texts', 77]; expected numbers of tokens (texts, 64)" in said(UserError)
    change("clip", tmp_path, "length = 64", "length = 77")
    sum_network(folder / "text.onnx", inputs={"a": [1, 77], "b": [1, 77]})
    assert "expected numbers of tokens (texts, 77), and optionally an attention_mask" in said(UserError)
    (folder / "text.onnx").write_bytes(b"none")
    assert "cannot be opened as an ONNX network" in said(StorageError)
    (folder / "tokenizer.json").write_text("{}")
    assert "tokenizer.json cannot be opened as a tokenizer" in said(StorageError)


def test_a_text_tower_for_more_texts_than_memory_holds_is_refused(towers, tmp_path):
    towers("clip")
    tokens = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [10**9, 77])
    row = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [10**9, 77])
    cast = helper.make_node("Cast", ["input_ids"], ["embedding"], to=TensorProto.FLOAT)
    graph = helper.make_graph([cast], "tower", [tokens], [row])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "clip" / "text.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(
        UserError, match=r"takes input_ids tensor\(int64\) \[1000000000, 77\]; expected .* for one text or any"
    ):
        make_encoder("tiny", {}, {}).text_rows(["husky"])


def test_a_mask_is_given_to_networks_that_take_one_with_one_text(towers, tmp_path):
    towers("clip")
    table = np.random.default_rng(0).normal(size=(800, 5)).astype(np.float32)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [1, 77]) for name in ("input_ids", "attention_mask")
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "last"], ["mask"]),
        helper.make_node("Mul", ["rows", "mask"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "middle"], ["text_embeds"], keepdims=0),
        helper.make_node("Identity", ["rows"], ["last_hidden_state"]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("last_hidden_state", "text_embeds")
    ]
    fixed = {"table": table, "last": np.array([2]), "middle": np.array([1])}
    graph = helper.make_graph(nodes, "sums", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in fixed.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "clip" / "text.onnx")
    tokens = OnnxTextTower(network_named("tiny")).tokens("a husky")
    expected = table[tokens["ids"][tokens["mask"] == 1]].sum(axis=0)
    row = make_encoder("tiny", {}, {}).text_rows(["a husky"])[0]
    np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-5)
