package sqlite

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

// throughStorage is a record as it comes back from what is stored, without a store.
func throughStorage(rec *state.Record) (*state.Record, error) {
	var e encoded
	e.record(rec)
	e.input = e.whole(partInput, rec.Input)
	large := parts{}
	for _, p := range e.large {
		large[p.part] = p.data
	}
	text := func(s span) []byte {
		if s.null {
			return nil
		}
		return append([]byte{}, e.buf[s.from:s.to]...)
	}
	r := row{
		payloads: large, stepCount: len(rec.Steps), recordVersion: state.RecordVersion, head: text(e.header), plan: text(e.plan), steps: text(e.log),
		cancel: text(e.cancelled), messages: text(e.sends), audit: text(e.audits),
		rec: &state.Record{
			Key: rec.Key, Operation: rec.Operation, Version: rec.Version, Pivot: rec.Pivot, Retention: rec.Retention, Status: rec.Status,
			PayloadHash: rec.PayloadHash, Input: e.input, Response: e.response, Owner: rec.Owner, Revision: rec.Revision, ExpiresAt: rec.ExpiresAt,
			CreatedAt: rec.CreatedAt, Outbox: state.Outbox{Token: rec.Outbox.Token, ClaimedUntil: rec.Outbox.ClaimedUntil},
		},
	}
	return r.rec, r.decode()
}

func TestEveryFieldComesBack(t *testing.T) {
	t.Parallel()
	var rec state.Record
	statetest.Fill(t, &rec)
	rec.Round()
	got, err := throughStorage(&rec)
	require.NoError(t, err)
	require.Empty(t, statetest.Differences(&rec, got))
}

// TestWhatIsStoredIsJSON, so that other tools can read it.
func TestWhatIsStoredIsJSON(t *testing.T) {
	t.Parallel()
	var rec state.Record
	statetest.Fill(t, &rec)
	var e encoded
	e.record(&rec)
	for name, s := range map[string]span{"head": e.header, "plan": e.plan, "cancel": e.cancelled, "audit": e.audits} {
		require.True(t, json.Valid(e.buf[s.from:s.to]), "%s: %s", name, e.buf[s.from:s.to])
	}
	for name, s := range map[string]span{"steps": e.log, "messages": e.sends} {
		require.True(t, json.Valid([]byte("["+string(e.buf[s.from+1:s.to])+"]")), "%s: %s", name, e.buf[s.from:s.to])
	}
}

// FuzzRecord: any text and any payload comes back as it went in.
func FuzzRecord(f *testing.F) {
	f.Add("text", []byte(`{"a":[1,"]",{"b":"\"}"}]}`), 3, int64(5))
	f.Add("nul\x00 \xff\xfe \"\\ \u2028", []byte("not json"), -1, int64(-1))
	f.Add("", []byte(nil), 0, int64(0))
	f.Add("x", []byte(" 1 "), 1<<30, int64(1)<<52)
	f.Fuzz(func(t *testing.T, text string, payload []byte, n int, ms int64) {
		at := state.Milli(at().AddDate(0, 0, int(ms%1000)))
		failure := &state.Failure{Step: text, Code: text, Message: text, NotUndone: []string{text, text}, At: at}
		rec := &state.Record{
			Key: text, Plan: []string{text, "b"}, Status: state.StatusBlocked, EndsAs: state.Status(text), CurrentStep: text, WriteID: text, Runs: n,
			LeaseUntil: at, NotBefore: at, UpdatedAt: at, Failure: failure, Input: payload, Response: payload,
			Steps: []state.StepRecord{
				{Name: text, Status: state.StepDone, Attempts: n, Output: payload, StartedAt: at, EndedAt: at},
				{Name: text, Status: state.StepStatus(text), Unknown: true, Error: failure, UndoAttempts: n, UndoError: failure, EndedAt: at},
				{Name: "beyond the plan", Status: state.StepPending},
			},
			Cancel: &state.CancelRequest{Reason: text, Actor: text, At: at},
			Audit:  []state.AuditEntry{{At: at, Actor: text, Verb: text, Step: text, Note: text}, {}},
			Outbox: state.Outbox{Messages: []state.OutboxMessage{
				{Message: outbox.Message{ID: text, Topic: text, Key: text, Type: text, ContentType: text, Body: payload, Time: at, Attributes: map[string]string{text: text, "k": ""}}, Parked: text},
				{Message: outbox.Message{ID: text + "/1", Body: []byte{}}},
			}},
		}
		got, err := throughStorage(rec)
		require.NoError(t, err)
		require.Empty(t, statetest.Differences(rec, got))
	})
}

// FuzzParser: whatever stands in the file, reading it ends, and without a panic.
func FuzzParser(f *testing.F) {
	var rec state.Record
	statetest.Fill(f, &rec)
	var e encoded
	e.record(&rec)
	for _, s := range []span{e.header, e.plan, e.cancelled, e.audits, e.log, e.sends} {
		f.Add(append([]byte{}, e.buf[s.from:s.to]...), 3)
	}
	f.Add([]byte(`,[0,"DONE",1,null,null,{"output_text":"\ud83d\ude00\u00e9\n"},"\\"]`), 1)
	f.Fuzz(func(_ *testing.T, text []byte, count int) {
		_ = decodeHead(text, &state.Record{})
		_, _ = decodePlan(text)
		_, _ = decodeSteps(text, []string{"a"}, count, nil)
		_, _ = decodeMessages(text, nil)
		_, _ = decodeCancel(text)
		_, _ = decodeAudit(text)
		_ = countSendable(text)
	})
}

// TestParserReadsWhatOthersWrite: a person may have put a value in with another tool's escapes.
func TestParserReadsWhatOthersWrite(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"\ud83d\ude00"`, `"\u00e9"`, `"\"\\\/\b\f\n\r\t"`, `"a\u0000b"`, `"\ud800x"`, `"plain"`, `""`} {
		var want string
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		p := parser{b: []byte(text)}
		require.Equal(t, want, p.text(), text)
		require.NoError(t, p.err)
	}
	for _, text := range []string{`"`, `"\`, `"\u12`, `"\x"`, `x`, ``, `"\u12zz"`} {
		p := parser{b: []byte(text)}
		_ = p.text()
		require.ErrorIs(t, p.err, errSyntax, text)
	}
}

func TestPayloadsThatAreMissingAreTold(t *testing.T) {
	t.Parallel()
	_, err := decodeSteps([]byte(`,[0,"DONE",1,null,null,{"output_size":5}]`), []string{"a"}, 1, parts{"step/0": []byte("1234")})
	require.ErrorIs(t, err, errPayload)
	_, err = decodeMessages([]byte(`,{"id":"a","body_size":5}`), nil)
	require.ErrorIs(t, err, errPayload)
	_, err = decodeSteps(nil, []string{"a"}, 2, nil)
	require.ErrorIs(t, err, errIndex)
	_, err = decodeSteps([]byte(`,[7,"DONE",1,null,null,0]`), []string{"a"}, 1, nil)
	require.ErrorIs(t, err, errIndex)
}
