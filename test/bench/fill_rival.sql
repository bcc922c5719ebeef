-- the hand-written queue with :items rows
\o /dev/null
SET client_min_messages = warning;
DROP TABLE IF EXISTS queue;
CREATE TABLE queue (id bigint PRIMARY KEY, item_key text NOT NULL UNIQUE, payload jsonb,
	state text NOT NULL DEFAULT 'pending', claimed_at timestamptz, done_at timestamptz) WITH (fillfactor = 90);
CREATE INDEX ON queue (id) WHERE state = 'pending';
INSERT INTO queue SELECT g, 'merchant-' || g, jsonb_build_object('n', g) FROM generate_series(1, :items) g;
VACUUM ANALYZE queue;
CHECKPOINT;
