"""`visterm tune`: try settings of a model on validation rows, and write a run with the best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.cli import cleaning, options
from visterm.cli.output import emit, exit_code, say, table
from visterm.cli.progress import Bars
from visterm.core.errors import UserError

if TYPE_CHECKING:
    from visterm.tagging.tuning.search_space import Choices

EXAMPLES = (
    "Examples:  visterm tune photos --tags tags.csv -o run --grid dim=50,100 --grid learning_rate=0.001,0.01   ·   "
    "visterm tune photos --tags tags.csv -o run --random 20 --grid learning_rate=0.0001:0.1:log --grid dim=20:200"
)


def tune(
    out: Annotated[Path, typer.Option("-o", "--out", help="The run to write: a folder.", show_default=False)],
    grid: Annotated[
        list[str],
        typer.Option(
            help="Values of a setting to try, NAME=VALUE,VALUE; repeat for more settings. With --random also a range, "
            "NAME=LOW:HIGH or NAME=LOW:HIGH:log.",
            show_default=False,
        ),
    ],
    images: options.ImagesOrNone = None,
    tags: options.TagFile = "auto",
    encoder: options.EncoderName = None,
    model: Annotated[str, typer.Option(help="What learns: a name from `visterm models`.")] = "wsabie",
    random: Annotated[
        int | None,
        typer.Option(
            min=1, help="Draw so many settings at random [default: try all combinations].", show_default=False
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="What to choose by: a name from `visterm metrics`.")] = "map",
    valid: Annotated[
        float,
        typer.Option(
            help="Share of the rows held out to choose by; rows of the split 'valid' are used if there are.",
            callback=options.check_share_above_0,
        ),
    ] = 0.1,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the model in all trials, NAME=VALUE.")
    ] = None,
    encoder_set: Annotated[
        list[str] | None, typer.Option("--encoder-set", help="A setting of the encoder, NAME=VALUE.")
    ] = None,
    aliases: cleaning.Aliases = None,
    stop_tags: cleaning.StopTags = None,
    min_count: Annotated[int, typer.Option(min=1, help="Leave out tags of fewer images.")] = 1,
    max_share: cleaning.MaxShare = None,
    per_user: cleaning.PerUser = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same photos: same choice and same run.")] = 0,
    json: options.Json = False,
    jobs: options.Jobs = None,
    ray: options.Ray = None,
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    user_column: cleaning.UserColumn = None,
    separator: options.Separator = None,
) -> None:
    """Try settings of a model on validation rows, and fit the best on all rows.

    Finished trials are kept in RUN.tune.jsonl: the same command goes on where it was stopped. With --ray each trial
    takes one processor of some machine, and one that a lost machine had is done again. The exit code is 3 if
    images were skipped.
    """
    from visterm.features.training_rows import not_learned, read_corpus
    from visterm.tagging.device import with_device
    from visterm.tagging.tuning.tune import Tuning

    model_params = options.settings(set_ or [], "--set")
    encoder_params = options.settings(encoder_set or [], "--encoder-set")
    if device is not None:
        model_params, encoder_params = with_device(
            device, model=model, encoder=encoder, model_params=model_params, encoder_params=encoder_params
        )
    search = Tuning(
        out=out,
        grid=read_choices(grid),
        n_random=random,
        metric=metric,
        valid=valid,
        encoder=encoder,
        model=model,
        encoder_params=encoder_params,
        model_params=model_params,
        min_count=min_count,
        seed=seed,
        executor=options.executor_of(ray, jobs),
    )
    cleaned = cleaning.read_cleaning(aliases, stop_tags, max_share, per_user, user_column)
    corpus = read_corpus(
        search.encoder,
        images,
        tags,
        image_column=image_column,
        tags_column=tags_column,
        user_column=user_column,
        separator=separator,
    )
    for warning in [*corpus.warnings(), *not_learned(corpus)]:
        say(warning)
    corpus, pruned = cleaned.prune(corpus)
    tuned = search.run(corpus, aliases=cleaned.aliases, facts=pruned, progress=Bars())
    if json:
        for trial in tuned.trials:
            emit(trial.as_dict())
    else:
        names = list(tuned.trials[0].settings)
        rows = [
            [
                *(str(trial.settings[name]) for name in names),
                "diverged" if trial.value is None else f"{trial.value:.4f}",
                "-" if trial.epochs is None else str(trial.epochs),
                f"{trial.seconds:.1f}",
            ]
            for trial in tuned.trials
        ]
        table(rows, [*names, metric, "epochs", "seconds"])
    for remark in tuned.remarks:
        say(remark)
    cleaned.tell_of_aliases(tuned.tagger.vocabulary.aliases)
    say(f"The run of the best setting, learned from all rows, is {out}")
    raise typer.Exit(exit_code(tuned.tagger.skipped, out / "skipped.jsonl"))


def read_choices(pairs: Sequence[str]) -> dict[str, Choices]:
    """Read what users type: ``dim=50,100``, ``learning_rate=0.0001:0.1:log``, ``dim=20:200``.

    Raises
    ------
    UserError
        If a pair cannot be understood, or a name is given twice.
    """
    space: dict[str, Choices] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier() or not text.strip():
            raise UserError(
                f"--grid {pair!r} is not understood; expected NAME=VALUE,VALUE or NAME=LOW:HIGH or NAME=LOW:HIGH:log, "
                f"for example --grid dim=50,100."
            )
        if name in space:
            raise UserError(f"--grid {name} is given twice; put its values in one list.")
        space[name] = _choices(name, text.strip())
    return space


def _choices(name: str, text: str) -> Choices:
    from visterm.tagging.tuning.search_space import Range

    parts = text.split(":")
    if len(parts) > 1:
        low, high = (options.value_of(part) for part in parts[:2])
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
        if not numbers or len(parts) > 3 or parts[2:] not in ([], ["log"]) or not low < high:
            raise UserError(
                f"--grid {name}={text} is no range; expected LOW:HIGH or LOW:HIGH:log, with LOW below HIGH."
            )
        if parts[2:] and low <= 0:
            raise UserError(f"--grid {name}={text} is drawn by its logarithm; expected ends above 0.")
        return Range(low, high, log=bool(parts[2:]))
    values = [options.value_of(part.strip()) for part in text.split(",")]
    if "" in values:
        raise UserError(f"--grid {name}={text} has an empty value; expected values with one comma between.")
    return list(dict.fromkeys(values))
