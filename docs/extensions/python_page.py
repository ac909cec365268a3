"""Make the page of the Python API from the public names: those of `visterm`, the models and the encoders."""

from collections.abc import Iterable, Iterator

import visterm
from visterm.core.registry import Registry
from visterm.core.tables import ENCODERS, MODELS

FUNCTIONS = ("fit", "evaluate", "scorer", "to_frame")


def python_page() -> str:
    """Return the text of the page."""
    others = sorted(set(visterm.__all__) - set(FUNCTIONS))
    sections = {
        "Functions": [f"visterm.{name}" for name in FUNCTIONS],
        "Classes": [f"visterm.{name}" for name in others],
        "What a fit takes": ["visterm.tagging.fit_request.FitRequest"],
        "What each model has": ["visterm.models.base.Annotator"],
        "Models": list(classes("visterm.models", MODELS)),
        "What each encoder has": ["visterm.encoders.base.Encoder"],
        "Encoders": list(classes("visterm.encoders", ENCODERS)),
    }
    parts = [
        "# Python\n\nThe public names, from their docstrings. How to use them, with DataFrames and scikit-learn: "
        "[Python](../python.md). What else is in the modules may change without notice.\n"
    ]
    for title, names in sections.items():
        parts.append(f"## {title}\n\n{autosummary(names, 'learner' if title in ('Models', 'Encoders') else '')}")
    return "\n".join(parts)


def classes(module: str, registry: Registry) -> Iterator[str]:
    """Yield the classes of a registry as they are imported, each once."""
    yield from dict.fromkeys(f"{module}.{entry.target.partition(':')[2]}" for entry in registry)


def autosummary(names: Iterable[str], template: str = "") -> str:
    """Return the directive that lists names and makes a page of each; `template` is a file of docs/templates."""
    lines = "\n".join(f"   {name}" for name in names)
    options = f"   :template: autosummary/{template}.rst\n" if template else ""
    return f"```{{eval-rst}}\n.. autosummary::\n   :toctree: python\n   :nosignatures:\n{options}\n{lines}\n```\n"
