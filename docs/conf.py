"""The documentation site: pages of the repository as they are, the reference from the code, and the gallery.

Sources are read from the root of the repository, so that a link works there and on the site. `make site` builds it.
VISTERM_GALLERY=1 runs the examples of the gallery; without it they are shown as they are.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "extensions"))

from python_page import further_methods  # noqa: E402

import visterm  # noqa: E402

project, author = "visterm", "The visterm developers"
copyright = "The visterm developers"
version = release = visterm.__version__

extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "myst_parser", "sphinx_design", "site_pages",
    "linked_names",
]  # fmt: skip
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "research/README.md", "research/docs/**.md"]
exclude_patterns = ["docs/templates/**", "docs/generated/gallery/**.ipynb", "docs/generated/gallery/**.py"]
templates_path = [str(ROOT / "docs" / "templates")]  # in full: autosummary looks from the root
nitpicky = True
suppress_warnings = ["toc.empty_glob", "config.cache"]

# ---- Pages -----------------------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# ---- The code --------------------------------------------------------------------------------------------------------

default_role = "name"  # of linked_names: `Wsabie` in docstrings is a link, `max_norm` is code
autosummary_generate = True
autosummary_context = {"further_methods": further_methods()}
autodoc_typehints = "none"  # numpydoc lists types beside what they mean
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# ---- The gallery -----------------------------------------------------------------------------------------------------

if any((ROOT / "examples").glob("plot_*.py")):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": ["examples"],
        "gallery_dirs": ["docs/generated/gallery"],
        "filename_pattern": "plot_",
        "plot_gallery": os.environ.get("VISTERM_GALLERY") == "1",
        "abort_on_example_error": True,
        "within_subsection_order": "FileNameSortKey",
        "download_all_examples": False,
        "write_computation_times": False,
    }

# ---- The look --------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "visterm"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_additional_pages = {"index": "to_start.html"}
html_sidebars = {"docs/start": []}  # it has no pages below it
html_theme_options = {
    "logo": {"text": "visterm"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
