-- The tables of a catalogue. Times are UTC in ISO 8601, so that they sort as text.

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL UNIQUE,        -- of encoder and model: the folder runs/<fingerprint> holds a copy of the run
  encoder_fingerprint TEXT NOT NULL,
  folder TEXT NOT NULL,                    -- where it was made; empty if it was never saved
  rows_of INTEGER REFERENCES runs (id),    -- the run whose image rows serve this one too (only tag rows have moved)
  added TEXT NOT NULL,
  facts TEXT NOT NULL CHECK (json_valid(facts)),
  current INTEGER NOT NULL DEFAULT 0 CHECK (current IN (0, 1))
) STRICT;
CREATE UNIQUE INDEX the_current_run ON runs (current) WHERE current = 1;

CREATE TABLE images (
  id INTEGER PRIMARY KEY CHECK (id >= 0),  -- never used again
  path TEXT,                               -- in full; NULL for an image that was given as an array
  name TEXT NOT NULL,
  folder TEXT NOT NULL DEFAULT '',
  n_bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL DEFAULT 0,
  sha256 TEXT NOT NULL,
  width INTEGER NOT NULL,
  height INTEGER NOT NULL,
  file_type TEXT NOT NULL DEFAULT '',
  taken TEXT,                              -- as the camera's clock said
  added TEXT NOT NULL,
  seen TEXT NOT NULL,
  phash INTEGER,                           -- 64 bits, signed
  state TEXT NOT NULL DEFAULT 'here' CHECK (state IN ('here', 'gone', 'frame')), -- frame: a moment of a video
  reviewed TEXT,                           -- when; NULL: never
  camera TEXT,                             -- maker and model; empty: the file names none; NULL: of an array
  latitude REAL,                           -- degrees north, and east; NULL: not known
  longitude REAL,
  place TEXT NOT NULL DEFAULT ''           -- its names in the metadata, with commas
) STRICT;
CREATE UNIQUE INDEX images_here_by_path ON images (path) WHERE state = 'here';
CREATE INDEX images_by_hash ON images (sha256);
CREATE INDEX images_gone ON images (id) WHERE state = 'gone';

CREATE TABLE frames (                      -- the moments of videos that have rows, each an image
  image_id INTEGER PRIMARY KEY REFERENCES images (id) ON DELETE CASCADE,
  video_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE, -- its own first frame
  at REAL NOT NULL                         -- seconds
) STRICT;
CREATE INDEX frames_by_video ON frames (video_id, at);

CREATE TABLE tags (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,               -- as the current run spells it or as it came in first
  key TEXT NOT NULL                        -- by which tags are compared: one in whatever spelling
) STRICT;
CREATE UNIQUE INDEX tags_by_key ON tags (key);

CREATE TABLE given (
  image_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE,
  tag_id INTEGER NOT NULL REFERENCES tags (id),
  source TEXT NOT NULL CHECK (source IN ('file', 'person')),
  who TEXT NOT NULL DEFAULT '',            -- gave it; empty: not known
  PRIMARY KEY (image_id, tag_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX given_by_tag ON given (tag_id, image_id);
CREATE INDEX given_by_hand ON given (tag_id, image_id, source) WHERE source = 'person';

CREATE TABLE feedback (                    -- a log: nothing in it is ever changed
  id INTEGER PRIMARY KEY,
  image_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE,
  tag_id INTEGER NOT NULL REFERENCES tags (id),
  verdict INTEGER NOT NULL CHECK (verdict IN (-1, 0, 1)),
  at TEXT NOT NULL,
  run_id INTEGER REFERENCES runs (id),
  who TEXT NOT NULL DEFAULT ''             -- judged; empty: not known
) STRICT;
CREATE INDEX feedback_by_image ON feedback (image_id, tag_id, id);

CREATE TABLE verdicts (                    -- the latest of each image and tag; 0: taken back
  image_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE,
  tag_id INTEGER NOT NULL REFERENCES tags (id),
  verdict INTEGER NOT NULL,
  PRIMARY KEY (image_id, tag_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX verdicts_by_tag ON verdicts (tag_id, verdict, image_id);
CREATE TRIGGER the_latest_counts AFTER INSERT ON feedback BEGIN
  INSERT INTO verdicts (image_id, tag_id, verdict) VALUES (new.image_id, new.tag_id, new.verdict)
    ON CONFLICT (image_id, tag_id) DO UPDATE SET verdict = excluded.verdict;
END;

CREATE TABLE predictions (                 -- the best few of each image
  image_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE,
  run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  tag_id INTEGER NOT NULL REFERENCES tags (id),
  score REAL NOT NULL,
  confidence REAL,
  PRIMARY KEY (run_id, image_id, tag_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX predictions_by_tag ON predictions (run_id, tag_id, image_id, confidence);

CREATE TABLE segments (
  id INTEGER PRIMARY KEY,                  -- the folder rows/<id>
  run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind TEXT NOT NULL CHECK (kind IN ('dense', 'csr')),
  width INTEGER NOT NULL,
  n_rows INTEGER NOT NULL CHECK (n_rows >= 0), -- what is committed; files may be longer
  table_version INTEGER                    -- of the Lance table that holds the rows, the one that counts; NULL: files do
) STRICT;

CREATE TABLE rows (
  image_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE,
  run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  segment_id INTEGER NOT NULL REFERENCES segments (id),
  row INTEGER NOT NULL,
  PRIMARY KEY (run_id, image_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_rows (                   -- replaced by a later row of the same image, or its image was forgotten
  segment_id INTEGER NOT NULL REFERENCES segments (id) ON DELETE CASCADE,
  row INTEGER NOT NULL,
  PRIMARY KEY (segment_id, row)
) STRICT, WITHOUT ROWID;

CREATE TABLE row_sums (                    -- checksums of the rows in files
  segment_id INTEGER NOT NULL REFERENCES segments (id) ON DELETE CASCADE,
  first INTEGER NOT NULL,                  -- row of the segment
  n_rows INTEGER NOT NULL,
  ids_sum INTEGER NOT NULL,                -- CRC-32 of these rows' ids, and of their values
  rows_sum INTEGER NOT NULL,
  PRIMARY KEY (segment_id, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE indexes (                     -- for approximate search of the first n_rows of a segment
  segment_id INTEGER PRIMARY KEY REFERENCES segments (id) ON DELETE CASCADE,
  file TEXT NOT NULL,
  n_rows INTEGER NOT NULL,
  facts TEXT NOT NULL CHECK (json_valid(facts))
) STRICT;

CREATE TABLE features (
  image_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE,
  encoder_fingerprint TEXT NOT NULL,       -- the folder features/<fingerprint>
  shard TEXT NOT NULL,
  row INTEGER NOT NULL,
  PRIMARY KEY (encoder_fingerprint, image_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'cancelling', 'done', 'failed', 'cancelled', 'lost')),
  done INTEGER NOT NULL DEFAULT 0,
  total INTEGER,
  message TEXT NOT NULL DEFAULT '',
  started TEXT NOT NULL,
  finished TEXT,
  error TEXT,
  pid INTEGER NOT NULL,
  host TEXT NOT NULL
) STRICT;

CREATE TABLE history (
  id INTEGER PRIMARY KEY,
  at TEXT NOT NULL,
  what TEXT NOT NULL,
  details TEXT NOT NULL CHECK (json_valid(details))
) STRICT;

CREATE TABLE written_tags (
  image_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE,
  tag_id INTEGER NOT NULL REFERENCES tags (id),
  target TEXT NOT NULL,
  at TEXT NOT NULL,
  PRIMARY KEY (target, image_id, tag_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE left_places (                 -- where photos lay as tags were written beside them, and then moved away
  target TEXT NOT NULL,
  path TEXT NOT NULL,                      -- of the photo
  image_id INTEGER NOT NULL REFERENCES images (id) ON DELETE CASCADE,
  PRIMARY KEY (target, path, image_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE skipped (path TEXT PRIMARY KEY, reason TEXT NOT NULL, at TEXT NOT NULL) STRICT, WITHOUT ROWID;

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
