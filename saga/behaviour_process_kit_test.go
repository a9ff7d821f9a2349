package saga_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// What a process of the tests' own is told, beside what it is to do.
const (
	kindVariable   = "TSUZUKI_TEST_STORE"
	placeVariable  = "TSUZUKI_TEST_PLACE"
	ledgerVariable = "TSUZUKI_TEST_LEDGER"
	extraVariable  = "TSUZUKI_TEST_EXTRA"
)

// site is a store and a ledger that several processes share.
type site struct {
	kind   storeKind
	place  string
	ledger fileLedger
}

// eachSite runs f on every store that processes can share.
func eachSite(t *testing.T, f func(t *testing.T, s *site)) {
	t.Helper()
	shared := slices.DeleteFunc(slices.Clone(storeKinds), func(k storeKind) bool { return k.place == nil })
	onEach(t, shared, func(t *testing.T, kind storeKind) {
		f(t, &site{kind, kind.place(t), fileLedger(filepath.Join(t.TempDir(), "ledger"))})
	})
}

// process starts this test binary to do what child is called, with extra to guide it.
func (s *site) process(ctx context.Context, child, extra string) (cmd *exec.Cmd, stdout *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+child, kindVariable+"="+s.kind.name, placeVariable+"="+s.place,
		ledgerVariable+"="+string(s.ledger), extraVariable+"="+extra)
	stdout = new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	cmd.WaitDelay = 10 * time.Second
	return cmd, stdout
}

// open opens the site's store in the test's own process.
func (s *site) open(t *testing.T) state.Store {
	t.Helper()
	store, closed, err := s.kind.elsewhere(t.Context(), s.place)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, closed()) })
	return store
}

// here is the site of a child process, and its store.
func here(ctx context.Context) (s *site, store state.Store, closed func() error, err error) {
	s = &site{place: os.Getenv(placeVariable), ledger: fileLedger(os.Getenv(ledgerVariable))}
	i := slices.IndexFunc(storeKinds, func(k storeKind) bool { return k.name == os.Getenv(kindVariable) })
	if i < 0 {
		return nil, nil, nil, fmt.Errorf("no store is called %q", os.Getenv(kindVariable))
	}
	s.kind = storeKinds[i]
	store, closed, err = s.kind.elsewhere(ctx, s.place)
	return s, store, closed, err
}

// inChild calls f with the site of a child process and its store, and prints what it returns. The result is the exit
// code.
func inChild(f func(ctx context.Context, s *site, store state.Store) (said any, err error)) int {
	ctx := context.Background()
	s, store, closed, err := here(ctx)
	if err != nil {
		return complain(err)
	}
	said, err := f(ctx, s, store)
	if err = errors.Join(err, closed()); err != nil {
		return complain(err)
	}
	return answer(said)
}

// fileLedger is a participant in a file: a line for each call, "step key". It honours keys like participant does, among
// processes that call it one after the other.
type fileLedger string

func (l fileLedger) do(step, key string) (voucher, error) {
	var known []string
	for _, line := range l.lines() {
		if k := line[strings.IndexByte(line, ' ')+1:]; !slices.Contains(known, k) {
			known = append(known, k)
		}
	}
	i := slices.Index(known, key)
	if i < 0 {
		i = len(known)
	}
	f, err := os.OpenFile(string(l), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return voucher{}, err
	}
	_, err = f.WriteString(step + " " + key + "\n")
	return voucher{fmt.Sprintf("%s-%d", step, i+1)}, errors.Join(err, f.Close())
}

// lines are the calls so far.
func (l fileLedger) lines() []string {
	b, err := os.ReadFile(string(l))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// answer prints what a child has to say.
func answer(v any) int {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		return complain(err)
	}
	return 0
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// childSaid is what a child has said.
func childSaid[T any](t *testing.T, stdout *bytes.Buffer) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &v), stdout.String())
	return v
}
