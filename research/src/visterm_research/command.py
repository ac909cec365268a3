"""`visterm reproduce` runs a paper's comparison again, `demo` draws a library, and `wordnet` relates its tags."""

from __future__ import annotations

import shlex
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from sys import argv
from typing import Annotated

import typer

from visterm.cli import Bars, Command, Json, emit, in_lines, say, table
from visterm.core.errors import UserError

EXAMPLES = (
    ("visterm reproduce wsabie --quick", "does everything run?"),
    ("visterm reproduce wsabie --data corel5k --wordnet /usr/share/wordnet -o wsabie", "losses and rankers"),
    ("visterm reproduce vse-ens --data nuswide --time-budget 60", "samplers, for an hour"),
    ("visterm reproduce pamir --data corel5k -o pamir", "searches"),
    ("visterm reproduce parts --data corel5k --encoder onnx:net.onnx -o parts", "objects and parts"),
)


class Paper(StrEnum):
    """The papers whose comparisons can be run."""

    WSABIE = "wsabie"
    VSE_ENS = "vse-ens"
    FEATURES = "features"
    PAMIR = "pamir"
    PARTS = "parts"
    UGC = "ugc"


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("reproduce", epilog=in_lines(EXAMPLES), cls=Command)
def reproduce(
    paper: Annotated[
        Paper,
        typer.Argument(
            help="The paper's comparison: wsabie (losses and rankers), vse-ens (samplers), features (bags of visterms "
            "against an ensemble of histograms with kernel PCA: the objects-and-parts paper), pamir (search by several "
            "words), parts (objects and their parts: the rest of the objects-and-parts paper), or ugc (tags as people "
            "write them: sampled taggers and words never seen as tags).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="The folder of the report, in which a stopped run continues [default: reproduce-PAPER]."
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="A folder of Corel5k (wsabie, features, pamir, parts, ugc), Delicious (wsabie, vse-ens, ugc), "
            "NUS-WIDE (vse-ens) or PASCAL-Part's ontology (parts), or their parent; repeat for more "
            "[default: drawn data only].",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Run this model only; repeat for more [default: all that the paper compares]."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="A name from `visterm encoders`, such as onnx:FILE: the features of photos (wsabie, ugc) [default: "
            "visterms], or one more kind beside the paper's (features, pamir), or beside visterms and for Corel5k "
            "(parts).",
            show_default=False,
        ),
    ] = None,
    wordnet: Annotated[
        Path | None,
        typer.Option(
            help="WordNet's database files: for sibling precision on real tags (wsabie) [default: not measured there], "
            "or for parts of Corel5k's tags (parts) [default: at their usual places]."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Check that everything runs: few rounds of training, two settings per method, tiny drawn data. Data "
            "of --data are read whole; their features are kept in the folder of the report for the next run.",
        ),
    ] = False,
    time_budget: Annotated[
        float | None,
        typer.Option(min=0, help="Start no fit after these minutes; the report says what is missing.", metavar="MIN"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same data, same choices.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Threads [default: all cores].", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Run a paper's comparison again; report which claims hold.

    Settings are chosen on validation rows; test rows are used once for each version of the search, and the
    report says how often that was.
    """
    from visterm.encoders import make_encoder
    from visterm_research.comparison.run import Options, Study
    from visterm_research.comparison.run import reproduce as run

    if wordnet is not None and paper not in (Paper.WSABIE, Paper.PARTS):
        raise UserError(f"--wordnet is for siblings and parts, which '{paper.value}' does not measure. Leave it out.")
    if encoder is not None and paper is Paper.VSE_ENS:
        raise UserError(f"--encoder is for photos, and '{paper.value}' uses no features. Leave it out.")
    if wordnet is not None and not wordnet.is_dir():
        raise UserError(f"There is no folder {wordnet}. Pass the folder of WordNet's database files (--wordnet).")
    if encoder is not None:
        make_encoder(encoder, {}, {}).check_settings()
    study: Study = import_module(f"visterm_research.{paper.value.replace('-', '_')}.study").STUDY
    options = Options(
        data or [],
        model or [],
        encoder,
        wordnet,
        quick,
        time_budget,
        seed,
        jobs,
        Bars(),
        shlex.join(["visterm", *argv[1:]]),
    )
    outcome = run(study, out or Path(f"reproduce-{paper.value}"), options)
    if json:
        for claim in outcome.claims:
            emit(claim.as_dict())
        emit({"report": str(outcome.report), "unfinished": outcome.unfinished})
        return
    rows = [[claim.first, claim.second, claim.of, claim.problem, claim.verdict] for claim in outcome.claims]
    if rows:
        table(rows, ["better in the paper", "worse", "by", "here on", "holds here"])
    if outcome.unfinished:
        say(f"No time for {len(outcome.unfinished)} parts; the same command continues with them.")
    if quick:
        say("A quick run shows that everything runs, and says nothing about the methods.")
    say(f"The report is {outcome.report}")


wordnet_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@wordnet_app.command(
    "wordnet",
    epilog=in_lines((("visterm wordnet run -o relations", "then name its files in the tag rules"),)),
    cls=Command,
)
def wordnet_relations(
    tags: Annotated[
        Path, typer.Argument(help="A run, or a text file with one tag per line.", show_default=False, metavar="TAGS")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")] = Path("relations"),
    wordnet: Annotated[
        Path | None,
        typer.Option(help="The folder of WordNet's database files [default: the usual places].", show_default=False),
    ] = None,
    tag_synsets: Annotated[
        Path | None,
        typer.Option(
            help="A CSV of tag,synset with what tags mean: the corrected tag_synsets.csv of an earlier run "
            "[default: the first sense of each word].",
            show_default=False,
        ),
    ] = None,
    inherit: Annotated[int, typer.Option(min=0, help="Steps of is-a over which things inherit parts.")] = 1,
) -> None:
    """Find in WordNet which tags are parts or kinds of others.

    Writes part_of.csv and isa.csv, which the tag rules part_of and isa take, and tag_synsets.csv: what each tag was
    taken to mean, to correct by hand.
    """
    from visterm import Tagger
    from visterm.core.vocabulary import Vocabulary
    from visterm_research.data.wordnet import write_relations

    if tags.is_dir():
        names = Tagger.load(tags).vocabulary.tags
    elif tags.is_file():
        names = Vocabulary.from_lists([tags.read_text(encoding="utf-8-sig").splitlines()]).tags
    else:
        raise UserError(f"There is no run or file {tags}.")
    written = write_relations(out, names, wordnet, mapping=tag_synsets, inherit=inherit)
    say(written.senses.summary())
    say(f"Part-of relations: {len(written.part_of):,}; is-a relations: {len(written.is_a):,}; files in {out}")


demo_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@demo_app.command("demo", epilog=in_lines((("visterm demo -o demo", "then open demo/report.html"),)), cls=Command)
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")] = Path("demo"),
    scenes: Annotated[int, typer.Option(min=100, help="Scenes to draw.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same library.")] = 0,
) -> None:
    """Draw a small photo library, and try everything on it.

    Learns the drawn library's tags, tags and searches new pictures, and writes a report to look at.
    """
    from visterm_research.demo import run_demo

    result = run_demo(out, n_scenes=scenes, seed=seed, progress=Bars())
    table(result.rows, result.header)
    say(f"The report with pictures is {result.report}")
