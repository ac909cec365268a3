"""`visterm push`: put a run on the Hugging Face hub, without what says which photos it is from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from visterm.cli import options
from visterm.cli.output import say, table

EXAMPLES = (
    ("visterm push my_run ann/holidays --dry-run", "show what would be pushed"),
    ("visterm push my_run ann/holidays", "push to a private repository"),
    ("visterm annotate hub:ann/holidays photos", "tag photos with it on another machine"),
)


def push(
    run: Annotated[Path, options.argument(help="The run to push.")],
    repository: Annotated[str, options.argument(help="Where to: OWNER/NAME. It is made if it isn't there.")],
    public: Annotated[
        bool, options.output_option("--public", help="Let everybody read a repository that is made.")
    ] = False,
    with_photos: Annotated[
        bool,
        options.output_option(
            "--with-photos", help="Also push names of photos, and tags of photos where the model has them."
        ),
    ] = False,
    dry_run: Annotated[bool, options.output_option("--dry-run", help="List the files without pushing them.")] = False,
) -> None:
    """Share a run on the Hugging Face hub.

    Pushes JSON, safetensors and a model card with measured figures. Names of photos, which photo has which tags, and
    where files are on this machine stay here. Log in once before: hf auth login.
    """
    from visterm.tagging.hub_runs import push_run
    from visterm.tagging.tagger import Tagger

    pushed = push_run(
        Tagger.load(run), repository, public=public, with_photos=with_photos,
        dry_run=dry_run,
    )  # fmt: skip
    table([[name, f"{size:,}"] for name, size in pushed.files.items()], ["file", "bytes"])
    total = f"{len(pushed.files)} files, {sum(pushed.files.values()) / 1e6:.1f} MB"
    say(f"Would push to {pushed.page}: {total}." if dry_run else f"Pushed to {pushed.page}: {total}.")
