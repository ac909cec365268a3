"""Make names in docstrings links: a text in single backticks that has a page leads there, any other is code.

Base classes that a class's page lists are those that have a page.
"""

from typing import Any

from docutils.nodes import Node, system_message
from docutils.parsers.rst.roles import code_role
from python_page import linked_names
from sphinx.domains.python import PyXRefRole


def name_role(
    role: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None, content: Any = ()
) -> tuple[list[Node], list[system_message]]:
    """Return a link to the page of a name, or code."""
    if text in LINKS:
        return PyXRefRole()("py:obj", rawtext, f"{text} <{LINKS[text]}>", lineno, inliner)
    return code_role(role, rawtext, text, lineno, inliner, options, list(content))


def list_documented_bases(app: object, name: str, cls: type, options: object, bases: list[Any]) -> None:
    """Put links to those base classes in the list that have a page."""
    found = [f":py:obj:`{base.__name__} <{LINKS[base.__name__]}>`" for base in bases if base.__name__ in LINKS]
    if found:
        bases[:] = found


LINKS = linked_names()


def setup(app: Any) -> dict[str, bool]:
    """Add the role, which `default_role` names."""
    app.add_role("name", name_role)
    app.connect("autodoc-process-bases", list_documented_bases)
    return {"parallel_read_safe": True}
