"""The folder that `visterm evaluate --report` writes: a page to look at, and all its figures as JSON."""
