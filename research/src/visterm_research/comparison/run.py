"""The one runner of all comparisons: a study says what is compared; what is finished is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from visterm.core.packing import jsonable
from visterm.core.progress import SILENT, Progress
from visterm.core.writing import write_whole
from visterm_research.comparison.cite_page import data_hashes
from visterm_research.comparison.claims import RESAMPLES, Claim, order_claim, percent, shown_metric
from visterm_research.comparison.document import Document
from visterm_research.comparison.figures import figure_class
from visterm_research.comparison.folder import begin_folder, write_json
from visterm_research.comparison.looks import Looks
from visterm_research.comparison.methods import Method, chosen_methods
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.report import report_of
from visterm_research.comparison.summaries import described, machine, summary
from visterm_research.comparison.trials import Choice, Judged, OutOfTimeError, Trials

JUDGED = (
    f". Intervals come from {RESAMPLES:,} resamples of the test images; single measurements of time and bytes that "
    "differ by less than a tenth count as equal."
)


class Outcome(NamedTuple):
    """What a comparison left behind.

    Attributes
    ----------
    report : Path
        The Markdown file; pictures and ``results.json`` lie beside it.
    claims : list of Claim
    unfinished : list of str
        Methods and parts for which there was no time, in words; a second run with the same folder does them.
    """

    report: Path
    claims: list[Claim]
    unfinished: list[str]


@dataclass(frozen=True)
class Options:
    """What a person may choose of a comparison.

    Attributes
    ----------
    data : sequence of Path
        Folders of data, or their parents; what each study takes is in its file. Drawn data are used besides.
    models : sequence of str
        Run these models only, by their names in the registry; empty for all.
    encoder : str, optional
        As ``visterm fit --encoder`` takes it: for photos, or one more kind of features.
    wordnet : Path, optional
        WordNet's database files.
    quick : bool
        Tiny drawn sets, few epochs, at most two settings a method: says that everything runs, and nothing else.
    minutes : float, optional
        No fit starts after this many minutes; the report then says what is missing.
    seed : int
        Of drawn data, splits and models.
    n_jobs : int, optional
        Threads; None is all cores.
    progress : Progress
    command : str
        As a person typed it.
    """

    data: Sequence[Path] = ()
    models: Sequence[str] = ()
    encoder: str | None = None
    wordnet: Path | None = None
    quick: bool = False
    minutes: float | None = None
    seed: int = 0
    n_jobs: int | None = None
    progress: Progress = SILENT
    command: str = ""

    def hashes(self) -> dict[str, dict[str, str]]:
        """Return the hashes of the data, and of the encoder's file."""
        network = Path((self.encoder or "").partition(":")[2])
        paths = [*self.data, *([network] if network.is_file() else [])]
        return {path.resolve().name: data_hashes(path) for path in paths}


@dataclass(frozen=True)
class Study:
    """A paper's comparison.

    Attributes
    ----------
    paper : str
        Its reference, and what part of it.
    title : str
        Of the report.
    methods : sequence of Method
    run : callable
        Takes a `Comparison`: fits, judges, and writes the report's tables and claims. It returns what results.json has
        besides.
    check : callable, optional
        Takes the `Options` and the methods, and refuses before any work what cannot be.
    quick : callable
        Makes a method small, for a run of a minute.
    judged : str
        How claims are judged, in words.
    small : mapping
        Settings in place of others for all models of a quick run that have them.
    """

    paper: str
    title: str
    methods: Sequence[Method]
    run: Callable[[Comparison], Mapping[str, Any]]
    check: Callable[[Options, Sequence[Method]], Any] = lambda options, methods: None
    quick: Callable[[Method], Method] = Method.quick
    judged: str = JUDGED
    small: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Comparison:
    """The state of one comparison: what is run, on what, and what was found.

    Attributes
    ----------
    out : Path
        The folder of the report.
    trials : Trials
    methods : sequence of Method
        Those that are run.
    options : Options
    preface : Document
        What stands before the claims.
    document : Document
        What stands after them.
    claims : list of Claim
    unfinished : list of str
    tested : dict
        What was judged of problems of annotation, by problem and method.
    problems : list of Problem
    """

    out: Path
    trials: Trials
    methods: Sequence[Method] = ()
    options: Options = Options()
    preface: Document = field(default_factory=Document)
    document: Document = field(default_factory=Document)
    claims: list[Claim] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    tested: dict[str, dict[str, Judged]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def quick(self) -> bool:
        """Whether this is a run of a minute on tiny data."""
        return self.options.quick

    def begin(self, problem: Problem) -> None:
        """Begin the part on a problem: choose and test every method; those without time are noted."""
        self.add(problem)
        self.document.section(f"On {problem.name}", f"{problem.what[0].upper()}{problem.what[1:]}.")
        for method in self.methods:
            self.include(problem, method)

    def add(self, problem: Problem) -> None:
        """List a problem among those of the results; nothing is fitted."""
        self.problems.append(problem)
        self.tested.setdefault(problem.name, {})

    def include(self, problem: Problem, method: Method) -> None:
        """Choose and test one method, and keep it among the results; one without time is noted."""
        tested = self.try_test(problem, method)
        if tested is not None:
            self.tested[problem.name][method.label] = tested

    def try_test(self, problem: Problem, method: Method) -> Judged | None:
        """Choose and test one method; None, and a note, where the time is over."""
        tested: Judged | None = self.while_time(
            f"{method.label} on {problem.name}", partial(self.trials.test, problem, method)
        )
        return tested

    def while_time(self, what: str, work: Callable[[], Any]) -> Any:
        """Do some work, or note once what was not done where the time is over."""
        try:
            return work()
        except OutOfTimeError:
            if what not in self.unfinished:
                self.unfinished.append(what)
            return None

    def judge_order(
        self,
        problem: Problem,
        first: str,
        second: str,
        metric: str,
        *,
        where: str,
        paper: tuple[float, float],
        tested: Mapping[str, Judged] | None = None,
    ) -> None:
        """Judge whether the first method is better, as the paper has it; nothing where one of them is not there."""
        found = self.tested[problem.name] if tested is None else tested
        if first in found and second in found and metric in found[first].values:
            values = found[first].values[metric], found[second].values[metric]
            figures = percent(paper[0]), percent(paper[1])
            self.claims.append(
                order_claim(
                    first, second, shown_metric(metric), values, where=where, problem=problem.name, paper=figures
                )
            )

    def settings_part(self) -> None:
        """Describe how settings were chosen, and which."""
        self.document.section(
            "Settings",
            "All settings of a method are searched together: random points in a box of values (equally many for each "
            "method), then steps from the best one. If the best value is at an edge of the box, the box is widened. "
            "The setting with the best MAP over the validation images was judged on the test rows, once for each "
            "version of the search. Iterative methods use the same validation images for early stopping; if the best "
            "epoch is the last one allowed, longer training might help. The embeddings and the linear WARP update "
            "their weights after each block of pairs, so that any number of threads gives the same result, and return "
            "the mean of the last 20 epochs; the papers do neither. Each setting is fitted once, with one seed, and "
            "not refitted on training and validation rows together: intervals cover the choice of test images, not the "
            "randomness of training. Measures are means over the test images.",
        )
        self.document.table(
            "Search space",
            ("method", "model", "box at the start", "kept fixed"),
            [[method.label, method.model, method.shown_box, method.shown_fixed] for method in self.methods],
        )
        rows = []
        for problem, tested in self.tested.items():
            for label, one in tested.items():
                choice, record = one.choice, one.choice.record
                epoch = "–" if record["epoch"] is None else str(record["epoch"])
                seconds = f"{record['seconds']:.1f}"
                widened = ", ".join(choice.widened) or "–"
                rows.append(
                    [problem, label, choice.shown_tried, choice.shown, widened, f"{record['map']:.4f}", epoch, seconds]
                )
        header = (
            "data",
            "method",
            "settings tried",
            "chosen",
            "box widened",
            "validation MAP",
            "best epoch",
            "seconds of its fit",
        )
        self.document.table("Settings chosen on validation rows", header, rows)

    def finish(self, study: Study, left_out: Sequence[str], facts: Mapping[str, Any]) -> Outcome:
        """Write results.json, and the report that it makes."""
        results = jsonable(
            {
                "title": study.title,
                "paper": study.paper,
                "judged": study.judged,
                "seed": self.options.seed,
                "command": self.options.command,
                "data": self.options.hashes(),
                "machine": machine(),
                "hours_of_fits": round(self.trials.hours, 2),
                "problems": [described(problem) for problem in self.problems],
                "tested": {
                    problem: {label: summary(tested) for label, tested in found.items()}
                    for problem, found in self.tested.items()
                },
                "claims": [claim.as_dict() for claim in self.claims],
                "preface": self.preface.parts,
                "parts": self.document.parts,
                "unfinished": self.unfinished,
                "quick": self.quick,
                "left_out": list(left_out),
                **facts,
            }
        )
        report = self.out / "report.md"
        write_json(self.out / "results.json", results)
        write_whole(report, report_of(results, Looks(self.out).versions()).encode("utf-8"))
        return Outcome(report, self.claims, self.unfinished)


@dataclass
class Run:
    """What was found on one problem of a study: methods are chosen, then judged; those without time are noted.

    Attributes
    ----------
    problem : Benchmark
    comparison : Comparison
    choices : dict to Choice
        By the method's label; by label and criterion where methods are chosen by several.
    judged : dict to Judged
    """

    problem: Any
    comparison: Comparison
    choices: dict[Any, Choice] = field(default_factory=dict)
    judged: dict[Any, Judged] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What tables call it."""
        name: str = self.problem.name
        return name

    def run(self, methods: Sequence[Method]) -> None:
        """Choose and judge every method."""
        trials, problem = self.comparison.trials, self.problem
        for method in methods:
            choices: list[Choice] | None = self.comparison.while_time(
                f"{method.label} on {self.name}", partial(trials.choose, problem, method)
            )
            for choice in choices or []:
                place = method.label if method.by else (method.label, choice.by)
                self.choices[place] = choice
                criterion = "" if method.by else f", {choice.by}"
                judged: Judged | None = self.comparison.while_time(
                    f"{method.label} on the test rows of {self.name}{criterion}", partial(trials.judge, problem, choice)
                )
                if judged is not None:
                    self.judged[place] = judged


def reproduce(study: Study, out: Path, options: Options) -> Outcome:
    """Run a paper's comparison and write a report; what is finished in the folder is not done again.

    Parameters
    ----------
    study : Study
    out : Path
        The folder: afterwards it holds ``report.md``, ``results.json``, ``figures/``, and ``results/`` and ``data/``
        from which a second run goes on.
    options : Options

    Raises
    ------
    UserError
        If a model is not in the comparison or not registered, or an option does not fit the study.
    MissingExtraError
        If matplotlib, or what else the study needs, is missing.
    DataError
        If a folder holds no data that are known.
    StorageError
        If `out` holds other things, or the comparison of another paper.
    """
    chosen = chosen_methods(study.methods, options.models)
    left_out = [method.label for method in study.methods if method not in chosen]
    figure_class()  # refuses now, before any long work, where matplotlib is not installed
    study.check(options, chosen)
    begin_folder(out, study.paper)
    trials = Trials(
        out / "results",
        looks=Looks(out),
        seed=options.seed,
        n_jobs=options.n_jobs,
        until=None if options.minutes is None else time.monotonic() + 60 * options.minutes,
        progress=options.progress,
        small=study.small if options.quick else None,
    )
    methods = [study.quick(method) if options.quick else method for method in chosen]
    comparison = Comparison(out, trials, methods, options)
    facts = study.run(comparison)
    return comparison.finish(study, left_out, facts)
