"""The service: a catalogue over HTTP, for programs (`/api/v1`), for Label Studio, and for people (`web.pages`)."""
