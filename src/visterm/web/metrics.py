"""Counts of requests and their time, in the text format of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from prometheus_client import Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
API = "/api/v1"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Methods that are counted by name. Clients can invent more without end; these count as "other"."""

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets, in seconds: those of Prometheus' clients."""


class Metrics:
    """Counts of requests and of the time they took, by route.

    `folder` is PROMETHEUS_MULTIPROC_DIR, where the processes of a service store them; None: in memory, one process.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        labels = ["method", "route", "status"]
        self._requests = Counter("visterm_requests", "Requests that were answered.", labels, registry=None)
        text = "Time from a request to the end of its answer."
        self._seconds = Histogram("visterm_request_seconds", text, ["route"], buckets=BUCKETS, registry=None)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, figures: Iterable[Metric]) -> str:
        """Return all counts and further figures as text."""
        families = [*self._requests.collect(), *self._seconds.collect()]
        if self._folder is not None:
            collector: Any = MultiProcessCollector
            families = list(collector(None, self._folder).collect())
        for family in families:  # the client library adds the time of creation to each
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        registry: Any = SimpleNamespace(collect=lambda: [*families, *figures])
        return generate_latest(registry).decode()


def figure(name: str, help_text: str, values: Mapping[str, float] | float, label: str = "kind") -> Metric:
    """Return a figure: a counter if its name ends in ``_total``, otherwise a gauge.

    `values` maps values of the label to numbers; a single number is a figure without labels.
    """
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    if isinstance(values, Mapping):
        family = kind(name, help_text, labels=[label])
        for label_value, number in values.items():
            family.add_metric([label_value], number)
        return family
    return kind(name, help_text, value=values)


class MetricsMiddleware:
    """Middleware that counts requests and their time."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def send_and_keep_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_keep_status)
        finally:
            route: str = getattr(scope.get("route"), "path", "none")  # a pattern, such as /images/{image_id}
            if scope["path"].startswith(API) and route != "none" and not route.startswith(API):
                route = API + route
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.count(method, route, status, time.perf_counter() - start)
