-- The tables of a catalogue that is connected to another program's library, since version 5.

CREATE TABLE connection (                  -- to another program's library: one row, or none
  id INTEGER PRIMARY KEY CHECK (id = 1),
  kind TEXT NOT NULL,
  address TEXT NOT NULL,
  key_file TEXT,                           -- where the key is, never the key; NULL: in the environment
  settings TEXT NOT NULL CHECK (json_valid(settings)),
  folders TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(folders)), -- whether each keeps tags, and when that was tried
  mark TEXT NOT NULL,                      -- by which reading goes on, by the server's clock
  learn_from TEXT,                         -- the current run when people's tags changed; NULL: all is learned
  synced TEXT
) STRICT;

CREATE TABLE remote_photos (               -- as its server described each last; lists are JSON
  id INTEGER PRIMARY KEY,                  -- names the file of its preview
  remote_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  version TEXT NOT NULL,                   -- of the picture; '': it has no preview
  folder TEXT NOT NULL DEFAULT '',         -- the part of the library that keeps all of its tags or none
  touched TEXT NOT NULL DEFAULT '',        -- its server's stamp when our last request was worked through
  fetched TEXT,                            -- the version whose preview lies here
  tags TEXT NOT NULL CHECK (json_valid(tags)),
  rejected TEXT NOT NULL CHECK (json_valid(rejected)),
  guessed TEXT NOT NULL CHECK (json_valid(guessed)),
  given TEXT CHECK (given IS NULL OR json_valid(given)), -- people's tags and rejections that the catalogue has taken over
  denied TEXT CHECK (denied IS NULL OR json_valid(denied)),
  ready INTEGER NOT NULL CHECK (ready IN (0, 1)),
  state TEXT NOT NULL DEFAULT 'here' CHECK (state IN ('here', 'gone')),
  image_id INTEGER REFERENCES images (id) ON DELETE SET NULL,
  stale INTEGER NOT NULL DEFAULT 1         -- whether the catalogue has an older state of it, or none
) STRICT;
CREATE INDEX remote_photos_by_image ON remote_photos (image_id);
CREATE INDEX remote_photos_stale ON remote_photos (id) WHERE stale;

CREATE TABLE remote_pairs (                -- tags that visterm wrote there, or is about to
  photo_id INTEGER NOT NULL REFERENCES remote_photos (id) ON DELETE CASCADE,
  tag TEXT NOT NULL,                       -- as it stands there
  tag_id INTEGER NOT NULL REFERENCES tags (id),
  confidence REAL NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('planned', 'written', 'lost', 'leaving', 'taken', 'off')),
  at TEXT NOT NULL,
  sure INTEGER NOT NULL DEFAULT 0,         -- whether the state was read again some seconds later
  losses INTEGER NOT NULL DEFAULT 0,       -- how many times it vanished, and nobody may have taken it off
  PRIMARY KEY (photo_id, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX remote_pairs_by_state ON remote_pairs (state);
