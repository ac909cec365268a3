"""Empty catalogues on disk, for tests of the tables and rows alone: without a run that has learned anything."""

from visterm.core.persist import new_folder
from visterm.store.catalogue import StoredCatalogue


def empty_catalogue(folder, origin):
    """Make an empty catalogue in a folder that is not there, and open it."""
    with new_folder(folder, "catalogue", changing=True) as temporary:
        StoredCatalogue(origin).write_into(temporary)
    return StoredCatalogue.open(folder)
