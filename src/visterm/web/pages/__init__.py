"""The page: server-rendered HTML for people, with one style sheet and one script."""
