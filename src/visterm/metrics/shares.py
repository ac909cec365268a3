"""The share of what was given that is right, and how sure it is where an image is given several at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from visterm.metrics.significance import Interval

Z = 1.959964
"""Of 95 %."""


def share_of_right(n_right: Any, n_given: Any) -> Interval | None:
    """Return the share of right tags among all that were given, and its 95 % interval.

    Tags of one image are right or wrong together, so that they say less than as many of different images. The interval
    is Wilson's for as many independent tags as say as much: the number given, divided by how many times as large the
    variance over images is as that of independent tags, if it is larger. Unlike one by drawing images anew, it does not
    shrink to a point where few tags were given and all were right.

    Parameters
    ----------
    n_right, n_given : array-like of int, shape (n_images,)
        Of each image.

    Returns
    -------
    Interval or None
        None where nothing was given.

    References
    ----------
    Wilson: Probable inference, the law of succession, and statistical inference. JASA 1927. Rao, Scott: A simple method
    for the analysis of clustered binary data. Biometrics 1992.
    """
    right, given = np.asarray(n_right, np.float64), np.asarray(n_given, np.float64)
    n = float(given.sum())
    if n == 0:
        return None
    share = float(right.sum()) / n
    independent = share * (1 - share) / n
    effect = 1.0
    if independent > 0 and given.size > 1:
        residuals = right - share * given
        effect = max(1.0, given.size / (given.size - 1) * float(residuals @ residuals) / n**2 / independent)
    m = n / effect
    centre = (share + Z**2 / (2 * m)) / (1 + Z**2 / m)
    half = Z / (1 + Z**2 / m) * float(np.sqrt(share * (1 - share) / m + Z**2 / (4 * m**2)))
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))
