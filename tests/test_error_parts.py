"""Errors are made of parts, and each reader sees the names that they know."""

from __future__ import annotations

import pickle

import pytest
from typer.main import get_command

from refusals import refused
from visterm.cli.command_line import _typed_name, app, wording_for
from visterm.core.checks import check_k, check_number
from visterm.core.errors import DataError, MissingExtraError, UserError, VistermError


def test_the_message_is_made_of_the_parts() -> None:
    error = UserError(setting="k", value=-1.0, expected="a number of 0 or more", advice="Leave `k` out.")
    assert str(error) == "k is -1; expected a number of 0 or more. Leave `k` out."
    assert str(UserError("No tag has 5 images.", setting="min_count", value=5, advice="Lower it.")) == (
        "No tag has 5 images. Lower it."
    )
    assert str(UserError("A sentence.")) == "A sentence."


def test_a_reader_sees_its_own_names() -> None:
    error = UserError(setting="min_count", value=0, expected="1 or more", advice="Or leave `tag_rules` out, not `a b`.")
    assert error.wording(lambda name: f"--{name.replace('_', '-')}") == (
        "--min-count is 0; expected 1 or more. Or leave --tag-rules out, not `a b`."
    )


@pytest.mark.parametrize("kind", [VistermError, UserError, MissingExtraError])
def test_errors_come_whole_from_another_process(kind: type[VistermError]) -> None:
    error = kind(setting="k", value=[1], expected="a number", advice="Pass one.")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_checks_name_the_setting_and_its_value() -> None:
    with refused("k", value=-1):
        check_k(-1, 5)
    with refused("min_confidence", value=2):
        check_number(2, "min_confidence", least=0, below=1)


@pytest.mark.parametrize(
    ("command", "name", "typed"),
    [
        ("fit", "min_count", "--min-count"),
        ("fit", "images", "IMAGES"),
        ("fit", "out", "--out"),
        ("fit", "model.dim", "--set dim"),
        ("fit", "encoder.views", "--encoder-set views"),
        ("fit", "model_params", "--set"),
        ("tune", "n_random", "--random"),
        ("evaluate", "map", "--map"),
        ("search", "taken_from", "--from"),
        ("annotate", "model.dim", "model.dim"),
        ("annotate", "n_jobs", "n_jobs"),
    ],
)
def test_a_command_names_parameters_as_they_are_typed(command: str, name: str, typed: str) -> None:
    group = get_command(app)
    resolved = group.resolve_command(group.make_context("visterm", [], resilient_parsing=True), [command])[1]
    assert _typed_name(resolved.make_context(command, [], resilient_parsing=True), name) == typed


def test_a_watched_folder_names_the_options_by_which_its_photos_were_indexed() -> None:
    group = get_command(app)
    parent = group.make_context("visterm", [], resilient_parsing=True)
    watch = group.resolve_command(parent, ["watch"])[1]
    context = watch.make_context("watch", [], parent=parent, resilient_parsing=True)
    error = DataError("No tags were found.", setting="tags", value="auto", advice="Name the file: `tags`.")
    assert wording_for(context, "index")(error) == "No tags were found. Name the file: --tags."
