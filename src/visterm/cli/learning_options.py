"""Options of the commands that learn: what they learn from, the model, how tags are cleaned, and their relations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from visterm.cli.options import cleaning_option, input_option, model_option, output_option, relation_option


def check_share(value: float | None) -> float | None:
    """Refuse shares of rows to hold out that leave none to learn from; 0 holds out none."""
    if value is not None:
        from visterm.core.checks import check_number

        check_number(value, "--valid", least=0, below=1)
    return value


def check_share_above_0(value: float) -> float:
    """Refuse shares of rows to choose by that leave none to learn from, or none to choose by."""
    from visterm.core.checks import check_number

    check_number(value, "--valid", above=0, below=1)
    return value


Out = Annotated[Path | None, output_option("-o", "--out", help="The run to write: a folder.")]
OutRequired = Annotated[Path, output_option("-o", "--out", help="The run to write: a folder.")]
CatalogueToLearn = Annotated[
    Path | None,
    input_option(
        "--catalogue",
        help="Learn from this catalogue in place of IMAGES: from the tags that its images were given, and those that "
        "people accepted and rejected, without decoding an image. The new run is then its current one.",
    ),
]
Full = Annotated[
    bool,
    input_option(
        "--full",
        help="With --catalogue: learn everything anew, even with a model that could just move its tags (wsabie and "
        "others).",
    ),
]
Queries = Annotated[
    Path | None,
    input_option(
        help="Learn from queries in place of tags: CSV, TSV or JSON lines with the columns query, image and, unless "
        "every line is relevant, relevance (or clicks). Without --tags all their words are learned, with it those "
        "that are tags.",
    ),
]
Idf = Annotated[
    Path | None,
    input_option(
        help="A text file, a text each line: words of queries weigh by how few of its texts have them [default: by "
        "how few training images do].",
    ),
]
Split = Annotated[
    str | None, input_option(help="Learn from these rows only [default: train, if the tag file has splits].")
]

ModelName = Annotated[
    str | None,
    model_option(
        help="What learns: a name from `visterm models` [default: auto; wsabie for images known by number].",
    ),
]
ModelToTune = Annotated[
    str, model_option("--model", help="What learns: a name from `visterm models`.", show_default=True)
]
ModelSettings = Annotated[
    list[str] | None, model_option("--set", help="A setting of the model, NAME=VALUE; repeat for more.")
]
Budget = Annotated[
    str | None,
    model_option(
        help="Time for the models that --model auto tries, such as 90s, 2m or 1h [default: no limit].",
    ),
]
Valid = Annotated[
    float | None,
    model_option(
        help="Share of the rows held out to choose when to stop; 0 for none [default: 0.1].", callback=check_share
    ),
]
ValidToTune = Annotated[
    float,
    model_option(
        "--valid",
        help="Share of the rows held out to choose by; rows of the split 'valid' are used if there are.",
        callback=check_share_above_0,
        show_default=True,
    ),
]
Calibration = Annotated[
    bool,
    model_option(
        "--calibration/--no-calibration",
        help="Learn from held-out images how likely a score makes a tag; takes one more fit where a model holds none "
        "out.",
        show_default=True,
    ),
]
WordVectors = Annotated[
    str | None,
    model_option(
        "--word-vectors",
        help="Where sampled_tagger and similar models start from, so that searches find words that are no tags: a "
        "file (GloVe, word2vec, fastText .vec, safetensors), sentences (extra text), or, for tags only, learned or "
        "learned:skipgram.",
        metavar="SOURCE",
    ),
]

Aliases = Annotated[
    Path | None,
    cleaning_option(
        help="A CSV of alias,tag: spellings that count as the tag, when learning and in searches; "
        "`visterm tags RUN --suggest` writes one.",
    ),
]
StopTags = Annotated[
    Path | None,
    cleaning_option(
        "--stop-tags",
        help="A text file of tags that are not learned, one a line; lines that begin with # do not count.",
    ),
]
MinCount = Annotated[int, cleaning_option(min=1, help="Leave out tags of fewer images.", show_default=True)]
MaxShare = Annotated[
    float | None,
    cleaning_option("--max-share", help="Leave out tags of more than this share of the images, such as 0.5."),
]
PerUser = Annotated[
    int | None,
    cleaning_option(
        "--per-user",
        help="Learn from at most N images of one user with the same tags, so that bulk uploads do not outweigh the "
        "rest.",
        metavar="N",
    ),
]
UserColumn = Annotated[
    str | None,
    cleaning_option(
        "--user-column",
        help="With --per-user: the column that names the owner of an image [default: user, owner or photographer].",
    ),
]

PartOf = Annotated[
    str | None,
    relation_option(
        "--part-of",
        help="Which tags are parts of which: a CSV of part,whole; WordNet's folder; or 'wordnet' where that is at a "
        "usual place (Debian: /usr/share/wordnet).",
        metavar="SOURCE",
    ),
]
IsA = Annotated[
    str | None,
    relation_option(
        "--isa",
        help="Which tags are kinds of what, for `visterm search --expand siblings`: a CSV of child,parent; WordNet's "
        "folder; or 'wordnet' [default: the WordNet of --part-of].",
        metavar="SOURCE",
    ),
]
WordNetFolder = Annotated[
    str | None,
    relation_option(
        "--wordnet",
        help="WordNet's folder, or 'wordnet' where that is at a usual place: short for --part-of and --isa of it.",
        metavar="FOLDER",
    ),
]
TagSynsets = Annotated[
    Path | None,
    relation_option(
        "--tag-synsets",
        help="With WordNet: a CSV of tag,synset that says which meaning tags have [default: their most frequent].",
        metavar="FILE",
    ),
]
Inherit = Annotated[
    int | None,
    relation_option(
        "--inherit",
        min=0,
        help="With --part-of of WordNet: over how many steps of 'is a kind of' wholes inherit parts, 0 for none "
        "[default: 1].",
    ),
]
