package attrs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/internal/attrs"
)

func TestMake(t *testing.T) {
	got, err := attrs.Make(outbox.Encoded{
		Body: []byte("grüße\t\n"), ContentType: "text/plain", Attributes: map[string]string{"z": "値", "a": "b", "none": "", "body-encoding": "mine"},
	})
	require.NoError(t, err)
	assert.Equal(t, attrs.Text{
		Body:       "grüße\t\n",
		Attributes: []attrs.Attribute{{"a", "b"}, {"content-type", "text/plain"}, {"z", "値"}},
		Size:       9 + (1 + 6 + 1) + (12 + 6 + 10) + (1 + 6 + 3),
	}, got)

	for _, body := range []string{"\xff\xfe", "a\x00b", "\ufffe"} {
		got, err = attrs.Make(outbox.Encoded{Body: []byte(body)})
		require.NoError(t, err)
		assert.Equal(t, []attrs.Attribute{{"body-encoding", "base64"}}, got.Attributes)
		assert.NotContains(t, got.Body, body)
	}
}

func TestMakeRefusesWhatTheServicesDoNotTake(t *testing.T) {
	_, err := attrs.Make(outbox.Encoded{})
	require.ErrorIs(t, err, outbox.ErrInvalidMessage)
	for _, name := range []string{"ключ", "a b", ".a", "a.", "a..b", "AWS.x", "amazon.x", "", strings.Repeat("a", 257)} {
		_, err := attrs.Make(outbox.Encoded{Body: []byte("x"), Attributes: map[string]string{name: "v"}})
		require.ErrorIs(t, err, outbox.ErrInvalidMessage, name)
	}
	_, err = attrs.Make(outbox.Encoded{Body: []byte("x"), Attributes: map[string]string{"a": "secret\x01"}})
	require.ErrorIs(t, err, outbox.ErrInvalidMessage)
	assert.NotContains(t, err.Error(), "secret")
	_, err = attrs.Make(outbox.Encoded{Body: []byte("x"), Attributes: map[string]string{"a.b_c-D9": "v", strings.Repeat("a", 256): "v"}})
	require.NoError(t, err)
}

func TestGroup(t *testing.T) {
	for _, key := range []string{"o-1", "acme#shop#1", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", strings.Repeat("k", 128)} {
		assert.Equal(t, key, attrs.Group(key))
	}
	seen := map[string]bool{}
	for _, key := range []string{"", "a b", "größe", strings.Repeat("k", 129), "tab\t", "h:x"} {
		g := attrs.Group(key)
		assert.Len(t, g, 54)
		assert.Regexp(t, `^h:[a-z2-7]{52}$`, g)
		assert.False(t, seen[g])
		seen[g] = true
	}
	assert.Regexp(t, `^[a-z2-7]{52}$`, attrs.Deduplication("x/y/0"))
}
