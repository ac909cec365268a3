"""The ways in which people keep tags: tables, JSON lines, folders, and texts beside images."""
