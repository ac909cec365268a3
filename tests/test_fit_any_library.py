"""Whatever tags the photos of a library have, `fit` writes a run that opens and annotates."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings

from fuzzed_libraries import check_fit, libraries
from visterm.core.registry import PACKAGE

N_LIBRARIES = int(os.environ.get("VISTERM_LIBRARIES", "25"))
"""How many are tried; 500 take some minutes."""

BLEND = {"candidates": [["kernel_ridge", {}], ["knn", {}]], "valid_share": 0.3}


@settings(
    max_examples=N_LIBRARIES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(library=libraries(PACKAGE, BLEND))
def test_fit_writes_a_run_that_opens_and_annotates(library, tmp_path_factory):
    check_fit(library, tmp_path_factory.mktemp("library"))
