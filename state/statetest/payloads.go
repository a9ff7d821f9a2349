package statetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// hostile are payloads that come back byte by byte, or are broken by a store that takes them apart.
var hostile = []string{
	`null`, `true`, `""`, `0`, `{}`, `[]`, `-0`, `1.0`, `1e0`, `1E+2`, `1e400`, `-1e-400`,
	`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`, `18446744073709551615`, `9007199254740993`,
	`12345678901234567890123456789012345678`, `0.12345678901234567890123456789012345678`, `1.2345678901234567890123456789012345678e-120`,
	`"\u0000"`, `"a\u0000b"`, `"\u001f\u007f"`, `"<>&'\u003c\u003e\u0026"`, `"😀 \ud83d\ude00 é é"`, `"\ud800"`, `"\"\\\/\b\f\n\r\t"`,
	`"` + "\u2028\u2029\u0085\u00a0\ufeff\ufffd\uffff" + `"`, `{"b":1,"a":2,"b":3}`, `{"":{"":[]}}`, ` { "a" : [ 1 , 2 ] } `, "[\n\t1,\r\n2\n]",
	`"'; DROP TABLE runs; --"`, `"%s %d %n {{.}} ${x} $1 :name ?1 @p"`, `"#attribute :value"`, `{"S":"x"}`, `{"NULL":true}`, `"=cmd()"`,
}

func init() {
	hostile = append(hostile, strings.Repeat("[", 500)+strings.Repeat("]", 500))
}

func testPayloads(s *subject) {
	for i, text := range hostile {
		rec := s.record(fmt.Sprint(i))
		rec.Input = json.RawMessage(text)
		rec = s.create(rec)
		ch := s.done(rec, i%3)
		ch.Steps[0].Output = json.RawMessage(text)
		ch.Response = json.RawMessage(text)
		ch.Messages = []outbox.Message{s.message(rec, 0)}
		ch.Messages[0].Body = []byte(text)
		s.commit(rec, ch)
		s.stored(rec, "payload "+text[:min(len(text), 60)])
	}
	s.part("texts", testTexts)
	s.part("null or nothing", func(s *subject) {
		rec := s.create(s.record("record"))
		for i, output := range []string{"null", "", `""`} {
			ch := s.done(rec, i)
			ch.Steps[0].Output = nil
			if output != "" {
				ch.Steps[0].Output = json.RawMessage(output)
			}
			s.commit(rec, ch)
		}
		got := s.get(rec.Key)
		s.equal(rec, got, "outputs")
		require.Equal(s, "null", string(got.Steps[0].Output), "a step without a result")
		require.Nil(s, got.Steps[1].Output, "a step whose result is not recorded")
		require.Nil(s, got.Response, "a run without a result yet")
	})
	s.part("bodies", func(s *subject) {
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		rec := s.create(s.record("record"))
		ch := s.done(rec, 0)
		for i, body := range [][]byte{every, {}, {0}, {0xff, 0xfe}, []byte("plain"), []byte(`{"a":1}`), []byte("\x1f\x8b\x08"), {0xef, 0xbb, 0xbf}} {
			m := s.message(rec, i)
			m.Body, m.ContentType = body, "application/octet-stream"
			ch.Messages = append(ch.Messages, m)
		}
		m := outbox.Message{ID: messageID(rec, 99), Topic: "only a topic", Body: []byte{}}
		ch.Messages = append(ch.Messages, m)
		s.commit(rec, ch)
		s.stored(rec, "binary bodies")
		batch := s.claim(1)[rec.Key]
		require.Len(s, batch.Messages, len(ch.Messages))
		var diff []string
		for i, got := range batch.Messages {
			diff = append(diff, Differences(ch.Messages[i], got)...)
		}
		require.Empty(s, diff, "binary bodies, claimed")
	})
}

// texts are what people and brokers may put into names, reasons and notes.
var texts = []string{
	"plain", "with space ", "ünï¢öðé 続き", "emoji 😀 👩‍👩‍👧", "quote\" and 'quote'", "back\\slash", "line\nfeed\ttab", "nul\x00byte", "del\x7f \u0085 \u2028",
	"percent %41 %s", "sharp # slash / colon :", "null", "true", "0", "<script>&amp;", "e\u0301 and \u00e9", "\ufeffbom", "\uffff", strings.Repeat("long ", 51),
}

// testTexts puts them into every field that a program outside fills.
func testTexts(s *subject) {
	for i, text := range texts {
		rec := s.record(fmt.Sprint(i))
		rec = s.create(rec)
		req := state.CancelRequest{Reason: text, Actor: text, At: rec.CreatedAt}
		require.NoError(s, s.store.RequestCancel(s.Context(), rec.Key, req))
		rec.Cancel = &req
		failure := &state.Failure{Step: "first", Code: text, Message: text, NotUndone: []string{"second", "first"}, At: now()}
		step := rec.Steps[0]
		step.Error, step.UndoError = failure, failure
		ch := s.follow(rec)
		ch.Failure, ch.Status, ch.EndsAs = failure, state.StatusCompensating, state.StatusFailed
		ch.Steps = []state.StepChange{{Index: 0, StepRecord: step}}
		ch.Audit = []state.AuditEntry{{At: now(), Actor: text, Verb: "retry", Step: text, Note: text}}
		m := s.message(rec, 0)
		m.Topic, m.Key, m.Type, m.ContentType, m.Body, m.Attributes = text, text, text, text, []byte(text), map[string]string{text: text, "empty": ""}
		ch.Messages = []outbox.Message{m}
		s.commit(rec, ch)
		s.stored(rec, fmt.Sprintf("text %q", text))
	}
}

// testKeys: keys that a careless store confuses, cuts or misreads.
func testKeys(s *subject) {
	var keys []string
	for _, k := range []state.Key{
		{Tenant: "t", Operation: "op", ID: "a"}, {Tenant: "t", Operation: "op", ID: "a "}, {Tenant: "t", Operation: "op", ID: " a"}, {Tenant: "t", Operation: "op", ID: "A"},
		{Tenant: "t", Operation: "op", ID: "aa"}, {Tenant: "t", Operation: "op", ID: "a/b"}, {Tenant: "t", Operation: "op", ID: "a#b"}, {Tenant: "t#op", Operation: "a", ID: "b"},
		{Tenant: "t", Operation: "op#a", ID: "b"}, {Tenant: "", Operation: "op", ID: "a"}, {Tenant: "", Operation: "", ID: "a"}, {Tenant: "", Operation: "", ID: "#"},
		{Tenant: "%", Operation: "%%", ID: "%25"}, {Tenant: "t", Operation: "op", ID: "%"}, {Tenant: "t", Operation: "op", ID: "_"}, {Tenant: "t", Operation: "op", ID: "a_"},
		{Tenant: "t", Operation: "op", ID: "a%"}, {Tenant: "t", Operation: "op", ID: "*"}, {Tenant: "t", Operation: "op", ID: "a\x00"}, {Tenant: "t", Operation: "op", ID: "a\x00b"},
		{Tenant: "t", Operation: "op", ID: "é"}, {Tenant: "t", Operation: "op", ID: "e\u0301"}, {Tenant: "続", Operation: "き", ID: "注文😀"}, {Tenant: "t", Operation: "op", ID: "\uffff"},
		{Tenant: "t", Operation: "op", ID: "'; DROP TABLE runs; --"}, {Tenant: "t", Operation: "op", ID: "run"}, {Tenant: "t", Operation: "op", ID: "a\n"},
		{Tenant: "t", Operation: "op", ID: strings.Repeat("x", state.MaxKey-5)}, {Tenant: "t", Operation: "op", ID: strings.Repeat("x", state.MaxKey-6)},
		{Tenant: "t", Operation: "op", ID: strings.Repeat("/", (state.MaxKey-5)/3)}, {Tenant: strings.Repeat("é", 500), Operation: "op", ID: "a"},
	} {
		key, err := k.Encode()
		require.NoError(s, err)
		keys = append(keys, key)
	}
	want := map[string]*state.Record{}
	for i, key := range keys {
		rec := s.record(fmt.Sprint(i))
		rec.Key = key
		rec.Input = json.RawMessage(fmt.Sprintf(`{"i":%d}`, i))
		want[key] = s.create(rec)
	}
	for i, key := range keys {
		rec := want[key]
		ch := s.done(rec, i%3)
		ch.Messages = []outbox.Message{s.message(rec, i)}
		s.commit(rec, ch)
	}
	for i, key := range keys {
		s.stored(want[key], "each key has its own record")
		if i%2 == 0 {
			require.NoError(s, s.store.Delete(s.Context(), key))
			s.gone(key, "deleted")
			delete(want, key)
		}
	}
	for _, rec := range want {
		s.stored(rec, "deleting a key leaves those that look like it")
	}
	require.Equal(s, names(want), names(s.list(state.Query{Limit: 7})), "the keys in a listing")
	claimed := s.claim(len(want))
	require.Len(s, claimed, len(want))
	for key, batch := range claimed {
		require.NoError(s, s.store.Sent(s.Context(), batch, []string{batch.Messages[0].ID}))
		want[key].Outbox = state.Outbox{}
		s.stored(want[key], "sent")
	}
}
