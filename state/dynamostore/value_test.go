package dynamostore

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/state"
)

var began = time.Date(2026, 5, 4, 3, 2, 1, 7e6, time.UTC)

func after(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

func TestStepValuesAreReadableByEye(t *testing.T) {
	failure := &state.Failure{Step: "charge", Code: "declined", Message: "no <money>|", At: after(900)}
	for want, c := range map[string]struct {
		step   state.StepRecord
		base   base
		output where
	}{
		`P`:                           {state.StepRecord{Status: state.StepPending}, baseOf(began), where{}},
		`D1|12+340|{"charge":"ch_1"}`: {state.StepRecord{Status: state.StepDone, Attempts: 1, StartedAt: after(12), EndedAt: after(352), Output: []byte(`{"charge":"ch_1"}`)}, baseOf(began), where{}},
		`D1|12+340|@w1`:               {state.StepRecord{Status: state.StepDone, Attempts: 1, StartedAt: after(12), EndedAt: after(352)}, baseOf(began), where{true, "w1"}},
		`D1|@1777863721019+340|null`:  {state.StepRecord{Status: state.StepDone, Attempts: 1, StartedAt: after(12), EndedAt: after(352), Output: []byte(`null`)}, base{}, where{}},
		`K|+5`:                        {state.StepRecord{Status: state.StepSkipped, EndedAt: after(5)}, baseOf(began), where{}},
		`S|7`:                         {state.StepRecord{Status: state.StepStarted, StartedAt: after(7)}, baseOf(began), where{}},
		`P2?|-3|!{"error":{"step":"charge","code":"declined","message":"no <money>|","at":1777863721907}}`:              {state.StepRecord{Status: state.StepPending, Attempts: 2, Unknown: true, StartedAt: after(-3), Error: failure}, baseOf(began), where{}},
		`C1||!{"undo":2,"undo_error":{"step":"charge","code":"declined","message":"no <money>|","at":1777863721907}}|7`: {state.StepRecord{Status: state.StepCompensating, Attempts: 1, UndoAttempts: 2, UndoError: failure, Output: []byte(`7`)}, baseOf(began), where{}},
		`U1|1+1`: {state.StepRecord{Status: state.StepCompensated, Attempts: 1, StartedAt: after(1), EndedAt: after(2)}, baseOf(began), where{}},
	} {
		got, err := encodeStep(&c.step, c.base, false, c.output)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		step, named, output, err := decodeStep(got, c.base)
		require.NoError(t, err, got)
		assert.False(t, named)
		assert.Equal(t, c.output, output)
		assert.Equal(t, c.step, step)
	}
}

func TestStepValuesCarryTheNameWhereThePlanDoesNot(t *testing.T) {
	for _, name := range []string{"", "step|one", `"`} {
		step := state.StepRecord{Name: name, Status: state.StepDone, Output: []byte(`{}`)}
		v, err := encodeStep(&step, base{}, true, where{})
		require.NoError(t, err)
		got, named, _, err := decodeStep(v, base{})
		require.NoError(t, err)
		assert.True(t, named)
		assert.Equal(t, step, got)
	}
}

func TestAnOutputThatCouldBeTakenForSomethingElseGoesIntoASibling(t *testing.T) {
	for raw, fits := range map[string]bool{
		"": true, "null": true, `"@"`: true, `{"a|b":"|"}`: true, "@x": false, "!x": false, "\"\xff\"": false,
		strings.Repeat("1", inlineLimit): true, strings.Repeat("1", inlineLimit+1): false,
	} {
		assert.Equal(t, fits, fitsStep([]byte(raw)), "%.20q", raw)
	}
}

func TestStepValuesThatMakeNoSenseAreCorrupt(t *testing.T) {
	for _, v := range []string{"", "X", "?", "D1x", "D|12x", "D|+", "D|12+y", "D||!{", "D||!7|x", "D|@"} {
		_, _, _, err := decodeStep(v, baseOf(began))
		require.ErrorIs(t, err, state.ErrCorrupt, v)
	}
	_, _, _, err := decodeStep("D|12", base{})
	require.ErrorIs(t, err, state.ErrCorrupt, "an offset from nowhere")
	_, err = encodeStep(&state.StepRecord{Status: "DANCING"}, base{}, false, where{})
	require.ErrorIs(t, err, state.ErrTransition)
}

func TestPlansComeBack(t *testing.T) {
	for want, c := range map[string]struct {
		plan  []string
		pivot string
	}{
		"":                       {nil, ""},
		"reserve,charge!,notify": {[]string{"reserve", "charge", "notify"}, "charge"},
		"a%2Cb,100%25,wow%21!":   {[]string{"a,b", "100%", "wow!"}, "wow!"},
		"%":                      {[]string{""}, ""},
		"%,続き":                   {[]string{"", "続き"}, ""},
	} {
		assert.Equal(t, want, encodePlan(c.plan, c.pivot))
		plan, pivot, err := decodePlan(want)
		require.NoError(t, err)
		assert.Equal(t, c.plan, plan)
		assert.Equal(t, c.pivot, pivot)
	}
	for _, bad := range []string{"%2", "a%zz", "a,%%"} {
		_, _, err := decodePlan(bad)
		require.ErrorIs(t, err, state.ErrCorrupt, bad)
	}
}

func TestMessageValues(t *testing.T) {
	const run = "tenant#order#1"
	m := outbox.Message{ID: run + "/notify/0", Topic: "order-created", Key: "ORD-1", Type: "order.created", Body: []byte(`{"a|b":1}`), ContentType: "application/json", Time: after(15)}
	v := encodeMessage(&m, sequence{7, 0}, baseOf(began), "", where{})
	assert.Equal(t, `7.0|15|order-created|ORD-1|order.created|||||{"a|b":1}`, v)
	assert.Equal(t, "/notify/0", messageKey(run, m.ID))

	for name, m := range map[string]outbox.Message{
		"plain": m,
		"full": {ID: run + "/a%2Fb/compensate/3", Topic: "a|b", Key: "100%", Type: "|", Body: []byte("|||"), ContentType: "text/plain; charset=utf-8",
			Attributes: map[string]string{"a": "1", "b=&": "x|y", "": "z"}, Time: after(-1)},
		"bare":            {ID: "m", Topic: "t", Body: []byte{}},
		"minus":           {ID: run, ContentType: "-", Body: []byte("b")},
		"another run's":   {ID: run + "0/notify/0", Body: []byte("b")},
		"hardly an ID":    {ID: "", Body: []byte("b")},
		"ID like a claim": {ID: claimToken, Body: []byte("b")},
	} {
		t.Run(name, func(t *testing.T) {
			for _, parked := range []string{"", "no | such %7C queue"} {
				q := sequence{12, 3}
				got, err := decodeMessage(run, messageKey(run, m.ID), encodeMessage(&m, q, baseOf(began), parked, where{}), baseOf(began))
				require.NoError(t, err)
				assert.Equal(t, state.OutboxMessage{Message: m, Parked: parked}, got.OutboxMessage)
				assert.Equal(t, q, got.seq)
				assert.Equal(t, where{}, got.body)
			}
		})
	}
	v = encodeMessage(&m, sequence{7, 0}, base{}, "", where{true, "w|1"})
	got, err := decodeMessage(run, "/notify/0", v, base{})
	require.NoError(t, err)
	assert.Equal(t, where{true, "w|1"}, got.body)
	assert.Nil(t, got.Body)
	for _, bad := range []string{"", "1.0|||||||||", "x|||||||||", "1.x|||||||||", "1.0|zz||||||||", "1.0||%||||||||", "1.0|||||||=%zz|||", "1.0||||||%25zz|||"} {
		if _, err := decodeMessage(run, "/a/0", bad, base{}); bad != "1.0|||||||||" {
			require.ErrorIs(t, err, state.ErrCorrupt, bad)
		} else {
			require.NoError(t, err)
		}
	}
	_, err = decodeMessage(run, "something", "1.0|||||||||", base{})
	require.ErrorIs(t, err, state.ErrCorrupt)
}

func TestMessagesKeepTheirOrder(t *testing.T) {
	assert.Negative(t, sequence{9, 0}.compare(sequence{10, 0}))
	assert.Negative(t, sequence{9, 2}.compare(sequence{9, 10}))
	assert.Positive(t, sequence{1 << 40, 0}.compare(sequence{1, 5}))
	assert.Zero(t, sequence{3, 3}.compare(sequence{3, 3}))
}

func TestItemSizesGoByTheDocumentedRules(t *testing.T) {
	for _, c := range []struct {
		v    types.AttributeValue
		want int
	}{
		{str(""), 0}, {str("続き"), 6}, {&types.AttributeValueMemberB{Value: []byte{1, 2}}, 2},
		{num(0), 1}, {num(7), 2}, {num(42), 2}, {num(100), 2}, {num(1234567890123), 8}, {num(-5), 3}, {numOf("1.25"), 3},
		{list(nil), 3}, {list([]types.AttributeValue{str("ab"), str("c")}), 3 + 2 + 3},
		{mapOf(item{}), 3}, {mapOf(item{"k": str("v")}), 3 + 1 + 2},
		{&types.AttributeValueMemberBOOL{Value: true}, 1},
	} {
		assert.Equal(t, c.want, valueSize(c.v), "%#v", c.v)
	}
	assert.Equal(t, 3+6, itemSize(item{"key": str("続き")}))
}

// Whatever an escape's input, it comes back, and none of the special characters is left.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "plain", "a,b!c%d|", "%2C", "続き\x00\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var b strings.Builder
		escapeTo(&b, s, ",!|")
		assert.NotContains(t, b.String(), ",")
		assert.NotContains(t, b.String(), "|")
		got, err := unescape(b.String())
		require.NoError(t, err)
		assert.Equal(t, s, got)
	})
}

// What is not a step's value is told so, and what is one comes back as itself.
func FuzzDecodeStep(f *testing.F) {
	for _, s := range []string{`P`, `D1|12+340|{"charge":"ch_1"}`, `P2?|-3|!{"error":{"step":"s"}}`, `K|+5`, `C||!{"undo":2}|7`, `D|@5+1|@w`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		step, named, output, err := decodeStep(v, baseOf(began))
		if err != nil || !fitsStep(step.Output) { // nothing of that kind is ever written
			return
		}
		again, err := encodeStep(&step, baseOf(began), named, output)
		require.NoError(t, err)
		step2, named2, output2, err := decodeStep(again, baseOf(began))
		require.NoError(t, err)
		assert.Equal(t, step, step2)
		assert.Equal(t, named, named2)
		assert.Equal(t, output, output2)
	})
}

func TestTheMemoKeepsTheLatestAndForgetsTheOldest(t *testing.T) {
	var m memo
	keys := make([]string, 3*memoSize)
	for i := range keys {
		keys[i] = strings.Repeat("k", 1+rand.IntN(5)) + string(rune('a'+i%26)) + after(i).String()
		m.put(keys[i], hint{owner: "o"})
	}
	for _, k := range keys[len(keys)-memoSize:] {
		_, ok := m.of(k, "o")
		assert.True(t, ok)
	}
	_, ok := m.get(keys[0])
	assert.False(t, ok)
	last := keys[len(keys)-1]
	_, ok = m.of(last, "another")
	assert.False(t, ok, "another owner's changes can't go by it")
	m.put(last, hint{owner: ""})
	_, ok = m.of(last, "")
	assert.False(t, ok, "nobody is an owner that many runs have")
	m.drop(last)
	_, ok = m.get(last)
	assert.False(t, ok)
}
