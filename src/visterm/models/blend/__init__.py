"""Several models put together."""
