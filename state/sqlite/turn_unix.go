//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// fileTurn is the turn as an advisory lock on a side file, which is never removed: another process may have it open.
//
// A blocking flock is woken the moment the other process is done, but can't be told to give up, so it is waited for on a
// goroutine of its own.
type fileTurn struct {
	file    *os.File
	timeout time.Duration

	once   sync.Once
	want   chan struct{} // to the waiter: block until the lock is there
	got    chan bool     // from the waiter: whether it is
	gone   chan struct{} // closed when the waiter has ended
	mu     sync.Mutex
	wanted bool // whether somebody still waits for what the waiter is about to get
	busy   bool // whether the waiter is blocked for somebody who has given up
}

func openTurn(path string, timeout time.Duration) turn {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil { // as when another user has made it: to lock it, reading is enough
		file, err = os.Open(path)
	}
	if err != nil {
		return noTurn{}
	}
	return &fileTurn{file: file, timeout: timeout, want: make(chan struct{}), got: make(chan bool, 1), gone: make(chan struct{})}
}

func (t *fileTurn) try() (held, free bool) {
	err := t.flock(syscall.LOCK_EX | syscall.LOCK_NB)
	return err == nil, !errors.Is(err, syscall.EWOULDBLOCK)
}

func (t *fileTurn) acquire(giveUp <-chan struct{}) bool {
	if held, free := t.try(); free {
		return held
	}
	t.mu.Lock()
	if t.busy || t.timeout <= 0 {
		// It was waited for in vain and is still not to be had, as when a process was stopped in the middle of its turn.
		t.mu.Unlock()
		return false
	}
	t.wanted = true
	t.mu.Unlock()
	t.once.Do(func() { go t.waiter() })
	t.want <- struct{}{}
	timer := time.NewTimer(t.timeout)
	defer timer.Stop()
	select {
	case ok := <-t.got:
		return ok
	case <-timer.C:
	case <-giveUp:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case ok := <-t.got:
		return ok
	default:
		t.wanted, t.busy = false, true
		return false
	}
}

// waiter blocks for the lock on behalf of acquire, and lets go of it at once when that has given up.
func (t *fileTurn) waiter() {
	defer close(t.gone)
	for range t.want {
		err := t.flock(syscall.LOCK_EX)
		t.mu.Lock()
		if t.wanted {
			t.wanted = false
			t.got <- err == nil
		} else if err == nil {
			_ = t.flock(syscall.LOCK_UN)
		}
		t.busy = false
		t.mu.Unlock()
	}
	_ = t.file.Close()
}

func (t *fileTurn) release() { _ = t.flock(syscall.LOCK_UN) }

// close lets the waiter go. One that is blocked goes, and closes the file, when the process that holds the lock lets go
// of it.
func (t *fileTurn) close() {
	idle := false
	t.once.Do(func() { idle = true })
	if idle {
		_ = t.file.Close()
		return
	}
	close(t.want)
}

func (t *fileTurn) flock(how int) error {
	for {
		if err := syscall.Flock(int(t.file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
