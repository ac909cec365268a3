"""What the service has done, counted, in the text form that Prometheus reads."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
API = "/api/v1"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Methods that are counted by name; clients can make up others without end, which are counted as "other"."""

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram's buckets, in seconds: those that Prometheus' own clients have."""


class Metrics:
    """Counts of requests and of the time they took, by route."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests[method, route, status] += 1
        buckets = self._buckets.setdefault(route, [0] * (len(BOUNDS) + 1))
        buckets[bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self, gauges: Mapping[str, tuple[str, Iterable[tuple[dict[str, str], float]]]]) -> str:
        """Write all, with further figures: by name, what they are (a help text) and values with labels."""
        lines = [
            "# HELP visterm_requests_total Requests that were answered.",
            "# TYPE visterm_requests_total counter",
        ]
        for (method, route, status), count in sorted(self._requests.items()):
            labels = {"method": method, "route": route, "status": str(status)}
            lines.append(f"visterm_requests_total{_labels(labels)} {count}")
        lines += [
            "# HELP visterm_request_seconds Time from a request to the end of its answer.",
            "# TYPE visterm_request_seconds histogram",
        ]
        for route, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), buckets, strict=True):
                total += count
                lines.append(f"visterm_request_seconds_bucket{_labels({'route': route, 'le': bound})} {total}")
            lines.append(f"visterm_request_seconds_sum{_labels({'route': route})} {self._seconds[route]:.6f}")
            lines.append(f"visterm_request_seconds_count{_labels({'route': route})} {total}")
        for name, (what, values) in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in values]
        return "\n".join(lines) + "\n"


class Counting:
    """The layer that counts requests and their time."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        finally:
            route = _route_of(scope)
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.note(method, route, status, time.perf_counter() - start)


def _route_of(scope: Scope) -> str:
    """Give the pattern of the address that was asked for: of a few, whatever ids are in it."""
    pattern: str = getattr(scope.get("route"), "path", "none")
    if scope["path"].startswith(API) and pattern != "none" and not pattern.startswith(API):
        return API + pattern
    return pattern


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
