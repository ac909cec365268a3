"""The rival's end of the line: read questions as JSON, answer each with what it cost; prints go to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from lab.cost import Cost


def serve(commands: dict[str, Callable[..., dict[str, Any] | None]]) -> None:
    """Answer until the questions end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            with Cost() as cost:
                answer = commands[question.pop("do")](**question) or {}
            answer["cost"] = asdict(cost)
        except Exception as error:  # whatever it is, the asking side shall say it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
