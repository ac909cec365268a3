"""Options of the commands that learn: what they learn from, the model, how tags are cleaned, and their relations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from visterm.cli.completion import model_names
from visterm.cli.options import cleaning_option, in_range, input_option, model_option, output_option, relation_option

Out = Annotated[Path | None, output_option("-o", "--out", help="The run to write, a folder.")]
OutRequired = Annotated[Path, output_option("-o", "--out", help="The run to write, a folder.")]
CatalogueToLearn = Annotated[
    Path | None,
    input_option(help="Learn from this catalogue's tags and corrections instead of photos, and use the new run in it."),
]
Full = Annotated[
    bool, input_option("--full", help="With --catalogue: learn everything again, not only what each tag looks like.")
]
UseEvenIfWorse = Annotated[
    bool,
    input_option("--use-even-if-worse", help="With --catalogue: use the new run even if it is significantly worse."),
]
Queries = Annotated[
    Path | None,
    input_option(
        help="Learn from queries instead of tags: a table with the columns query, image and relevance (or clicks). "
        "With --tags, only words that are tags are learned."
    ),
]
Idf = Annotated[
    Path | None,
    input_option(
        help="Weigh the words of queries by their rarity in this file, one text per line [default: in the training "
        "photos]."
    ),
]
Split = Annotated[
    str | None, input_option(help="Learn from the rows of this split [default: train, if the tag file has splits].")
]

ModelName = Annotated[
    str | None,
    model_option(
        help="The model: a name from `visterm models` [default: auto; wsabie for images known by number].",
        autocompletion=model_names,
    ),
]
ModelToTune = Annotated[
    str, model_option(help="The model: a name from `visterm models`.", show_default=True, autocompletion=model_names)
]
ModelSettings = Annotated[
    list[str] | None, model_option("--set", help="A setting of the model, NAME=VALUE. Repeat for more.")
]
Budget = Annotated[str | None, model_option(help="Time limit for --model auto, such as 90s, 2m or 1h [default: none].")]
Valid = Annotated[
    float | None,
    model_option(
        help="Share of the photos held out to choose when to stop; 0 for none [default: 0.1].",
        callback=in_range("--valid", least=0, below=1),
    ),
]
ValidToTune = Annotated[
    float,
    model_option(
        help="Share of the photos held out to compare settings, if there is no split 'valid'.",
        callback=in_range("--valid", above=0, below=1),
        show_default=True,
    ),
]
Calibration = Annotated[
    bool,
    model_option(
        "--calibration/--no-calibration",
        help="Learn confidences from held-out photos; some models are fitted once more for this.",
        show_default=True,
    ),
]
WordVectors = Annotated[
    str | None,
    model_option(
        help="Start text_ridge, sampled_tagger and similar models from word vectors, so that searches find words that "
        "aren't tags: 'encoder' (its text tower; 'encoder:german': prompts of that language), a file (GloVe, word2vec, "
        "fastText, safetensors), 'sentences' (extra text), 'learned' or 'learned:skipgram'.",
        metavar="SOURCE",
    ),
]

Words = Annotated[
    Path | None,
    model_option(
        "--words",
        help="Words, one a line, that are tags even if no photo has them yet: --word-vectors find them (--model "
        "text_ridge, with vectors from the network's text tower).",
        metavar="FILE",
    ),
]
Aliases = Annotated[
    Path | None,
    cleaning_option(help="A CSV of alias,tag: spellings that count as the tag. See `visterm tags RUN --suggest`."),
]
StopTags = Annotated[
    Path | None, cleaning_option(help="A text file of tags to leave out, one per line; # is a comment.")
]
MinCount = Annotated[int, cleaning_option(min=1, help="Leave out tags of fewer photos.", show_default=True)]
MaxShare = Annotated[
    float | None,
    cleaning_option(
        help="Leave out tags of more than this share of the photos, e.g. 0.5.",
        callback=in_range("--max-share", above=0, most=1),
    ),
]
PerUser = Annotated[
    int | None,
    cleaning_option(help="Keep at most N photos of one user with exactly the same tags (bulk uploads).", metavar="N"),
]
UserColumn = Annotated[
    str | None, cleaning_option(help="With --per-user: column of owners [default: user, owner or photographer].")
]

Tree = Annotated[
    str | None,
    relation_option(
        help="Which tags lie under which: a CSV of child,parent, or 'paths' if tags are paths such as "
        "animals/dog/husky. Photos of a child then have its parents, too.",
        metavar="SOURCE",
    ),
]
PartOf = Annotated[
    str | None,
    relation_option(
        help="Which tags are parts of which: a CSV of part,whole, WordNet's folder, or 'wordnet' to look for it.",
        metavar="SOURCE",
    ),
]
IsA = Annotated[
    str | None,
    relation_option(
        help="Which tags are kinds of which: a CSV of child,parent, WordNet's folder, or 'wordnet' [default: the "
        "WordNet of --part-of].",
        metavar="SOURCE",
    ),
]
WordNetFolder = Annotated[
    str | None, relation_option(help="Short for --part-of and --isa with the same WordNet.", metavar="FOLDER")
]
TagSynsets = Annotated[
    Path | None,
    relation_option(
        help="With WordNet: a CSV of tag,synset with the meaning of tags [default: the most frequent meaning].",
        metavar="FILE",
    ),
]
Inherit = Annotated[
    int | None,
    relation_option(
        min=0, help="With WordNet: wholes inherit parts over N steps of 'is a kind of'; 0 for none [default: 1]."
    ),
]
