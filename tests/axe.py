"""What axe-core (https://github.com/dequelabs/axe-core) finds wrong with a page that is open in a browser."""

from __future__ import annotations

import pytest

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def violations(page):
    """Return a line for each violation on a page of Playwright."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="wants axe-playwright-python")
    found = axe.Axe().run(page, options={"runOnly": RULES, "resultTypes": ["violations"]}).response["violations"]
    return [f"{each['id']}: {each['help']}: {[node['html'][:150] for node in each['nodes'][:3]]}" for each in found]
