"""Make the page of the Python API from the public names: those of `visterm`, the models and the encoders."""

import inspect
from collections.abc import Iterable, Iterator

import visterm
from visterm.core.registry import PACKAGE, RESEARCH, Registry
from visterm.core.tables import ENCODERS, MODELS
from visterm.models import abilities
from visterm.models.base import Annotator

INTRODUCTION = """# Python

The twelve public names of `visterm`, in the order in which you need them (`visterm.models` and `visterm.encoders` are
lists of their own), and what else examples use. How to use them: [Python](../python.md).
What else is in the modules may change without notice.
"""
ABOUT = {
    "Models": "A model's page has its settings, and the methods that it has beside those of every model. Settings that "
    "several models share are on the page that it links to.",
    "What models share": "Settings, learned attributes and methods of several models, as their pages refer to them. "
    "You meet them through the models.",
    "What else a model can do": "The methods that some models have. `isinstance(model, FitsStreams)` says whether a "
    "model has those of one.",
}
"""What some sections begin with."""
CALLED_BY_VISTERM = {"take_held_out", "write_steps"}
"""Methods of models that their pages leave out; `Annotator`, or the ability that has them, says what they are."""


def python_page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for title, names in sections().items():
        about = f"{ABOUT[title]}\n\n" if title in ABOUT else ""
        parts.append(f"## {title}\n\n{about}{autosummary(names, TEMPLATES.get(title, ''))}")
    return "\n".join(parts)


TEMPLATES = {
    "Models": "learner", "Models of visterm-research": "learner", "What models share": "learner",
    "Encoders": "encoder", "Encoders of visterm-research": "encoder",
}  # fmt: skip
"""The file of docs/templates for the pages of a section, where it has one of its own."""


def sections() -> dict[str, list[str]]:
    """Return the names that have a page, in full, by the sections that list them."""
    names = [name for name in visterm.__all__ if name not in ("models", "encoders")]
    return {
        "visterm": [f"visterm.{name}" for name in names],
        "What comes back": [
            "visterm.tagging.annotating.Annotations",
            "visterm.tagging.annotating.Annotated",
            "visterm.core.types.Tag",
            "visterm.tagging.explain.Explanation",
            "visterm.encoders.contract.Encoded",
            "visterm.evaluation.evaluate_run.Measured",
            "visterm.library.search.result.Found",
            "visterm.core.types.Hit",
            "visterm.core.types.Ranking",
        ],
        "What examples use besides": [
            "visterm.metrics.evaluate",
            "visterm.core.vocabulary.Vocabulary",
            "visterm.learning.relations.WordRelations",
            "visterm.tagging.part_relations.label_pair",
            "visterm.tagging.tag_map.tag_map",
            "visterm.tagging.explain.heat",
            "visterm.store.filters.Filter",
            "visterm.library.duplicates.find_duplicates",
            "visterm.features.job.encode_folder",
            "visterm.data.feature_files.read_features",
            "visterm.data.read_mulan",
            "visterm.cli.output.Bars",
        ],
        "What each model has": ["visterm.models.base.Annotator"],
        "Models": list(classes("models", MODELS)),
        "Models of visterm-research": list(classes("models", MODELS, RESEARCH)),
        "What models share": [in_full(cls) for cls in shared_bases()],
        "What else a model can do": [in_full(cls) for cls in abilities_of_models()],
        "What each encoder has": ["visterm.encoders.base.Encoder"],
        "Encoders": list(classes("encoders", ENCODERS)),
        "Encoders of visterm-research": list(classes("encoders", ENCODERS, RESEARCH)),
    }


def linked_names() -> dict[str, str]:
    """Return each name that has a page, as docstrings write it, with the name in full."""
    names = [name for names in sections().values() for name in names]
    own = {"fit", "evaluate"}  # most often a method, or the metrics'
    short = {name.rpartition(".")[2]: name for name in names if name.rpartition(".")[2] not in own}
    return short | {name: name for name in names}


def classes(room: str, registry: Registry, package: str = PACKAGE) -> Iterator[str]:
    """Yield the classes of a package in a registry as they are imported, each once."""
    yield from (f"{package.replace('-', '_')}.{room}.{name}" for name in registry.classes(package))


def shared_bases() -> list[type]:
    """Return the classes that models inherit settings or methods from, and that are no models themselves."""
    models = [entry.load() for package in (PACKAGE, RESEARCH) for entry in MODELS.classes(package).values()]
    bases = {base for model in models for base in model.__mro__ if ".models." in base.__module__}
    return sorted(bases - {*models, Annotator}, key=lambda base: base.__name__)


def abilities_of_models() -> list[type]:
    """Return the protocols of what some models can do."""
    defined = (cls for cls in vars(abilities).values() if getattr(cls, "__module__", "") == abilities.__name__)
    return sorted((cls for cls in defined if getattr(cls, "_is_protocol", False)), key=lambda cls: cls.__name__)


def further_methods() -> list[str]:
    """Return the names of the methods that some models have, and not all, for people to call."""
    methods = {
        name for cls in abilities_of_models() for name, member in vars(cls).items() if inspect.isfunction(member)
    }
    return sorted(name for name in methods - CALLED_BY_VISTERM if not name.startswith("_"))


def in_full(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"


def autosummary(names: Iterable[str], template: str = "") -> str:
    """Return the directive that lists names and makes a page of each; `template` is a file of docs/templates."""
    lines = "\n".join(f"   {name}" for name in names)
    options = f"   :template: autosummary/{template}.rst\n" if template else ""
    return f"```{{eval-rst}}\n.. autosummary::\n   :toctree: python\n   :nosignatures:\n{options}\n{lines}\n```\n"
