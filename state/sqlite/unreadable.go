package sqlite

import (
	"errors"

	"github.com/tsuzuki-go/tsuzuki/state"
)

// unreadable are records that can't be read, met on the way.
type unreadable []keyError

type keyError struct {
	key string
	err error
}

// sift decodes rows and leaves out those that a newer version of the library has written, which are its business. A record
// that can't be read is an error, unless somebody is told of it.
func (u *unreadable) sift(rows []*row, told bool) (good []*row, err error) {
	for _, r := range rows {
		err := r.decode()
		switch {
		case err == nil:
			good = append(good, r)
		case errors.Is(err, state.ErrNewerRecord):
		case told:
			*u = append(*u, keyError{r.rec.Key, err})
		default:
			return nil, err
		}
	}
	return good, nil
}

func (u unreadable) tell(f func(key string, err error)) {
	for _, k := range u {
		f(k.key, k.err)
	}
}

// sift is the same for a read.
func (s *Store) sift(op string, rows []*row) ([]*row, error) {
	var u unreadable
	good, err := u.sift(rows, s.unreadable != nil)
	if err != nil {
		return nil, s.failed(op, "", err)
	}
	u.tell(s.unreadable)
	return good, nil
}
