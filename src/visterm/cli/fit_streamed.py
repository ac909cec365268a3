"""`visterm fit FEATURES` of features that are larger than memory: which way is gone, and what cannot go it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from visterm.cli.output import emit, exit_code, say
from visterm.cli.progress import Bars
from visterm.core.errors import UserError
from visterm.core.executor import LOCAL, Executor
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.features.streaming.memory import Plan

Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="Memory that may be used, such as 800M or 4G: FEATURES that take more are streamed from disk, by models "
        "that can [default: half of the machine's].",
        show_default=False,
        metavar="SIZE",
    ),
]


def planned(
    images: Path | list[Path] | None, memory: str | None, way: str = "", *, shared: bool = False, learner: Any = None
) -> Plan | None:
    """Say by what is asked for, and by what is there, whether features are streamed; None where they are not.

    `way` is how, if not in windows. Features in several folders, and what several workers learn
    from (`shared`), are streamed whether they fit or not. Where there is a model that shall learn (`learner`), it
    is refused before anything is said, if it cannot do so.
    """
    from visterm.core.remote import as_path
    from visterm.data.image_folders import check_image_folder
    from visterm.features.contents import is_features
    from visterm.features.streaming.memory import plan_memory, read_size

    limit = None if memory is None else read_size(memory, "--memory")
    several = isinstance(images, list)
    if not isinstance(images, list) and not is_features(images):
        if images is not None and (memory is not None or shared):
            check_image_folder(as_path(images))
        if memory is not None:
            raise UserError(
                "--memory is for features on disk, and none are given. Make them with: visterm encode IMAGES -o "
                "FEATURES, and give FEATURES in place of IMAGES."
            )
        if shared:
            raise UserError(
                "Several machines train this model on features, and none are given. Make them with: visterm encode "
                "IMAGES -o FEATURES --ray ADDRESS, and give FEATURES in place of IMAGES."
            )
        return None
    from visterm.features.streaming.shards import Shards
    from visterm.tagging.streamed_fit import check_streams

    shards = Shards(images or "")
    plan = plan_memory(shards.n_rows, int(shards.sizes.sum()), limit)
    wanted = plan.streamed or shared or several
    if learner is not None and wanted:
        check_streams(learner, shards.n_folders)
    if isinstance(images, list) and not plan.streamed:
        say(f"The features lie in {len(images)} folders: {way or 'streamed from disk'}.")
    elif memory is not None or plan.streamed:
        say(plan.told(way))
    return plan if wanted else None


def one_or_features(images: list[Path] | None) -> Path | list[Path] | None:
    """Return the place that is meant, or features folders where there are several; None where none is named.

    Raises
    ------
    UserError
        If one of several is no features folder.
    """
    from visterm.features.contents import is_features

    if not images:
        return None
    other = next((place for place in images if not is_features(place)), None)
    if len(images) > 1 and other is not None:
        raise UserError(
            f"Several folders may be named where all are features, and {other} is no features folder. Give one "
            f"folder of images, or encode each (visterm encode {other} --run RUN -o FEATURES, say) and give their "
            "features."
        )
    return images if len(images) > 1 else images[0]


def fit_and_save(
    tagger: Any,
    features: Path | list[Path],
    tags: str,
    out: Path,
    plan: Plan,
    unusable: Mapping[str, Any],
    *,
    executor: Executor = LOCAL,
    json: bool = False,
    **how: Any,
) -> NoReturn:
    """Learn from streamed features, write the run, and leave with the exit code of `visterm fit`.

    `unusable` are options and their values that streams do not take: any that is given is an error. `executor` has the
    workers that learn, if not this process.
    """
    from visterm.tagging.streamed_fit import fit_streamed
    from visterm.tagging.streamed_fit_together import stream_on_machines

    given = [option for option, value in unusable.items() if value not in (None, ())]
    if given:
        raise UserError(
            f"{given[0]} needs the tags of all images in memory, and these features are streamed. Leave it out, or "
            f"{'allow more memory (--memory)' if not executor.remote else 'leave --ray out'}."
        )
    work = out.with_name(f".{out.name}.streaming")
    how |= {"work": work, "progress": Bars()}
    if not executor.remote:
        lines = fit_streamed(tagger, features, tags, plan, **how)
    else:
        lines = stream_on_machines(tagger, features, tags, plan, executor=executor, **how)
    for line in lines:
        say(line)
    tagger.save(out)
    leave_with(tagger, out, json=json)


def leave_with(tagger: Any, out: Path, more: str = "", *, json: bool) -> NoReturn:
    """Say what was learned (and `more`) and where the run is, and leave with the exit code of `visterm fit`."""
    facts = tagger.facts
    learned = f"{count_of(facts['tags'], 'tag')} from {count_of(facts['images'], 'image')}"
    say(f"Learned {learned}{more}; the run is {out}")
    if json:
        emit({"run": str(out), **facts})
    raise typer.Exit(exit_code(tagger.skipped, out / "skipped.jsonl"))
