"""`visterm reproduce` and `visterm demo`: what they cannot do, they refuse at once, in plain words."""

from __future__ import annotations

import pytest

from command_line import visterm


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("reproduce wsabie -o out --jobs 0", "--jobs"),
        ("demo -o out --scenes 99", "--scenes"),
        ("reproduce wsabie -o out --wordnet missing", "There is no folder missing."),
        ("reproduce wsabie -o out --encoder onnx:missing.onnx", "There is no file missing.onnx."),
        ("reproduce features -o out --encoder onnx:missing.onnx", "There is no file missing.onnx."),
        ("reproduce foo", "'foo' is not one of 'wsabie'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_written(line, message, tmp_path):
    code, out, said = visterm(line, tmp_path)
    assert (code, out) == (2, "")
    assert message in said
    assert "Value error" not in said
    assert list(tmp_path.iterdir()) == []


def test_the_help_names_the_argument_and_what_stands_for_values(tmp_path):
    said = visterm("reproduce --help", tmp_path)[1]
    assert " reproduce [OPTIONS] PAPER\n" in said
    assert "--encoder NAME" in said
    assert "<" not in said


def test_the_help_lists_the_command_in_one_line(tmp_path):
    assert "Run a paper's comparison again" in visterm("--help", tmp_path)[1]
