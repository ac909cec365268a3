"""Write the pages of the site that are made from the code, before Sphinx looks for pages."""

from pathlib import Path
from typing import Any

from command_pages import command_pages
from http_page import http_page
from python_page import python_page

GENERATED = Path(__file__).resolve().parents[1] / "generated"


def write_pages(*_: object) -> None:
    """Write each page that is new or has changed, and remove those of commands that are gone."""
    pages = {
        **{f"{name}.md": text for name, text in command_pages().items()},
        "http.md": http_page(),
        "python.md": python_page(),
    }
    for old in GENERATED.glob("commands/*.md"):
        if f"commands/{old.name}" not in pages:
            old.unlink()
    for name, text in pages.items():
        path = GENERATED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def link_gallery(app: Any, page: str, source: list[str]) -> None:
    """Let the link to the examples lead to the gallery of the site; in the repository it leads to their folder."""
    source[0] = source[0].replace("](examples/README.txt)", "](docs/generated/gallery/index.rst)")


def setup(app: Any) -> dict[str, bool]:
    """Write the pages when Sphinx has read its settings; then it looks for pages, and autosummary reads them."""
    app.connect("config-inited", write_pages)
    app.connect("source-read", link_gallery)
    return {"parallel_read_safe": True}
