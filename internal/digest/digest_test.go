package digest_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/tsuzuki-go/tsuzuki/internal/digest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The vectors were made by another program. They are a promise: participants remember keys that were made from them.
var vectors = []struct{ key, short, uuid string }{
	{"", "4oymiquy7qobjgx36tejs35zeqt24qpemsnzgtfeswmrw6csxbkq", "e3b0c442-98fc-8c14-9afb-f4c8996fb924"},
	{"tenant-a#create_order#order-001/charge_card", "nssaggtquetqksgi2tezamwhbvx3jyzwtbvwsfregi7hlxauoeaa", "6ca4031a-70a1-8705-88c8-d4c99032c70d"},
	{"t#op#注文/charge/compensate/a%2Fb", "f5fbhvegqmtncevrc7wbtfx65kfsxt36u2yerhsfuzpzomcrwnea", "2f4a13d4-8683-86d1-92b1-17ec1996feea"},
}

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors {
		assert.Equal(t, v.short, digest.Short(v.key, digest.Most), v.key)
		assert.Equal(t, v.uuid, digest.UUID(v.key), v.key)
	}
}

func TestLengths(t *testing.T) {
	t.Parallel()
	whole := vectors[1].short
	for n, want := range map[int]int{-1: 16, 0: 16, 15: 16, 16: 16, 17: 17, 32: 32, 51: 51, 52: 52, 53: 52, 1 << 40: 52} {
		got := digest.Short(vectors[1].key, n)
		assert.Equal(t, whole[:want], got, "a shorter one is the beginning of a longer one")
	}
	assert.Len(t, whole, digest.Most)
}

func FuzzShape(f *testing.F) {
	f.Add("a", "b")
	short := regexp.MustCompile(`^[a-z2-7]{52}$`)
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	f.Fuzz(func(t *testing.T, a, b string) {
		assert.Regexp(t, short, digest.Short(a, digest.Most))
		assert.Regexp(t, uuid, digest.UUID(a))
		assert.Equal(t, a == b, digest.Short(a, digest.Least) == digest.Short(b, digest.Least))
		assert.Equal(t, a == b, digest.UUID(a) == digest.UUID(b))
	})
}
