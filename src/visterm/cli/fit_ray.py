"""`visterm fit --ray`: which models learn on several machines, where they keep what they need, and what is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.cli.output import say
from visterm.core.errors import UserError

if TYPE_CHECKING:
    from visterm.app.cluster.deep_fit import Machines


def machines_of(
    address: str | None, model: Any, jobs: int | None, out: Path, unusable: Mapping[str, Any]
) -> Machines | None:
    """Give the machines that a model shall learn on; None where none are asked for, and for one that streams.

    A model of the ranking family learns there from features in shards, see `fit_and_save`. `unusable` are options and
    their values that cannot be used there: any that is given is an error.
    """
    if address is None or getattr(model, "learns_together", False):
        return None
    from visterm.app.cluster.deep_fit import Machines, check_fits_together

    check_fits_together(model)
    if given := [option for option, value in unusable.items() if value is not None]:
        raise UserError(f"{given[0]} is learned from in one process. Leave {given[0]} or --ray out.")
    return Machines(address, jobs, out.absolute().with_name(f".{out.name}.workers"))


def tell_of_workers(machines: Machines | None, facts: Mapping[str, Any]) -> None:
    """Say so where machines were asked for, and one process has done it all."""
    if machines is not None and "workers" not in facts:
        say("All images are in one batch, so that one process learned from them: no engine was started.")
