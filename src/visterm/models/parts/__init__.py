"""Objects and their parts: an embedding that also learns which tag is part of which."""
