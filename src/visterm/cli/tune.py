"""`visterm tune`: try settings of a model on validation rows, and write a run with the best."""

from __future__ import annotations

from typing import Annotated

import typer

from visterm.cli import learning_options as learning
from visterm.cli import options
from visterm.cli.completion import metric_names
from visterm.cli.output import emit, exit_code, say, table
from visterm.cli.progress import Bars

EXAMPLES = (
    ("visterm tune photos -o run --grid dim=50,100 --grid learning_rate=0.001,0.01", "try all four"),
    ("visterm tune photos -o run --random 20 --grid learning_rate=0.0001:0.1:log", "draw 20 rates"),
)


def tune(
    out: learning.OutRequired,
    grid: Annotated[
        list[str],
        options.model_option(
            help="Values to try, NAME=VALUE,VALUE, or with --random a range, NAME=LOW:HIGH or NAME=LOW:HIGH:log. "
            "Repeat for more settings."
        ),
    ],
    images: options.ImagesOrNone = None,
    tags: options.TagFile = "auto",
    image_column: options.ImageColumn = None,
    tags_column: options.TagsColumn = None,
    separator: options.Separator = None,
    encoder: options.EncoderName = None,
    encoder_set: options.EncoderSettings = None,
    model: learning.ModelToTune = "wsabie",
    set_: learning.ModelSettings = None,
    random: Annotated[
        int | None, options.model_option(min=1, help="Try this many random settings [default: all combinations].")
    ] = None,
    metric: Annotated[
        str,
        options.model_option(
            help="The metric to choose by: a name from `visterm metrics`.",
            show_default=True,
            autocompletion=metric_names,
        ),
    ] = "map",
    valid: learning.ValidToTune = 0.1,
    seed: options.Seed = 0,
    aliases: learning.Aliases = None,
    stop_tags: learning.StopTags = None,
    tree: learning.Tree = None,
    min_count: learning.MinCount = 1,
    max_share: learning.MaxShare = None,
    per_user: learning.PerUser = None,
    user_column: learning.UserColumn = None,
    device: options.Device = None,
    jobs: options.Jobs = None,
    ray: options.Ray = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Try settings of a model, and learn with the best ones.

    Compares the settings on held-out photos, then learns from all photos. Finished trials are stored in
    RUN.tune.jsonl; run the same command again to go on. The exit code is 3 if photos were skipped.
    """
    from visterm.tagging.fit_request import FitRequest
    from visterm.tagging.tuning.tune import tune_run

    request = FitRequest(
        images=images, tags=tags, image_column=image_column, tags_column=tags_column, separator=separator,
        encoder=encoder, encoder_params=options.settings(encoder_set, "--encoder-set"),
        model=model, model_params=options.settings(set_, "--set"), valid=valid, seed=seed, aliases=aliases,
        stop_tags=stop_tags or (), tree=tree, min_count=min_count, max_share=max_share, per_user=per_user,
        user_column=user_column, device=device, n_jobs=jobs, out=out,
        overwrite=options.may_replace(out, overwrite, "run"),
    )  # fmt: skip
    tuned = tune_run(
        request, grid=options.choices(grid), n_random=random, metric=metric,
        executor=options.executor_of(ray, jobs), say=say, progress=Bars(),
    )  # fmt: skip
    if json:
        for trial in tuned.trials:
            emit(trial.as_dict())
    else:
        names = list(tuned.trials[0].settings)
        rows = []
        for trial in tuned.trials:
            value = "diverged" if trial.value is None else f"{trial.value:.4f}"
            epochs = "-" if trial.epochs is None else str(trial.epochs)
            rows.append([*(str(trial.settings[name]) for name in names), value, epochs, f"{trial.seconds:.1f}"])
        table(rows, [*names, metric, "epochs", "seconds"])
    say(f"Learned from all photos with the best settings. The run is in {out}.")
    raise typer.Exit(exit_code(tuned.tagger.skipped, out / "skipped.jsonl"))
