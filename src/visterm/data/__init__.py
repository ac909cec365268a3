"""What comes from outside: image files, tag files, corpora; and the drawn library for the demo and the tests."""
