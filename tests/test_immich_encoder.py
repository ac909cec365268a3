"""Immich's machine-learning server as an encoder: its vectors, and what happens when it fails."""

from __future__ import annotations

import socket
import threading
import time
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from command_line import run_command
from fakes.immich_ml import cut_off, drip, hang, image_vector, immich_ml, json_answer, reset, status, text_vector
from refusals import refused
from visterm.core import web_client
from visterm.core.errors import CorruptFileError, ServiceError, ShapeError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.remote import only_named_stores
from visterm.core.tables import ENCODERS
from visterm.encoders.chain import Chain
from visterm.encoders.immich import Immich

MODEL = "ViT-B-32__openai"


@pytest.fixture
def server():
    with immich_ml() as running:
        yield running


@pytest.fixture
def encoder(server):
    return Immich(url=server.url, wait=0.01)


@pytest.fixture
def photos():
    rng = np.random.default_rng(0)
    sizes = [(48, 64), (64, 48), (40, 40), (20, 90), (70, 31), (57, 59)]
    return [rng.integers(0, 256, (8, 8, 3), np.uint8).repeat(12, 0).repeat(12, 1)[:h, :w] for h, w in sizes]


@pytest.fixture
def sleeps(monkeypatch):
    """The pauses between tries, which nobody waits for."""
    pauses = []
    ours = SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)  # other threads' pauses are not counted
    monkeypatch.setattr("visterm.core.web_client.time", ours)
    return pauses


def unit(row):
    return row / np.linalg.norm(row)


def test_rows_are_the_servers_vectors_of_length_one_in_the_order_of_the_photos(encoder, photos):
    rows = encoder.fit(photos).transform(photos)
    assert rows.shape == (6, 512)
    for row, photo in zip(rows, photos, strict=True):
        held = BytesIO()
        Image.fromarray(photo).save(held, "jpeg", quality=95, subsampling=0)
        np.testing.assert_allclose(row, unit(image_vector(Image.open(held), MODEL)), atol=1e-6)
        assert row @ unit(image_vector(Image.fromarray(photo), MODEL)) > 0.9999  # a JPEG changes nearly nothing


def test_a_large_photo_is_sent_as_small_as_immichs_previews(server, encoder, tmp_path):
    Image.new("RGB", (6000, 3000), "red").save(tmp_path / "large.jpg")
    encoder.fit([tmp_path / "large.jpg"]).transform([tmp_path / "large.jpg"])
    assert server.predicted[-1]["size"] == (1440, 720)


def test_texts_have_vectors_of_the_same_model_and_space(encoder, photos):
    texts = ["a photo of something red", 'a hut in the Île-de-France\nwith "quotes" and --visterm-']
    rows = encoder.text_rows(texts)
    expected = np.stack([unit(text_vector(text, MODEL)) for text in texts])
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    red, blue = (np.full((30, 30, 3), colour, np.uint8) for colour in [(255, 0, 0), (0, 0, 255)])
    cosines = encoder.fit(photos).transform([red, blue]) @ rows[0]
    assert cosines[0] > 0.999 > cosines[1]
    with refused("texts", value=" "):
        encoder.text_rows(["red", " "])


def test_several_photos_are_sent_at_once_and_no_more_than_the_setting_says(server, photos):
    server.gate = threading.Barrier(3)
    encoder = Immich(url=server.url, at_once=3)
    rows = encoder.transform(photos)  # 6 photos: would wait for ever if fewer than three came at once
    assert server.most_at_once == 3
    server.gate = None
    assert Immich(url=server.url, at_once=1).transform(photos).tobytes() == rows.tobytes()


def test_the_fingerprint_is_the_models_name_and_the_width_wherever_the_server_is(encoder, photos):
    fitted = encoder.fit(photos[:1])
    assert fitted.width == 512
    with immich_ml() as other:
        moved = Immich(url=other.url, retries=0, at_once=1).fit(photos)
        assert moved.fingerprint == fitted.fingerprint
    another = Immich(url=encoder.url, model="ViT-B-32-SigLIP2-256__webli").fit(photos)
    assert another.width == 768
    assert another.fingerprint != fitted.fingerprint


def test_an_environment_variable_names_the_server_that_has_moved(server, photos, monkeypatch):
    fitted = Immich(url=server.url).fit(photos)
    fitted.set_params(url="http://127.0.0.1:1", retries=0)
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:1/predict gives no answer"):
        fitted.transform(photos)
    monkeypatch.setenv("VISTERM_IMMICH", server.url + "/")
    with only_named_stores(["annotate", "run"]):  # the variable names the server, too
        assert len(fitted.transform(photos)) == 6


@pytest.mark.parametrize(
    "fault", [status(500), status(503), status(502), reset, cut_off], ids=["500", "503", "502", "reset", "cut"]
)
def test_a_passing_failure_is_tried_again(server, encoder, photos, fault):
    expected = encoder.transform(photos)
    server.faults = [fault, fault, fault]
    assert encoder.transform(photos).tobytes() == expected.tobytes()
    assert server.faults == []


@pytest.mark.parametrize("slow", [hang, drip])
def test_an_answer_that_does_not_come_is_asked_for_again(server, photos, slow):
    stop = threading.Event()
    encoder = Immich(url=server.url, wait=0, retries=1, at_once=1).fit(photos).set_params(timeout=2.0)
    try:
        server.faults = [slow(stop)]
        assert len(encoder.transform(photos[:1])) == 1
        server.faults = [slow(stop), slow(stop)]
        with pytest.raises(
            ServiceError, match=r"/predict gives no answer: timed out.* \(2 tries\)\. Check the address"
        ):
            encoder.transform(photos[:1])
    finally:
        stop.set()


def test_pauses_double(server, photos, sleeps):
    server.faults = [status(503, "starting")] * 7
    with pytest.raises(ServiceError, match=r"status 503: starting"):
        Immich(url=server.url, retries=6, wait=2, at_once=1).transform(photos[:1])
    assert sleeps == [2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1, 2]", "answers without a vector"),
        ('{"clip": "[0.1, "}', "answers without a vector"),
        ('{"clip": "[[1], [2]]"}', r"an array of shape \(2, 1\); expected a vector"),
        ('{"clip": "[]"}', r"an array of shape \(0,\); expected a vector"),
        ('{"clip": "7"}', r"an array of shape \(\); expected a vector"),
        ('{"clip": ["a"]}', "answers without a vector"),
        ('{"faces": []}', "answers without a vector"),
        (f'{{"clip": [1{"0" * 400}]}}', "answers without a vector"),
        ("<html>", "answers without a vector"),
        ("[" * 900_000, "answers without a vector"),
        ("[" * 2**21, r"more than 1,048,576 bytes"),
    ],
)
def test_an_answer_that_is_no_vector_is_an_error_and_not_tried_again(server, encoder, photos, content, said):
    server.faults = [json_answer(content)]
    with pytest.raises(ServiceError, match=said):
        encoder.transform(photos[:1])
    assert server.predicted == []


def test_a_photo_whose_vector_is_not_finite_is_left_out(server, encoder, photos, tmp_path):
    files = [tmp_path / f"{i}.png" for i in range(len(photos))]
    for file, photo in zip(files, photos, strict=True):
        Image.fromarray(photo).save(file)
    server.faults = [json_answer('{"clip": "[null, ' + ",".join(["1"] * 511) + ']"}')]
    found = encoder.set_params(at_once=1).encode(files)
    assert found.kept.tolist() == [1, 2, 3, 4, 5]
    assert "no finite features" in found.skipped[0].reason


@pytest.mark.parametrize("content", ['{"clip": [1, NaN]}', '{"clip": "[1e39, 1]"}', '{"clip": ["1", null]}'])
def test_a_text_whose_vector_is_not_finite_is_the_servers_fault_and_so_is_the_first_picture(
    server, encoder, photos, content
):
    for ask in (lambda: encoder.text_rows(["red"]), lambda: encoder.fit(photos)):
        server.faults = [json_answer(content)]
        with pytest.raises(ServiceError, match="answers with a vector that has NaN or infinity"):
            ask()


def test_a_model_that_the_server_replaced_by_another_is_an_error(server, encoder, photos):
    encoder.fit(photos)
    server.faults = [json_answer('{"clip": "[1, 2, 3]"}')]
    with pytest.raises(ShapeError, match=f"The model '{MODEL}' of .* returns 3 numbers instead of 512"):
        encoder.transform(photos)


@pytest.mark.parametrize("model", ["VitB32", "ViT-B-99__nobody"])
def test_a_model_that_the_server_does_not_know_is_said_before_any_photo_is_read(server, model):
    with refused("model", value=model, error=ServiceError):
        Immich(url=server.url, model=model, wait=0.01).check_settings()
    assert server.predicted == []


def test_another_server_is_said_to_be_none_of_immichs(server, monkeypatch):
    Immich(url=server.url).check_settings()
    with pytest.raises(
        ServiceError, match=r"is not Immich's machine-learning server: GET /ping returns 404, '{\"detail"
    ):
        Immich(url=f"{server.url}/api").check_settings()


@pytest.mark.parametrize(
    "url",
    ["host:3003", "ftp://host", "http://", "http://a b", "http://host:port", "http://host:0", "http://u:p@host",
     "http://host?x=1", "http://host#x", "http://höst", 7, "http://[::1"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(UserError, match=r"url is .*; expected the address of a server, such as http://host:3003"):
        Immich(url=url).check_settings()


@pytest.mark.parametrize(
    "setting", [{"model": ""}, {"at_once": 0}, {"timeout": 0}, {"retries": -1}, {"wait": -1}, {"batch_size": 0}]
)
def test_settings_out_of_range_are_refused(server, setting):
    [(name, value)] = setting.items()
    with refused(name, value=value):
        Immich(url=server.url, **setting).check_settings()


def test_no_photo_goes_to_a_server_that_nobody_named(server, encoder, photos):
    with only_named_stores(["annotate", "run"]), refused("url", value=server.url):
        encoder.transform(photos)
    assert server.predicted == []
    with only_named_stores(["fit", "--encoder", f"immich:{server.url}"]):
        assert len(encoder.transform(photos)) == 6


def test_the_command_line_learns_and_tags_by_the_server(server, photos, tmp_path, monkeypatch):
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(1)
    lines = ["image,tag"]
    for i in range(24):
        colour = ["red", "green", "blue"][i % 3]
        noise = rng.normal(0, 20, (40, 50, 3))
        plain = np.asarray(Image.new("RGB", (50, 40), colour), float)
        Image.fromarray(np.clip(plain + noise, 0, 255).astype(np.uint8)).save(folder / f"{i}.png")
        lines.append(f"{i}.png,{colour}")
    (tmp_path / "tags.csv").write_text("\n".join(lines))
    done = run_command(
        ["fit", folder, "--tags", tmp_path / "tags.csv", "-o", tmp_path / "run", "--model", "ridge", "--min-count", 1,
         "--encoder", f"immich:{server.url}"]
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    refused = run_command(["annotate", tmp_path / "run", folder / "0.png"])
    assert refused.returncode == 2
    told = f"would send your photos to {server.url}. If you trust the server: VISTERM_IMMICH={server.url} visterm"
    assert told in refused.stderr
    monkeypatch.setenv("VISTERM_STORES", server.url)
    told = run_command(["annotate", tmp_path / "run", folder / "0.png", folder / "1.png", "-k", 1]).stdout
    assert "red" in told.splitlines()[0]
    assert "green" in told.splitlines()[1]


def test_typed_words_wait_for_one_more_try_at_most(server, sleeps):
    encoder = Immich(url=server.url, at_once=1)
    server.faults = [status(503, "starting")] * 2
    with pytest.raises(ServiceError, match="status 503: starting"):
        encoder.text_rows(["red"])
    assert sleeps == [1]
    server.faults = [reset]
    assert len(encoder.text_rows(["red"])) == 1
    encoder.set_params(url="http://127.0.0.1:1", retries=0)
    with pytest.raises(ServiceError, match=r"Connection refused\. Check"):
        encoder.text_rows(["red"])


def test_a_connection_that_is_refused_at_the_start_is_an_error_at_once(photos, sleeps):
    encoder = Immich(url="http://127.0.0.1:1")
    for ask in [
        encoder.check_settings, lambda: encoder.fit(photos), lambda: encoder.transform(photos),
        lambda: encoder.text_rows(["red"]),
    ]:  # fmt: skip
        with pytest.raises(ServiceError, match=r"gives no answer: .*Connection refused\. Check"):
            ask()
    assert sleeps == []


def test_photos_under_way_wait_for_a_server_that_starts_anew(server, photos, sleeps, monkeypatch):
    encoder = Immich(url=server.url, at_once=1)
    encoder.transform(photos)
    monkeypatch.setenv("VISTERM_IMMICH", "http://127.0.0.1:1")
    with pytest.raises(ServiceError, match=r"\(6 tries\)"):
        encoder.transform(photos)
    assert sleeps == [1, 2, 4, 8, 16]


def test_a_server_that_does_not_answer_to_ping_is_asked_twice(monkeypatch, sleeps):
    asked = []

    def silent(url, *_):
        asked.append(url)
        raise TimeoutError("timed out")

    monkeypatch.setattr("visterm.core.web_client._try_once", silent)
    with pytest.raises(ServiceError, match=r"nas:3003/ping gives no answer: timed out \(2 tries\)"):
        Immich(url="http://nas:3003").check_settings()
    assert len(asked) == 2


def test_a_run_keeps_the_address_that_the_environment_named(server, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("VISTERM_IMMICH", server.url)
    plain = Immich(url=server.url, wait=0.01).fit(photos)
    fitted = Immich(wait=0.01).fit(photos)
    assert fitted.fingerprint == plain.fingerprint  # wherever the server is
    save_estimator(fitted, ENCODERS, tmp_path, "encoder")
    monkeypatch.setenv("VISTERM_IMMICH", "no address")
    again = load_estimator(ENCODERS, tmp_path, "encoder")  # what the variable says is no damage of the run
    with pytest.raises(UserError, match=r"^VISTERM_IMMICH is 'no address'"):
        again.transform(photos)
    monkeypatch.delenv("VISTERM_IMMICH")
    assert len(again.transform(photos)) == len(again.text_rows(list("abcdef"))) == 6
    with only_named_stores(["search", "catalogue"]), refused("url", value=server.url):
        again.text_rows(["red"])


def test_without_any_address_it_asks_for_one():
    with refused("url"):
        Immich().check_settings()


def test_a_stored_address_that_is_none_is_damage(server, photos, tmp_path):
    fitted = Immich(url=server.url).fit(photos)
    fitted.server_ = "file:///etc/passwd"
    save_estimator(fitted, ENCODERS, tmp_path, "encoder")
    with pytest.raises(CorruptFileError, match="server_ is 'file:///etc/passwd'; expected the address"):
        load_estimator(ENCODERS, tmp_path, "encoder")


@pytest.mark.parametrize("encoder", ["immich", "chain"])
def test_no_photo_is_opened_for_a_server_that_nobody_named(server, photos, tmp_path, monkeypatch, encoder):
    made = Immich(url=server.url)
    made = made if encoder == "immich" else Chain(encoders=[made])
    made.fit(photos)
    monkeypatch.setattr("visterm.encoders.base.decode_images", None)
    with only_named_stores(["index", "run"]), refused("url", value=server.url):
        made.encode(photos)


def test_a_computer_that_is_off_is_waited_for_ten_seconds_and_its_answer_as_long_as_the_setting_says(
    server, photos, monkeypatch
):
    waited, connect, in_time = [], socket.create_connection, web_client._with_remaining_time

    def connected(address, timeout):
        waited.append(timeout)
        return connect(address, timeout)

    def bounded(sock, until):
        made = in_time(sock, until)
        waited.append(made.gettimeout())
        return made

    monkeypatch.setattr("socket.create_connection", connected)
    monkeypatch.setattr(web_client, "_with_remaining_time", bounded)
    Immich(url=server.url, at_once=1, timeout=70).text_rows(["red"])
    assert waited[0] <= 10 < waited[1] <= 70


def test_the_recipe_of_the_docs_works_and_the_run_says_where_photos_would_go(server, tmp_path, monkeypatch):
    folder = tmp_path / "photos"
    folder.mkdir()
    lines = ["image,tag"]
    for i in range(12):
        colour = ["red", "blue"][i % 2]
        Image.new("RGB", (40 + i, 30), colour).save(folder / f"{i}.png")
        lines.append(f"{i}.png,{colour}")
    (tmp_path / "tags.csv").write_text("\n".join(lines))
    monkeypatch.setenv("VISTERM_IMMICH", server.url)
    fit = ["fit", folder, "--tags", tmp_path / "tags.csv", "-o", tmp_path / "run", "--encoder", "immich"]
    index = ["index", tmp_path / "run", folder, "-o", tmp_path / "catalogue"]
    search = ["search", tmp_path / "catalogue", "--", "lime"]
    more = ["--model", "text_ridge", "--min-count", 1]
    for line in [[*fit, *more], index, search]:
        done = run_command(line)
        assert done.returncode == 0, done.stderr
    monkeypatch.delenv("VISTERM_IMMICH")
    would = f"to {server.url}. If you trust the server: VISTERM_IMMICH={server.url} visterm"
    for line, sent in [(["annotate", tmp_path / "run", folder], "photos"), ([*search[:-1], "maroon"], "words")]:
        refused = run_command(line)
        assert refused.returncode == 2
        assert f"This run would send your {sent} {would}" in " ".join(refused.stderr.split())
