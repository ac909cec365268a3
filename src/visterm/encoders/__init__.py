"""From images to feature rows."""
