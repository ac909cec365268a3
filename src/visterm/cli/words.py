"""A command whose words may begin with ``-``, as those of a search do, without a ``--`` before them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand


class WordsCommand(TyperCommand):
    """Takes ``-word`` and ``-two words`` for arguments; ``--name`` and ``-x`` are options, and unknown ones errors."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the words behind all options before these are read."""
        takes_value = {
            name: not getattr(param, "is_flag", False)
            for param in self.params
            if param.param_type_name == "option"
            for name in (*param.opts, *param.secondary_opts)
        }
        return super().parse_args(ctx, words_last(args, takes_value, set(self.get_help_option_names(ctx))))


def words_last(args: Sequence[str], takes_value: Mapping[str, bool], others: Collection[str] = ()) -> list[str]:
    """Put what begins with ``-`` and is a word behind a ``--``.

    Parameters
    ----------
    args : sequence of str
        As typed.
    takes_value : mapping of str to bool
        The options, and whether a value follows.
    others : collection of str
        Options without a value beside these.
    """
    options: list[str] = []
    words: list[str] = []
    waiting = list(args)
    while waiting:
        arg = waiting.pop(0)
        if arg == "--":
            return [*options, "--", *words, *waiting]
        number = arg[2:].isdigit() and takes_value.get(arg[:2], False)  # -k5
        known = arg in takes_value or arg in others or number
        if len(arg) > 2 and arg[0] == "-" and arg[1] != "-" and not known:
            words.append(arg)
            continue
        options.append(arg)
        if takes_value.get(arg, False):
            if not waiting:
                return options  # the error is then that the value is missing
            options.append(waiting.pop(0))
    return [*options, "--", *words] if words else options
