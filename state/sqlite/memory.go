package sqlite

import "sync"

// memory is what this process knows of the runs that it is at work on, so that a write needs neither to read the record nor
// to look its row up. It is right only as long as the stored owner and revision are those that it knows, which is what a
// write's fence checks.
type memory struct {
	mu   sync.Mutex
	runs map[string]known
	most int
}

// known is what is known of a run at one revision.
type known struct {
	id       int64
	owner    string
	revision int64
	size     int // its Size, or more
	steps    int
	plan     []string // shared and never changed
	retained bool
}

// maxKnown is how many runs are kept in mind.
const maxKnown = 8192

func newMemory(oblivious bool) *memory {
	m := &memory{runs: map[string]known{}, most: maxKnown}
	if oblivious {
		m.most = 0
	}
	return m
}

// at is what is known of the run at that owner and revision.
func (m *memory) at(key, owner string, revision int64) (known, bool) {
	m.mu.Lock()
	k, ok := m.runs[key]
	m.mu.Unlock()
	return k, ok && k.owner == owner && k.revision == revision
}

// keep notes what a run is after a write of this process. Runs that are laid down are forgotten: whoever takes them up
// reads them.
func (m *memory) keep(key string, k known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.owner == "" || m.most == 0 {
		delete(m.runs, key)
		return
	}
	if _, ok := m.runs[key]; !ok && len(m.runs) >= m.most {
		m.forgetSome()
	}
	m.runs[key] = k
}

// forgetSome makes room: an eighth of all, whichever they are.
func (m *memory) forgetSome() {
	n := max(m.most/8, 1)
	for key := range m.runs {
		delete(m.runs, key)
		if n--; n == 0 {
			return
		}
	}
}

func (m *memory) forget(key string) {
	m.mu.Lock()
	delete(m.runs, key)
	m.mu.Unlock()
}
