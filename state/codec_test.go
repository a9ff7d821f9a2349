package state_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/statetest"
)

func TestRecordComesBackWhole(t *testing.T) {
	t.Parallel()
	rec := new(state.Record)
	statetest.Fill(t, rec)
	rec.Key, rec.ExpiresAt = "t#op#1", state.CeilSecond(rec.ExpiresAt)
	rec.EndsAs = state.StatusFailed
	data, err := state.MarshalRecord(rec)
	require.NoError(t, err)
	got, err := state.UnmarshalRecord(data)
	require.NoError(t, err)
	assert.Empty(t, statetest.Differences(rec, got))
	again, err := state.MarshalRecord(got)
	require.NoError(t, err)
	assert.Equal(t, string(data), string(again))

	bare := &state.Record{Key: "t#op#1", Status: state.StatusInProgress}
	data, err = state.MarshalRecord(bare)
	require.NoError(t, err)
	assert.Equal(t, `{"idempotency_key":"t#op#1","record_version":1,"status":"IN_PROGRESS","revision":0}`, string(data))
	got, err = state.UnmarshalRecord(data)
	require.NoError(t, err)
	assert.Equal(t, bare, got)
}

func TestPayloadsComeBackByteByByte(t *testing.T) {
	t.Parallel()
	for _, p := range []string{
		`null`, `1.0`, `9223372036854775808`, `"\u0000\ud800"`, ` { "a" : 1 } `, `"<>&"`, "\"\u2028😀\"", `{"a":1,"a":2}`, `1e999`,
	} {
		rec := &state.Record{
			Key: "t#op#1", Status: state.StatusInProgress, Input: json.RawMessage(p), Response: json.RawMessage(p),
			Steps: []state.StepRecord{{Status: state.StepDone, Output: json.RawMessage(p)}, {Status: state.StepPending}},
		}
		data, err := state.MarshalRecord(rec)
		require.NoError(t, err, p)
		var indented bytes.Buffer // what an operator's editor may do to it
		require.NoError(t, json.Indent(&indented, data, "", "\t"))
		for _, d := range [][]byte{data, indented.Bytes()} {
			got, err := state.UnmarshalRecord(d)
			require.NoError(t, err, p)
			assert.Equal(t, rec, got)
		}
	}
}

func TestMarshalRecordRefusesWhatWouldNotComeBack(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(r *state.Record){
		"key":             func(r *state.Record) { r.Key = "not a key" },
		"no key":          func(r *state.Record) { r.Key = "" },
		"status":          func(r *state.Record) { r.Status = "s3cret" },
		"step status":     func(r *state.Record) { r.Steps[0].Status = "s3cret" },
		"ends as":         func(r *state.Record) { r.EndsAs = state.StatusBlocked },
		"input":           func(r *state.Record) { r.Input = json.RawMessage("s3cret") },
		"empty input":     func(r *state.Record) { r.Input = json.RawMessage("") },
		"output":          func(r *state.Record) { r.Steps[0].Output = json.RawMessage("\"\xff s3cret\"") },
		"text":            func(r *state.Record) { r.Failure.Message = "s3cret \xff" },
		"note":            func(r *state.Record) { r.Audit[1].Note = "s3cret \xff" },
		"attribute":       func(r *state.Record) { r.Outbox.Messages[0].Attributes["s3cret \xff"] = "" },
		"attribute value": func(r *state.Record) { r.Outbox.Messages[0].Attributes["a"] = "s3cret \xff" },
		"old time":        func(r *state.Record) { r.CreatedAt = time.Unix(-1, 0) },
		"1970":            func(r *state.Record) { r.CreatedAt = time.Unix(0, 0) },
		"far time":        func(r *state.Record) { r.LeaseUntil = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"very far time":   func(r *state.Record) { r.LeaseUntil = time.Unix(1<<60, 0) },
		"old expiry":      func(r *state.Record) { r.ExpiresAt = time.Unix(-5, 0) },
		"far expiry":      func(r *state.Record) { r.ExpiresAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"step's time":     func(r *state.Record) { r.Steps[1].Error.At = time.Unix(-1, 0) },
		"count":           func(r *state.Record) { r.Runs = -1 },
		"revision":        func(r *state.Record) { r.Revision = -1 },
		"retention":       func(r *state.Record) { r.Retention = -time.Hour },
	} {
		rec := new(state.Record)
		statetest.Fill(t, rec)
		rec.Key = "t#op#1"
		spoil(rec)
		_, err := state.MarshalRecord(rec)
		require.ErrorIs(t, err, state.ErrInvalidInput, name)
		assert.NotContains(t, err.Error(), "s3cret", name)
	}
}

func TestUnmarshalRecordRefuses(t *testing.T) {
	t.Parallel()
	const good = `{"idempotency_key":"t#op#1","record_version":1,"status":"IN_PROGRESS","revision":1`
	_, err := state.UnmarshalRecord([]byte(good + `}`))
	require.NoError(t, err)
	for name, data := range map[string]string{
		"nothing": ``, "null": `null`, "a list": `[]`, "a number": `1`, "empty": `{}`, "cut": good, "trailing": good + `}x`, "two": good + `}{}`,
		"no version":    `{"idempotency_key":"t#op#1","status":"IN_PROGRESS","revision":1}`,
		"version 0":     strings.Replace(good, `"record_version":1`, `"record_version":0`, 1) + `}`,
		"version text":  strings.Replace(good, `"record_version":1`, `"record_version":"1"`, 1) + `}`,
		"no key":        `{"record_version":1,"status":"IN_PROGRESS","revision":1}`,
		"key":           strings.Replace(good, "t#op#1", "s3cret", 1) + `}`,
		"status":        strings.Replace(good, "IN_PROGRESS", "s3cret", 1) + `}`,
		"duplicate":     good + `,"revision":2}`,
		"unknown field": good + `,"s3cret":1}`,
		"wrong type":    good + `,"owner":{"s3cret":1}}`,
		"fraction":      good + `,"run":1.5}`,
		"huge":          good + `,"run":1e300}`,
		"negative":      good + `,"run":-1}`,
		"step":          good + `,"steps":[null]}`,
		"step status":   good + `,"steps":[{"name":"a","status":"s3cret"}]}`,
		"input":         good + `,"input":"s3cret"}`,
		"raw input":     good + `,"input":{"s3cret":1}}`,
		"lone escape":   good + `,"owner":"\ud800"}`,
		"invalid UTF-8": good + ",\"owner\":\"\xff\"}",
		"time":          good + `,"created_at":-1}`,
		"far time":      good + `,"created_at":253402300800000}`,
		"expiration":    good + `,"expiration":253402300800}`,
		"retention":     good + `,"retention":9223372037}`,
		"ends as":       good + `,"ends_as":"BLOCKED"}`,
		"body":          good + `,"outbox":{"messages":[{"id":"i","topic":"t","body":"no base64!"}]}}`,
		"deep":          strings.Repeat(`{"a":`, 100_000),
	} {
		rec, err := state.UnmarshalRecord([]byte(data))
		require.ErrorIs(t, err, state.ErrCorrupt, name)
		require.Nil(t, rec, name)
		assert.NotContains(t, err.Error(), "s3cret", name)
	}
}

func TestANewerRecordIsRefused(t *testing.T) {
	t.Parallel()
	_, err := state.UnmarshalRecord([]byte(`{"record_version":2,"idempotency_key":["of another shape"],"new":{}}`))
	require.ErrorIs(t, err, state.ErrNewerRecord)
	require.NotErrorIs(t, err, state.ErrCorrupt)
	assert.ErrorContains(t, err, "version 2, this one reads up to 1")
}

// golden is the record that testdata/record-v1.json holds. Neither is ever changed: a later version adds a file of its own.
func golden() *state.Record {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	refused := &state.Failure{Step: "charge_card", Code: "card_declined", Message: "declined: \"no funds\" <5 €>", NotUndone: []string{"send_mail"}, At: at.Add(3 * time.Second)}
	return &state.Record{
		Key: "tenant-a#create_order#order%2F001", Operation: "create_order", Version: 2, Plan: []string{"reserve_stock", "send_mail", "charge_card"}, Pivot: "charge_card",
		Retention: 720 * time.Hour, Status: state.StatusCompensating, EndsAs: state.StatusFailed, CurrentStep: "reserve_stock",
		Steps: []state.StepRecord{
			{
				Name: "reserve_stock", Status: state.StepCompensating, Attempts: 2, Output: json.RawMessage(`{"id": 9223372036854775807, "n":1.0}`), UndoAttempts: 1,
				UndoError: &state.Failure{Step: "reserve_stock", Message: "timeout", At: at.Add(5 * time.Second)}, StartedAt: at, EndedAt: at.Add(time.Second),
			},
			{Name: "send_mail", Status: state.StepDone, Attempts: 1, Output: json.RawMessage("null"), StartedAt: at.Add(time.Second), EndedAt: at.Add(2 * time.Second)},
			{Name: "charge_card", Status: state.StepPending, Attempts: 3, Unknown: true, Error: refused, StartedAt: at.Add(2 * time.Second)},
		},
		PayloadHash: "1:RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o", Input: json.RawMessage(`{"order_no":"order/001","note":"\u0000é\ud83d\ude00"}`),
		Response: json.RawMessage(`[1e400]`), Failure: refused, Owner: "owner", WriteID: "write", Runs: 4, LeaseUntil: at.Add(time.Minute), NotBefore: at.Add(time.Hour),
		Cancel: &state.CancelRequest{Reason: "客が取消", Actor: "ann", At: at.Add(4 * time.Second)}, ExpiresAt: state.CeilSecond(at.Add(720 * time.Hour)), Revision: 12,
		CreatedAt: at.Add(-time.Millisecond), UpdatedAt: at.Add(6 * time.Second),
		Outbox: state.Outbox{Token: "token", ClaimedUntil: at.Add(2 * time.Minute), Messages: []state.OutboxMessage{
			{Message: outbox.Message{ID: "tenant-a#create_order#order%2F001/send_mail/0", Topic: "mail", Key: "order/001", Type: "mail.sent", Body: []byte{0, 0xff, 'x'}, ContentType: "application/octet-stream", Attributes: map[string]string{"b": "2", "a": "1"}, Time: at}},
			{Message: outbox.Message{ID: "tenant-a#create_order#order%2F001/send_mail/1", Topic: "mail", Body: []byte(`{"a":1}`)}, Parked: "no such topic"},
		}},
		Audit: []state.AuditEntry{{At: at, Actor: "bob", Verb: "retry", Step: "charge_card", Note: "tried again"}},
	}
}

var writeGolden = flag.Bool("write-golden", false, "write the golden record of a new RecordVersion; an existing one is never overwritten")

func TestGoldenRecordIsStillRead(t *testing.T) {
	name := filepath.Join("testdata", "record-v1.json")
	if _, err := os.Stat(name); *writeGolden && os.IsNotExist(err) {
		data, err := state.MarshalRecord(golden())
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, json.Indent(&b, data, "", "  "))
		require.NoError(t, os.WriteFile(name, append(b.Bytes(), '\n'), 0o644))
	}
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	got, err := state.UnmarshalRecord(data)
	require.NoError(t, err)
	require.Empty(t, statetest.Differences(golden(), got))
	require.Equal(t, 1, state.RecordVersion, "a new version: keep this file and its test, and add another")
	written, err := state.MarshalRecord(golden())
	require.NoError(t, err)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, data))
	assert.Equal(t, compact.String(), string(written), "what is written has changed: raise RecordVersion")
}

func FuzzUnmarshalRecord(f *testing.F) {
	data, err := state.MarshalRecord(golden())
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"idempotency_key":"t#op#1","record_version":1,"status":"IN_PROGRESS","revision":0}`))
	f.Add([]byte(`{"record_version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := state.UnmarshalRecord(data)
		if err != nil {
			require.Nil(t, rec)
			require.True(t, errors.Is(err, state.ErrCorrupt) || errors.Is(err, state.ErrNewerRecord), "an error of another class: %v", err)
			return
		}
		written, err := state.MarshalRecord(rec)
		require.NoError(t, err, "what was read can be written")
		again, err := state.UnmarshalRecord(written)
		require.NoError(t, err)
		require.Empty(t, statetest.Differences(rec, again))
	})
}
