package memory

// Held is how many entries the store holds on to, for listing and for relays.
func Held(s *Store) (entries, queued int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.order), len(s.relay)
}
