package steps_test

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/drive"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// forward and backward are the keys of a step and of its compensation.
const (
	forward  = steps.DerivedKey("tenant-a#create_order#order-001/charge_card")
	backward = steps.DerivedKey("tenant-a#create_order#order-001/charge_card/compensate")
)

// Keys outlive deployments, so these vectors never change. docs/derived-keys.md publishes them.
func TestDerivedKeysNeverChange(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		key                    steps.DerivedKey
		is, hashed16, hashed52 string
		uuid                   string
	}{
		{forward, "tenant-a#create_order#order-001/charge_card", "nssaggtquetqksgi", "nssaggtquetqksgi2tezamwhbvx3jyzwtbvwsfregi7hlxauoeaa", "6ca4031a-70a1-8705-88c8-d4c99032c70d"},
		{backward, "tenant-a#create_order#order-001/charge_card/compensate", "5rbpht34mc7kltdi", "5rbpht34mc7kltdilneg7nsrxwl2j3p4bodzxbn4pingszqwirna", "ec42f3cf-7c60-8ea5-8c68-5b486fb651bd"},
		{forward.Sub("fee"), "tenant-a#create_order#order-001/charge_card/fee", "3sdb6od3v6jdpljw", "3sdb6od3v6jdpljw5cf2w4khu746oiq74rlstaunqceiulbjn4oa", "dc861f38-7baf-8237-ad36-e88bab7147a7"},
		{"東京#create_order#注文-1/charge_card", "東京#create_order#注文-1/charge_card", "wlxmvu5a4mashjkp", "wlxmvu5a4mashjkptjryth37fotrtum553iin754vqxpktvfjfoq", "b2eecad3-a0e3-8123-a54f-9a63899f7f2b"},
	} {
		require.Equal(t, v.is, v.key.String())
		require.Equal(t, v.hashed16, v.key.Hashed(16))
		require.Equal(t, v.hashed52, v.key.Hashed(52))
		require.Equal(t, v.uuid, v.key.UUID())
	}
}

// The same from the definition of SHA-256, base32 and RFC 9562, written down a second time.
func TestShortFormsAreWhatTheySay(t *testing.T) {
	t.Parallel()
	for i := range 200 {
		k := steps.DerivedKey(fmt.Sprintf("t#op#%d/step", i))
		sum := sha256.Sum256([]byte(k))
		long := strings.ToLower(strings.TrimRight(base32.StdEncoding.EncodeToString(sum[:]), "="))
		require.Len(t, long, 52)
		for n := -3; n <= 60; n++ {
			require.Equal(t, long[:min(max(n, 16), 52)], k.Hashed(n), "n is clamped to 16 to 52")
		}
		u, err := uuid.Parse(k.UUID())
		require.NoError(t, err)
		require.Equal(t, uuid.Version(8), u.Version())
		require.Equal(t, uuid.RFC4122, u.Variant())
		require.Equal(t, strings.ToLower(k.UUID()), k.UUID())
		sum[6], sum[8] = 0x80|sum[6]&0x0f, 0x80|sum[8]&0x3f
		require.Equal(t, hex.EncodeToString(sum[:16]), strings.ReplaceAll(k.UUID(), "-", ""))
	}
}

func TestPartsOfASubAreEscaped(t *testing.T) {
	t.Parallel()
	for part, want := range map[string]string{
		"fee": "/fee", "": "/", "a/b": "/a%2Fb", "50%": "/50%25", "#": "/%23", "a\nb": "/a%0Ab", "注文": "/注文", "\x85": "/%85",
		"compensate": "/%63ompensate", "Compensate": "/Compensate", "compensate2": "/compensate2", "%63ompensate": "/%2563ompensate",
	} {
		require.Equal(t, string(forward)+want, string(forward.Sub(part)), "%q", part)
	}
	require.Equal(t, string(backward)+"/compensate", string(backward.Sub("compensate")), "below a compensation nothing collides")
	require.Equal(t, string(forward)+"/a/compensate", string(forward.Sub("a").Sub("compensate")))
}

// Two different calls never carry the same key: over all ways to name a run, a step, and parts below it.
func TestDifferentCallsHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	words := []string{"", "a", "b", "compensate", "%63ompensate", "a/b", "a#b", "/", "#", "%", "0", "a/compensate", "\x01", "é"}
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func() string { return words[rng.IntN(len(words))] }
	stepNames := []string{"a", "b", "compensate", "a.b"}
	seen := map[steps.DerivedKey]string{}
	for range 200_000 {
		k := state.Key{Tenant: pick(), Operation: stepNames[rng.IntN(len(stepNames))], ID: "x" + pick()}
		run, err := k.Encode()
		require.NoError(t, err)
		call := drive.Call{RunKey: run, Step: stepNames[rng.IntN(len(stepNames))]}
		if rng.IntN(2) == 0 {
			call.Phase = drive.Undo
		}
		key := steps.DerivedKey(call.DerivedKey())
		name := fmt.Sprintf("%q %q %q %s %s", k.Tenant, k.Operation, k.ID, call.Step, call.Phase)
		for range rng.IntN(3) {
			part := pick()
			key = key.Sub(part)
			name += fmt.Sprintf(" %q", part)
		}
		if other, taken := seen[key]; taken {
			require.Equal(t, other, name, "both have the key %s", key)
		}
		seen[key] = name
	}
	require.Greater(t, len(seen), 10_000)
}
