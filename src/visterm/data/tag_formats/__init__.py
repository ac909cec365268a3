"""Supported forms of tags: tables, JSON lines, folders, and texts next to images."""
