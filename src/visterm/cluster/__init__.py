"""Jobs on several machines, by Ray: the same work as on one, handed out part by part. The only room that knows Ray."""

from visterm.cluster.executor import RayExecutor

__all__ = ["RayExecutor"]
