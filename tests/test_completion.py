"""What a shell completes: names from the tables."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from visterm.cli.command_line import app
from visterm.core.tables import ENCODERS, MODELS
from visterm.encoders.named import networks


@pytest.fixture
def completed(monkeypatch, capsys):
    def complete(line):
        words = line.split("|")
        monkeypatch.setenv("_VISTERM_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
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


def test_completion_imports_nothing_heavy():
    code = (
        "import json, sys; from visterm.cli import command_line, options; "
        "options.model_names(), options.metric_names(); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)).isdisjoint({"numpy", "scipy", "sklearn", "numba", "torch"})
