"""Options that clean a dictionary before it is learned: aliases, stop tags, too frequent tags, and bulk uploads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from visterm.cli.output import say
from visterm.core.errors import UserError
from visterm.core.wording import count_of

if TYPE_CHECKING:
    from visterm.data.corpus import Corpus

Aliases = Annotated[
    Path | None,
    typer.Option(
        help="A CSV of alias,tag: spellings that count as the tag, when learning and in searches; "
        "`visterm tags RUN --suggest` writes one.",
        show_default=False,
    ),
]
StopTags = Annotated[
    Path | None,
    typer.Option(
        "--stop-tags",
        help="A text file of tags that are not learned, one a line; lines that begin with # do not count.",
        show_default=False,
    ),
]
MaxShare = Annotated[
    float | None,
    typer.Option(
        "--max-share", help="Leave out tags of more than this share of the images, such as 0.5.", show_default=False
    ),
]
PerUser = Annotated[
    int | None,
    typer.Option(
        "--per-user",
        help="Learn from at most so many images of one user with the same tags, so that bulk uploads do not outweigh "
        "the rest.",
        show_default=False,
        metavar="N",
    ),
]
UserColumn = Annotated[
    str | None,
    typer.Option(
        "--user-column",
        help="With --per-user: the column that says whose an image is [default: user, owner or photographer].",
        show_default=False,
    ),
]


class Cleaning(NamedTuple):
    """What of a dictionary is to be joined and to be left out.

    Attributes
    ----------
    aliases : dict of str to str or None
        As `read_aliases` gives them.
    stop_tags : list of str
    max_share, per_user : float or None, int or None
        As `visterm.data.pruning.prune` takes them.
    """

    aliases: dict[str, str] | None
    stop_tags: list[str]
    max_share: float | None
    per_user: int | None

    @property
    def prunes(self) -> bool:
        """Return whether anything is to be left out."""
        return bool(self.stop_tags) or self.max_share is not None or self.per_user is not None

    def prune(self, corpus: Corpus) -> tuple[Corpus, dict[str, int]]:
        """Leave out what is to be, and say it; give the rest, and the counts to keep with the run."""
        from visterm.data.pruning import prune

        if not self.prunes:
            return corpus, {}
        pruned = prune(
            corpus,
            stop_tags=self.stop_tags,
            max_share=self.max_share,
            per_user=self.per_user,
            aliases=self.aliases,
        )
        for remark in pruned.remarks:
            say(remark)
        return pruned.corpus, pruned.facts

    def tell_of_aliases(self, used: dict[str, str]) -> None:
        """Say how many spellings count as which tags, and how many lines of the file are of tags not learned."""
        if self.aliases is None:
            return
        unused = [f"{alias},{tag}" for alias, tag in self.aliases.items() if alias not in used]
        rest = f"; {count_of(len(unused), 'line')} (such as '{unused[0]}') of no tag that was learned" if unused else ""
        say(f"Aliases: {count_of(len(used), 'spelling')} of {count_of(len(set(used.values())), 'tag')}{rest}.")


def read_cleaning(
    aliases: Path | None,
    stop_tags: Path | None,
    max_share: float | None,
    per_user: int | None,
    user_column: str | None,
) -> Cleaning:
    """Read the files of aliases and of stop tags, and refuse what cannot be used, before photos are looked at."""
    from visterm.data.pruning import check_pruning, read_stop_tags
    from visterm.data.relation_files import read_aliases

    check_pruning(max_share, per_user)
    if user_column is not None and per_user is None:
        raise UserError("--user-column says whose images are whose for --per-user. Add --per-user N, or leave it out.")
    return Cleaning(
        read_aliases(aliases) if aliases is not None else None,
        read_stop_tags(stop_tags) if stop_tags is not None else [],
        max_share,
        per_user,
    )
