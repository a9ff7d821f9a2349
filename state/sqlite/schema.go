package sqlite

// applicationID marks a SQLite file as one of ours ("TSZK").
const applicationID = 0x54535A4B

// migration leads a file from one version of the schema to the next: one or more statements.
type migration string

// migrations[i] leads from version i to version i+1; version 0 is an empty file. An entry that has been released never
// changes. Views are not a part of them: see upgrade.
var migrations = []migration{schema1}

// schema1 is the layout; docs/decisions/0004-sqlite-layout.md says why it is like that.
//
// run_record is what a holder's writes change, and as little besides as possible, since SQLite writes a whole row whatever
// part of it has changed. run_about is written when a run starts, and seldom again. run_outbox has a row for each run that
// a relay has to look at. run_payload has what is too long for the others. All share the ID of the run.
//
// Times are milliseconds since 1970, but expiration and retention are seconds. steps and messages are logs: JSON arrays
// but for their brackets, to which is appended; of the entries of one step the last counts.
const schema1 = `
CREATE TABLE run_record (
  id INTEGER PRIMARY KEY,
  idempotency_key TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  revision INTEGER NOT NULL,
  status TEXT NOT NULL,
  cancel TEXT,
  expiration INTEGER,
  head TEXT NOT NULL,
  steps TEXT NOT NULL,
  response_data TEXT
) STRICT;
CREATE TABLE run_about (
  id INTEGER PRIMARY KEY,
  operation TEXT NOT NULL,
  version INTEGER NOT NULL,
  record_version INTEGER NOT NULL,
  retention INTEGER NOT NULL,
  payload_hash TEXT NOT NULL,
  created_at INTEGER,
  plan TEXT NOT NULL,
  step_count INTEGER NOT NULL,
  pivot TEXT NOT NULL,
  payloads INTEGER NOT NULL,
  input TEXT,
  audit TEXT
) STRICT;
CREATE TABLE run_outbox (
  id INTEGER PRIMARY KEY,
  relay TEXT,
  parked INTEGER NOT NULL,
  token TEXT NOT NULL,
  claimed_until INTEGER,
  messages TEXT NOT NULL
) STRICT;
CREATE TABLE run_payload (
  id INTEGER NOT NULL,
  part TEXT NOT NULL,
  data ANY NOT NULL,
  PRIMARY KEY (id, part)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_open ON run_record (status) WHERE status <> 'COMPLETED';
CREATE INDEX run_expiring ON run_record (expiration) WHERE expiration IS NOT NULL;
CREATE INDEX run_relay ON run_outbox (relay);
`

// The states of run_outbox.relay: what a relay's Claim has to do with a run.
const (
	relaySend   = "send"   // there are messages before the first parked one
	relayHeld   = "held"   // the first message is parked
	relaySettle = "settle" // the run has ended and nothing is left to send, but it lacks its expiry
)

const dropViews = `
DROP VIEW IF EXISTS runs;
DROP VIEW IF EXISTS run_steps;
DROP VIEW IF EXISTS run_messages;
DROP VIEW IF EXISTS run_audit;
`

// views are for people and their tools; the package's documentation describes them.
const views = `
CREATE VIEW runs AS
WITH blocked AS (
  SELECT r.id, coalesce(
    CASE WHEN r.head->>'$[5].ends_as' IS NOT NULL THEN (
      SELECT s.value->'$[5].undo_error' FROM json_each(a.plan) p JOIN json_each('[' || substr(r.steps, 2) || ']') s ON s.value->>'$[0]' = p.key
      WHERE p.value = r.head->>'$[2]' ORDER BY s.key DESC LIMIT 1) END,
    r.head->'$[5].failure') AS failure
  FROM run_record r JOIN run_about a USING (id) WHERE r.status = 'BLOCKED')
SELECT r.idempotency_key, a.operation, r.status, nullif(r.head->>'$[2]', '') AS current_step, r.head->>'$[5].ends_as' AS ends_as,
  r.head->>'$[5].failure.step' AS failed_step, r.head->>'$[5].failure.code' AS failure_code, r.head->>'$[5].failure.message' AS failure_message,
  b.failure->>'$.step' AS blocked_step, b.failure->>'$.code' AS blocked_code, b.failure->>'$.message' AS blocked_message,
  a.version, r.head->>'$[1]' AS run, nullif(r.owner, '') AS owner, r.head->>'$[0]' AS write_id, r.revision,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.head->>'$[3]' / 1000.0, 'unixepoch') AS in_progress_expiration,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.head->>'$[5].not_before' / 1000.0, 'unixepoch') AS not_before,
  strftime('%Y-%m-%dT%H:%M:%fZ', a.created_at / 1000.0, 'unixepoch') AS created_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.head->>'$[4]' / 1000.0, 'unixepoch') AS updated_at,
  strftime('%Y-%m-%dT%H:%M:%SZ', r.expiration, 'unixepoch') AS expiration,
  a.retention, r.cancel, a.plan, nullif(a.pivot, '') AS pivot, a.payload_hash,
  coalesce(a.input, (SELECT data FROM run_payload p WHERE p.id = r.id AND part = 'input')) AS input,
  coalesce(r.response_data, (SELECT data FROM run_payload p WHERE p.id = r.id AND part = 'response')) AS response_data,
  r.head->'$[5].failure' AS failure, a.record_version
FROM run_record r JOIN run_about a USING (id) LEFT JOIN blocked b USING (id);

CREATE VIEW run_steps AS
SELECT r.idempotency_key, p.key + 1 AS position, coalesce(s.value->>'$[5].name', p.value) AS step,
  coalesce(s.value->>'$[1]', 'PENDING') AS status, coalesce(s.value->>'$[2]', 0) AS attempts,
  coalesce(s.value->>'$[5].unknown', 0) AS unknown,
  coalesce(s.value->'$[6]', s.value->>'$[5].output_text',
    CASE WHEN s.value->>'$[5].output_size' IS NOT NULL THEN (SELECT data FROM run_payload d WHERE d.id = r.id AND part = 'step/' || p.key) END) AS output,
  s.value->>'$[5].error.code' AS error_code, s.value->>'$[5].error.message' AS error_message,
  coalesce(s.value->>'$[5].undo_attempts', 0) AS undo_attempts, s.value->>'$[5].undo_error.code' AS undo_error_code,
  s.value->>'$[5].undo_error.message' AS undo_error_message,
  strftime('%Y-%m-%dT%H:%M:%fZ', s.value->>'$[3]' / 1000.0, 'unixepoch') AS started_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', (coalesce(s.value->>'$[3]', 0) + s.value->>'$[4]') / 1000.0, 'unixepoch') AS ended_at
FROM run_record r JOIN run_about a USING (id) JOIN json_each(a.plan) p
LEFT JOIN json_each('[' || substr(r.steps, 2) || ']') s
  ON s.value->>'$[0]' = p.key
  AND s.key = (SELECT max(l.key) FROM json_each('[' || substr(r.steps, 2) || ']') l WHERE l.value->>'$[0]' = p.key);

CREATE VIEW run_messages AS
SELECT r.idempotency_key, m.key + 1 AS position, m.value->>'$.id' AS id, m.value->>'$.topic' AS topic, m.value->>'$.key' AS key,
  m.value->>'$.type' AS type, m.value->>'$.content_type' AS content_type, m.value->'$.attributes' AS attributes,
  coalesce(m.value->'$.body', m.value->>'$.body_text', m.value->>'$.body_base64',
    CASE WHEN m.value->>'$.body_size' IS NOT NULL THEN (SELECT data FROM run_payload d WHERE d.id = r.id AND part = 'message/' || (m.value->>'$.id')) END) AS body,
  strftime('%Y-%m-%dT%H:%M:%fZ', m.value->>'$.time' / 1000.0, 'unixepoch') AS time, m.value->>'$.parked' AS parked,
  strftime('%Y-%m-%dT%H:%M:%fZ', o.claimed_until / 1000.0, 'unixepoch') AS claimed_until
FROM run_record r JOIN run_outbox o USING (id) JOIN json_each('[' || substr(o.messages, 2) || ']') m;

CREATE VIEW run_audit AS
SELECT r.idempotency_key, e.key + 1 AS position, strftime('%Y-%m-%dT%H:%M:%fZ', e.value->>'$.at' / 1000.0, 'unixepoch') AS at,
  e.value->>'$.actor' AS actor, e.value->>'$.verb' AS verb, e.value->>'$.step' AS step, e.value->>'$.note' AS note
FROM run_record r JOIN run_about a USING (id) JOIN json_each(a.audit) e;
`
