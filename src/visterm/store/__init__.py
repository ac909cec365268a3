"""Where image rows lie and how they are searched."""
