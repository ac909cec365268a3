"""What a shell completes: names from the tables, and tags of the run or catalogue on the line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tiny_catalogues import draw_photos, fit_run
from visterm.cli.command_line import app
from visterm.cli.completion import tags_of
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders.named import networks
from visterm.library.catalogue import Catalogue
from visterm.tagging.tagger import Tagger


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completed")
    run = fit_run(folder / "photos", draw_photos(folder / "photos", seed=7), folder / "run")
    made = Catalogue.create(folder / "catalogue", Tagger.load(run, n_jobs=1))
    made.index(folder / "photos")
    made.give(0, ["reindeer", "red panda"])
    return folder


@pytest.fixture
def completed(place, monkeypatch, capsys):
    def complete(line):
        words = line.split("|")
        monkeypatch.setenv("_VISTERM_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        monkeypatch.chdir(place)
        with pytest.raises(SystemExit):
            app(prog_name="visterm", standalone_mode=False)
        said = capsys.readouterr()
        assert said.err == ""
        return [line for line in said.out.splitlines() if line]

    return complete


def test_models_encoders_and_metrics_complete_by_name(completed):
    assert completed("visterm|fit|--model|k") == [entry.name for entry in MODELS if entry.name.startswith("k")]
    assert completed("visterm|tune|--model|ws") == ["wsabie"]
    assert completed("visterm|encode|--encoder|") == [*(entry.name for entry in ENCODERS), *networks()]
    assert completed("visterm|encoders|get|clip") == ["clip"]
    assert completed("visterm|evaluate|run|--metric|mr") == ["mrr"]


def test_a_search_completes_its_last_word_by_the_tags_of_the_catalogue_on_the_line(completed):
    assert completed("visterm|search|catalogue|re") == ["red", "reindeer"]
    assert completed("visterm|search|catalogue|'blue -re") == ["blue -red", "blue -reindeer"]
    assert completed("visterm|search|catalogue|'\"red p") == ['"red panda"']
    assert completed("visterm|search|catalogue|--tag|re") == ["red", "red\\ panda", "reindeer"]
    assert completed("visterm|search|catalogue|blue|--tag|rein") == ["reindeer"]


def test_a_run_on_the_line_completes_its_own_tags(completed):
    assert completed("visterm|tags|run|--like|re") == ["red"]
    assert completed("visterm|explain|run|photo.jpg|re") == ["red"]


def test_nothing_is_completed_or_said_without_a_run_or_a_catalogue(completed, tmp_path):
    assert completed("visterm|search|nowhere|re") == []
    (tmp_path / "vocabulary.json").write_text("[")
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "catalogue.sqlite").write_text("no database")
    assert tags_of(tmp_path) == tags_of(tmp_path / "catalogue") == []


def test_completion_imports_nothing_heavy(place):
    code = (
        "import json, sys; from visterm.cli import command_line, completion; from pathlib import Path; "
        f"completion.model_names(), completion.metric_names(), completion.tags_of(Path({str(place / 'catalogue')!r})); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)).isdisjoint({"numpy", "scipy", "sklearn", "numba", "torch"})
