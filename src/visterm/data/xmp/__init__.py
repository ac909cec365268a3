"""XMP metadata of photos: reading keywords from any program's fields, and writing them without other changes."""
