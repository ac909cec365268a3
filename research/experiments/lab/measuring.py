"""One fit of methods.py, in the process that is there for it: what it costs, and how good it is."""

from __future__ import annotations

import resource
import signal
import time
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data_sets import Rows

from lab.child import RivalEndedError, RivalError
from lab.contestants import SCIKIT_LEARN, Contestant, Judged, Ours, ScikitLearn, UnsuitedError, timed
from lab.method_sets import MethodSet
from lab.rivals import RIVALS, Rival
from visterm.core.errors import VistermError
from visterm.metrics import evaluate

METRICS = ["map", "p@5", "n_plus@5", "word_map"]
MOST_BYTES = 8 * 2**30
WARM_IMAGES, WARM_TAGS = 80, 20
QUERIES = 50  # Tags that are searched for


def measure(answer: Connection, name: str, data: MethodSet, python: Path | None, minutes: float) -> None:
    """Send the figures of a contestant, or why there are none; a process that takes longer is ended by SIGXCPU."""
    warnings.simplefilter("ignore")  # of tags without photos, and of what has not converged
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    try:
        one = contestant(name, data, python)
        answer.send(figures(one, data.rows, round(60 * minutes)) | ({"settings": one.settings} if one.settings else {}))
    except MemoryError:
        answer.send({"over": f"more than {MOST_BYTES // 2**30} GB of memory"})
    except RivalEndedError as error:
        ended = error.code == -signal.SIGXCPU  # a limit holds for the processes below, too
        answer.send({"over": ended_after(minutes)} if ended else {"refused": str(error)})
    except (VistermError, UnsuitedError, RivalError) as error:
        answer.send({"refused": str(error)})


def ended_after(minutes: float) -> str:
    """Return why there are no figures of what took too long."""
    return f"more than {60 * minutes:g} seconds"


def contestant(name: str, data: MethodSet, python: Path | None) -> Contestant:
    """Return what goes by this name."""
    if name in RIVALS:
        return Rival(name, python)
    kind = name.removeprefix("scikit-learn ")
    return ScikitLearn(kind) if kind in SCIKIT_LEARN else Ours(name, data)


def figures(one: Contestant, rows: Rows, most_seconds: int) -> dict[str, Any]:
    """Fit, judge, and measure."""
    with suppress(VistermError):  # what it refuses it says of all rows
        one.warm_up(few(rows))
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + most_seconds, resource.RLIM_INFINITY))
    cost = one.learn(rows)
    judged = one.judge(rows)
    measured = evaluate(judged.scores, rows.right, METRICS, exclude=rows.known)
    return {
        **measured,
        "seconds": cost.seconds,
        "bytes": cost.bytes,
        "microseconds a photo": 1e6 * judged.seconds / judged.scores.shape[0],
        "microseconds a query": 1e6 * seconds_a_query(judged, rows.right),
    }


def few(rows: Rows) -> Rows:
    """Return a few rows and tags of the same kind, for what is compiled or imported at the first fit."""
    tags = np.argsort(-rows.Y.sum(axis=0), kind="stable")[:WARM_TAGS]
    images = np.flatnonzero(np.asarray(rows.Y[:, tags].sum(axis=1)).ravel())[:WARM_IMAGES]
    Y = sp.csr_array(rows.Y[images][:, tags])
    if rows.X is None:
        return Rows(None, Y, np.arange(len(images)), Y)
    return Rows(rows.X[images], Y, rows.X[images], Y)


def seconds_a_query(judged: Judged, right: sp.csr_array) -> float:
    """Return the mean time of a search for one tag."""
    tags = np.unique(right.indices)[:QUERIES].tolist()
    return timed(lambda: [judged.rank(tag) for tag in tags])[1] / len(tags)
