package sqlite

// applicationID marks a SQLite file as one of ours ("TSZK").
const applicationID = 0x54535A4B

// migration leads a file from one version of the schema to the next.
type migration struct {
	// sql is one or more statements.
	sql string
}

// migrations[i] leads from version i to version i+1; version 0 is an empty file. An entry that has been released never
// changes. Views are made anew after the last one, so they are not a part of them.
var migrations = []migration{{schema1}}

// schema1 is the layout; docs/decisions/0004-sqlite-layout.md says why it is like that.
//
// A column that many writes look at or change stands before those that may be long. Times are milliseconds since 1970,
// but expiration and retention are seconds. steps and outbox are logs: what is written is appended, entries that come
// later win, and the log is written anew when a run is taken up.
const schema1 = `
CREATE TABLE run_record (
  id INTEGER PRIMARY KEY,
  idempotency_key TEXT NOT NULL UNIQUE,
  revision INTEGER NOT NULL,
  owner TEXT NOT NULL,
  status TEXT NOT NULL,
  cancel TEXT,
  step_count INTEGER NOT NULL,
  size INTEGER NOT NULL,
  payloads INTEGER NOT NULL,
  write_id TEXT NOT NULL,
  run INTEGER NOT NULL,
  current_step TEXT NOT NULL,
  in_progress_expiration INTEGER,
  not_before INTEGER,
  expiration INTEGER,
  updated_at INTEGER,
  created_at INTEGER,
  ends_as TEXT NOT NULL,
  retention INTEGER NOT NULL,
  version INTEGER NOT NULL,
  record_version INTEGER NOT NULL,
  relay TEXT,
  parked INTEGER,
  outbox_token TEXT NOT NULL,
  outbox_until INTEGER,
  operation TEXT NOT NULL,
  pivot TEXT NOT NULL,
  payload_hash TEXT NOT NULL,
  plan TEXT NOT NULL,
  failure TEXT,
  steps TEXT NOT NULL,
  input TEXT,
  response_data TEXT,
  outbox TEXT NOT NULL,
  audit TEXT
) STRICT;
CREATE TABLE run_payload (
  run INTEGER NOT NULL,
  part TEXT NOT NULL,
  data ANY NOT NULL,
  PRIMARY KEY (run, part)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_open ON run_record (status) WHERE status <> 'COMPLETED';
CREATE INDEX run_expiring ON run_record (expiration) WHERE expiration IS NOT NULL;
CREATE INDEX run_relay ON run_record (relay) WHERE relay IS NOT NULL;
CREATE INDEX run_parked ON run_record (parked) WHERE parked IS NOT NULL;
`

// The states of the column relay: what a relay's Claim has to do with a run.
const (
	relaySend   = "send"   // there are messages before the first parked one
	relayHeld   = "held"   // the first message is parked
	relaySettle = "settle" // the run has ended and nothing is left to send, but it lacks its expiry
)

// dropViews and views are run on every upgrade, since views hold nothing.
const dropViews = `
DROP VIEW IF EXISTS runs;
DROP VIEW IF EXISTS run_steps;
DROP VIEW IF EXISTS run_messages;
DROP VIEW IF EXISTS run_audit;
`

const views = `
CREATE VIEW runs AS
SELECT r.idempotency_key, r.operation, r.status, r.current_step, nullif(r.ends_as, '') AS ends_as,
  r.failure->>'$.step' AS failed_step, r.failure->>'$.code' AS failure_code, r.failure->>'$.message' AS failure_message,
  r.version, r.run, nullif(r.owner, '') AS owner, r.write_id, r.revision,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.in_progress_expiration / 1000.0, 'unixepoch') AS in_progress_expiration,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.not_before / 1000.0, 'unixepoch') AS not_before,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.created_at / 1000.0, 'unixepoch') AS created_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.updated_at / 1000.0, 'unixepoch') AS updated_at,
  strftime('%Y-%m-%dT%H:%M:%SZ', r.expiration, 'unixepoch') AS expiration,
  r.retention, r.cancel, r.plan, nullif(r.pivot, '') AS pivot, r.payload_hash,
  coalesce(r.input, (SELECT data FROM run_payload WHERE run = r.id AND part = 'input')) AS input,
  coalesce(r.response_data, (SELECT data FROM run_payload WHERE run = r.id AND part = 'response')) AS response_data,
  r.failure, r.record_version
FROM run_record r;

CREATE VIEW run_steps AS
SELECT r.idempotency_key, p.key + 1 AS position, coalesce(s.value->>'$.name', p.value) AS step,
  coalesce(s.value->>'$.status', 'PENDING') AS status, coalesce(s.value->>'$.attempts', 0) AS attempts,
  coalesce(s.value->>'$.unknown', 0) AS unknown,
  coalesce(s.value->'$.output', s.value->>'$.output_text',
    CASE WHEN s.value->>'$.output_size' IS NOT NULL THEN (SELECT data FROM run_payload WHERE run = r.id AND part = 'step/' || p.key) END) AS output,
  s.value->>'$.error.code' AS error_code, s.value->>'$.error.message' AS error_message,
  coalesce(s.value->>'$.undo_attempts', 0) AS undo_attempts, s.value->>'$.undo_error.message' AS undo_error_message,
  strftime('%Y-%m-%dT%H:%M:%fZ', s.value->>'$.started_at' / 1000.0, 'unixepoch') AS started_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', s.value->>'$.ended_at' / 1000.0, 'unixepoch') AS ended_at
FROM run_record r JOIN json_each(r.plan) p
LEFT JOIN json_each('[' || substr(r.steps, 2) || ']') s
  ON s.value->>'$.i' = p.key
  AND s.key = (SELECT max(l.key) FROM json_each('[' || substr(r.steps, 2) || ']') l WHERE l.value->>'$.i' = p.key);

CREATE VIEW run_messages AS
SELECT r.idempotency_key, m.key + 1 AS position, m.value->>'$.id' AS id, m.value->>'$.topic' AS topic, m.value->>'$.key' AS key,
  m.value->>'$.type' AS type, m.value->>'$.content_type' AS content_type, m.value->'$.attributes' AS attributes,
  coalesce(m.value->'$.body', m.value->>'$.body_text', m.value->>'$.body_base64',
    CASE WHEN m.value->>'$.body_size' IS NOT NULL THEN (SELECT data FROM run_payload WHERE run = r.id AND part = 'message/' || (m.value->>'$.id')) END) AS body,
  strftime('%Y-%m-%dT%H:%M:%fZ', m.value->>'$.time' / 1000.0, 'unixepoch') AS time, m.value->>'$.parked' AS parked,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.outbox_until / 1000.0, 'unixepoch') AS claimed_until
FROM run_record r JOIN json_each('[' || substr(r.outbox, 2) || ']') m;

CREATE VIEW run_audit AS
SELECT r.idempotency_key, a.key + 1 AS position, strftime('%Y-%m-%dT%H:%M:%fZ', a.value->>'$.at' / 1000.0, 'unixepoch') AS at,
  a.value->>'$.actor' AS actor, a.value->>'$.verb' AS verb, a.value->>'$.step' AS step, a.value->>'$.note' AS note
FROM run_record r JOIN json_each(r.audit) a;
`
