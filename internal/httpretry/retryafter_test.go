package httpretry

import (
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want time.Duration
		ok   bool
	}{
		"zero":                        {"0", 0, true},
		"seconds":                     {"120", 2 * time.Minute, true},
		"leading zeros":               {"000000000000000000000000000007", 7 * time.Second, true},
		"space around":                {" \t30 ", 30 * time.Second, true},
		"just under the most":         {"86399", 86399 * time.Second, true},
		"the most":                    {"86400", Most, true},
		"over the most":               {"86401", Most, true},
		"over an int64 of ns":         {"9223372037", Most, true},
		"over an int64":               {"9223372036854775808", Most, true},
		"a thousand digits":           {strings.Repeat("9", 1000), Most, true},
		"IMF-fixdate":                 {"Sun, 01 Mar 2026 12:00:30 GMT", 30 * time.Second, true},
		"RFC 850 date":                {"Sunday, 01-Mar-26 12:01:00 GMT", time.Minute, true},
		"asctime date":                {"Sun Mar  1 12:02:00 2026", 2 * time.Minute, true},
		"a date gone by":              {"Sun, 01 Mar 2026 11:59:59 GMT", 0, true},
		"a date in the year 1":        {"Mon, 01 Jan 0001 00:00:00 GMT", 0, true},
		"a date in the year 9999":     {"Fri, 31 Dec 9999 23:59:59 GMT", Most, true},
		"empty":                       {"", 0, false},
		"only spaces":                 {"  ", 0, false},
		"negative":                    {"-1", 0, false},
		"plus sign":                   {"+1", 0, false},
		"fraction":                    {"1.5", 0, false},
		"exponent":                    {"1e3", 0, false},
		"hexadecimal":                 {"0x10", 0, false},
		"a unit":                      {"5s", 0, false},
		"digits of another script":    {"٣", 0, false},
		"two values":                  {"1, 2", 0, false},
		"space within":                {"1 2", 0, false},
		"a line break":                {"1\r\n", 0, false},
		"a date of another zone":      {"Sun, 01 Mar 2026 12:00:30 +0100", 0, false},
		"an RFC 3339 date":            {"2026-03-01T12:00:30Z", 0, false},
		"a day that there is not":     {"Sun, 31 Feb 2026 12:00:30 GMT", 0, false},
		"words":                       {"soon", 0, false},
		"bytes that are not any text": {"\xff\xfe", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Parse(tc.in, now)
			assert.Equal(t, tc.ok, ok)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestFromHeader(t *testing.T) {
	for name, tc := range map[string]struct {
		header http.Header
		want   time.Duration
		ok     bool
	}{
		"none":                  {http.Header{}, 0, false},
		"seconds":               {http.Header{"Retry-After": {"5"}}, 5 * time.Second, true},
		"the longest of two":    {http.Header{"Retry-After": {"5", "9", "3"}}, 9 * time.Second, true},
		"garbage is passed by":  {http.Header{"Retry-After": {"soon", "3"}}, 3 * time.Second, true},
		"garbage alone":         {http.Header{"Retry-After": {"soon"}}, 0, false},
		"a date, no Date":       {http.Header{"Retry-After": {"Sun, 01 Mar 2026 12:00:30 GMT"}}, 30 * time.Second, true},
		"a server an hour late": {http.Header{"Retry-After": {"Sun, 01 Mar 2026 11:00:30 GMT"}, "Date": {"Sun, 01 Mar 2026 11:00:00 GMT"}}, 30 * time.Second, true},
		"a Date that is none":   {http.Header{"Retry-After": {"Sun, 01 Mar 2026 12:00:30 GMT"}, "Date": {"today"}}, 30 * time.Second, true},
		"seconds and a Date":    {http.Header{"Retry-After": {"5"}, "Date": {"Sun, 01 Mar 2026 11:00:00 GMT"}}, 5 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := FromHeader(tc.header, now)
			assert.Equal(t, tc.ok, ok)
			assert.Equal(t, tc.want, got)
		})
	}
}

// FuzzParse holds the parser to what is promised whatever a server sends: a wait within bounds, the exact number for
// digits, and nothing believed that is neither digits nor a date.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "1.5", "99999999999999999999", " 7\t", "Sun, 01 Mar 2026 12:00:30 GMT",
		"Sunday, 01-Mar-26 12:01:00 GMT", "Sun Mar  1 12:02:00 2026", "Fri, 31 Dec 9999 23:59:59 GMT", "٣", "\x00"} {
		f.Add(s, now.Unix())
	}
	f.Fuzz(func(t *testing.T, s string, unix int64) {
		at := time.Unix(unix, 0)
		d, ok := Parse(s, at)
		if d < 0 || d > Most {
			t.Fatalf("Parse(%q) = %v, out of bounds", s, d)
		}
		trimmed := strings.Trim(s, " \t")
		if !ok {
			if d != 0 {
				t.Fatalf("Parse(%q) = %v and false", s, d)
			}
			if trimmed != "" && strings.Trim(trimmed, "0123456789") == "" {
				t.Fatalf("Parse(%q): digits refused", s)
			}
			return
		}
		if strings.Trim(trimmed, "0123456789") != "" {
			if _, err := http.ParseTime(trimmed); err != nil {
				t.Fatalf("Parse(%q): believed, though it is neither digits nor a date", s)
			}
			return
		}
		n, _ := new(big.Int).SetString(trimmed, 10)
		want := Most
		if n.Cmp(big.NewInt(int64(Most/time.Second))) < 0 {
			want = time.Duration(n.Int64()) * time.Second
		}
		if d != want {
			t.Fatalf("Parse(%q) = %v, want %v", s, d, want)
		}
	})
}
