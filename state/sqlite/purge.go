package sqlite

import "time"

const (
	// purgeEvery is how often the committer looks for expired records, on the way of a write.
	purgeEvery = time.Second
	// purgeMost is how many it removes at once. While there are more, each transaction removes as many.
	purgeMost = 64

	selectExpired = `SELECT id FROM run_record WHERE expiration IS NOT NULL AND expiration <= ?1 ORDER BY expiration LIMIT ?2`
)

// purger is the job that removes expired records. It goes along with the jobs of others, so that it costs no commit.
type purger struct {
	next   time.Time
	behind bool
}

func (p *purger) due() bool { return p.behind || !time.Now().Before(p.next) }

func (p *purger) job() *job {
	p.next = time.Now().Add(purgeEvery)
	return &job{task: p, done: make(chan error, 1)}
}

func (p *purger) apply(tx *tx) (answer, err error) {
	p.behind = false
	s, err := tx.c.Prepare(selectExpired)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, tx.now.Unix())
	s.BindInt64(2, purgeMost)
	var ids []int64
	for {
		found, err := s.Step()
		if err != nil || !found {
			if err := done(s, err); err != nil {
				return nil, err
			}
			break
		}
		ids = append(ids, s.ColumnInt64(0))
	}
	for _, id := range ids {
		if err := tx.remove(id); err != nil {
			return nil, err
		}
	}
	p.behind = len(ids) == purgeMost
	return nil, nil
}
