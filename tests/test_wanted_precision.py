"""As many tags as are wanted: `annotate` down to a cut-off, and `evaluate` with wanted beside achieved precision."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from planted import plant_corpus
from visterm.cli.command_line import app
from visterm.core.errors import UserError
from visterm.evaluation.evaluate import evaluate_taggers
from visterm.evaluation.summaries import precision_summary
from visterm.features.training_rows import read_corpus
from visterm.metrics.significance import share_of_right
from visterm.models.confidence.calibration import cutoff_for_precision, cutoff_of_best_f1
from visterm.tagging.tagger import Tagger

N, N_TEST = 500, 300


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Features and tags of images that are names only, and a run of ridge over the training rows."""
    folder = tmp_path_factory.mktemp("precision")
    corpus = plant_corpus(n_train=N, n_test=N_TEST, n_tags=16, noise=0.6, random_state=7)
    names = [f"{i:03d}.png" for i in range(N + N_TEST)]
    np.save(folder / "features.npy", np.vstack([corpus.X_train, corpus.X_test]))
    (folder / "features.names.txt").write_text("\n".join(names) + "\n")
    rows = np.vstack([corpus.Y_train.toarray(), corpus.Y_test.toarray()])
    entries = [
        {"image": name, "tags": [f"t{t}" for t in np.flatnonzero(row)], "split": "train" if i < N else "test"}
        for i, (name, row) in enumerate(zip(names, rows, strict=True))
    ]
    (folder / "tags.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    tagger = Tagger(encoder=f"precomputed:{folder / 'features.npy'}", model="ridge", n_jobs=1)
    tagger.fit(None, tags=folder / "tags.jsonl").save(folder / "run")
    return folder, tagger, {entry["image"]: set(entry["tags"]) for entry in entries[N:]}


def shown(tagger, names, **asked):
    return {item.image: item.tags for item in tagger.annotate(names, **asked).images}


def test_tags_are_given_down_to_the_cut_off_and_no_further(library):
    _, tagger, given = library
    whole, above = (shown(tagger, list(given), **asked) for asked in ({"k": 0}, {"precision": 0.8}))
    least = cutoff_for_precision(tagger.calibration.held_out, 0.8)
    index = {tag: least[tagger.vocabulary.index(tag)] for tag in tagger.vocabulary.tags}
    for image, tags in whole.items():
        assert [tag.tag for tag in above[image]] == [tag.tag for tag in tags if tag.confidence >= index[tag.tag]]
    right = sum(tag.tag in given[image] for image, tags in above.items() for tag in tags)
    n = sum(len(tags) for tags in above.values())
    assert n > 200
    assert right / n > 0.75
    assert len({len(tags) for tags in above.values()}) > 2  # as many as fit, not as many of each


def test_a_best_f1_and_a_least_confidence_are_cut_offs_and_k_still_limits(library):
    _, tagger, given = library
    names = list(given)[:40]
    least = dict(zip(tagger.vocabulary.tags, cutoff_of_best_f1(tagger.calibration.held_out), strict=True))
    found = [tag for tags in shown(tagger, names, best_f1=True).values() for tag in tags]
    assert len(found) > 40
    assert all(tag.confidence >= least[tag.tag] for tag in found)
    both = shown(tagger, names, best_f1=True, min_confidence=0.95)
    assert both == shown(tagger, names, min_confidence=0.95)
    assert any(len(tags) > 1 for tags in shown(tagger, names, min_confidence=0.3).values())
    one = shown(tagger, names, min_confidence=0.3, k=1)
    assert {len(tags) for tags in one.values()} <= {0, 1}
    assert all(len(tags) == 5 for tags in shown(tagger, names).values())


def test_runs_that_do_not_know_refuse_with_advice(library, tmp_path):
    folder, tagger, given = library
    name = next(iter(given))
    bare = Tagger.from_parts(tagger.encoder, tagger.model, tagger.vocabulary)
    with pytest.raises(UserError, match=r"needs a run with confidences. Fit the run again"):
        bare.annotate([name], precision=0.9)
    assert bare.annotate([name]).images[0].tags[0].confidence is None
    old = Tagger.load(folder / "run")
    old.parts = old.parts.changed(calibration=old.calibration._replace(held_out=None))
    for asked in ({"precision": 0.9}, {"best_f1": True}):
        with pytest.raises(UserError, match="needs a run with confidences of held-out photos"):
            old.annotate([name], **asked)
    assert old.annotate([name], min_confidence=0.0).images[0].tags
    with pytest.raises(UserError, match=r"precision is 1\.5; expected a number above 0 and below 1"):
        tagger.annotate([name], precision=1.5)
    with pytest.raises(UserError, match=r"min_confidence is -1"):
        tagger.annotate([name], min_confidence=-1)
    with pytest.raises(UserError, match=r"Leave one of the two out"):
        tagger.annotate([name], precision=0.5, best_f1=True)
    with pytest.raises(UserError, match=r"Words that were added have no confidence"):
        tagger.annotate([name], precision=0.5, added=True)


def test_the_share_of_right_tags_has_the_interval_of_wilson_where_tags_are_independent():
    assert share_of_right([0, 0], [0, 0]) is None
    found = share_of_right([1] * 8 + [0] * 2, [1] * 10)
    # Wilson, of 8 in 10: (0.8 + 0.19207 ± 1.96 · sqrt(0.016 + 0.0096)) / 1.38415, but 10 / 9 wider a variance
    assert found.mean == 0.8
    n, z = 9, 1.959964
    half = z / (1 + z * z / n) * np.sqrt(0.16 / n + z * z / 4 / n / n)
    centre = (0.8 + z * z / 2 / n) / (1 + z * z / n)
    assert found[1:] == pytest.approx((centre - half, centre + half))
    all_right = share_of_right([1, 1, 1], [1, 1, 1])
    assert all_right.high == 1
    assert all_right.low == pytest.approx(3 / (3 + z * z))  # Wilson's, where all are right


def test_tags_that_are_wrong_together_say_less():
    alone = share_of_right([1, 0] * 50, [1] * 100)
    together = share_of_right([10, 0] * 5, [10] * 10)
    assert alone.mean == together.mean == 0.5
    assert together.high - together.low > 2.5 * (alone.high - alone.low)


def test_wanted_stands_beside_achieved_for_all_tags_and_for_each_band(library):
    folder, tagger, given = library
    corpus = read_corpus(tagger.encoder, None, str(folder / "tags.jsonl")).select("test")
    found = evaluate_taggers([tagger], corpus, ["map"])
    [run] = precision_summary(found, ["run"], 0.8)["runs"]
    above = shown(tagger, list(given), precision=0.8)
    every, *bands = run["bands"]
    assert every["band"] == "all"
    assert every["given"] == sum(len(tags) for tags in above.values())
    assert every["right"] == sum(tag.tag in given[image] for image, tags in above.items() for tag in tags)
    assert every["recall"] == pytest.approx(every["right"] / sum(map(len, given.values())))
    assert every["tags_an_image"] == pytest.approx(every["given"] / N_TEST)
    assert len(bands) > 1
    for count in ("given", "right", "tags"):
        assert sum(band[count] for band in bands) == every[count]
    assert every["reached"] is (every["precision"]["high"] >= 0.8)


def test_the_commands_say_it_in_text_in_json_and_on_the_page(library, tmp_path, monkeypatch):
    folder, tagger, given = library
    monkeypatch.chdir(tmp_path)
    run = CliRunner()
    name = next(iter(given))
    line = run.invoke(app, ["annotate", str(folder / "run"), name, "-k", "1"]).stdout
    assert re.fullmatch(rf"{name}: t\d+ \d+%\n", line)
    said = json.loads(run.invoke(app, ["annotate", str(folder / "run"), name, "--precision", "0.7", "--json"]).stdout)
    [item] = tagger.annotate([name], precision=0.7).images
    assert said == item.as_dict()
    assert set(said["tags"][0]) == {"tag", "score", "confidence"}
    asked = ["evaluate", str(folder / "run"), "--tags", str(folder / "tags.jsonl"), "--metric", "map"]
    done = run.invoke(app, [*asked, "--precision", "0.8", "--json", "--report", "page"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout.splitlines()[0])["wanted_precision"]
    assert figures["wanted"] == 0.8
    mean = figures["runs"][0]["bands"][0]["precision"]["mean"]
    page = (tmp_path / "page" / "index.html").read_text()
    assert "Requested and achieved precision" in page
    assert f"{mean:.3f}" in page
    assert json.loads((tmp_path / "page" / "results.json").read_text())["wanted_precision"] == figures
    text = run.invoke(app, [*asked, "--precision", "0.8"]).stdout
    assert re.search(rf"all\s+0\.800\s+{mean:.3f}", text)
    refused = run.invoke(app, [*asked[:4], "--queries", "tags", "--precision", "0.8"])
    assert refused.exit_code != 0
