// Package ledger is an append-only file of JSON lines with one entry per idempotency key. The services of the example
// keep their books in it, so that what they did outlives any process.
package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/steps"
)

// Entry is one line: something that was done, once, under a key.
type Entry struct {
	// Kind is what was done: "charge", "refund", "reserve", "release" ...
	Kind string `json:"kind"`
	// ID of what came of it.
	ID string `json:"id"`
	// What it is about, such as "tea-100"; may be empty.
	What string `json:"what,omitempty"`
	// Amount of money, pieces or points.
	Amount int64 `json:"amount"`
	// Key is the idempotency key of the call.
	Key string `json:"key"`
	// Of is the key of the entry that this one undoes; empty for one that undoes nothing.
	Of string `json:"of,omitempty"`
}

// File is a ledger file. Its methods may be called concurrently within one process; two processes must not write to one
// file at the same time.
type File struct {
	path string
	mu   sync.Mutex
}

// Open returns the ledger in the file at path, which is made by its first entry.
func Open(path string) *File { return &File{path: path} }

// Entries are all lines, the oldest first. A file that is not there has none.
func (f *File) Entries() ([]Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read()
}

// Once makes an entry, unless its key has one already, which is then returned with repeated set. entry is called to make
// it, and sees what is there; its error is returned as it is.
func (f *File) Once(key string, entry func(past []Entry) (Entry, error)) (made Entry, repeated bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	past, err := f.read()
	if err != nil {
		return Entry{}, false, err
	}
	if e, ok := Find(past, key); ok {
		return e, true, nil
	}
	made, err = entry(past)
	if err != nil {
		return Entry{}, false, err
	}
	made.Key = key
	return made, false, f.add(made)
}

// ID is an ID for what is made under a key: the same every time the example is run.
func ID(prefix, key string) string {
	return prefix + "_" + steps.DerivedKey(key).UUID()[:8]
}

// Find is the entry that was made under the key.
func Find(entries []Entry, key string) (Entry, bool) {
	for _, e := range entries {
		if e.Key == key {
			return e, true
		}
	}
	return Entry{}, false
}

// Undone is the entry by which the one of this key was undone, or, if that never was, its key closed.
func Undone(entries []Entry, key string) (Entry, bool) {
	for _, e := range entries {
		if e.Of == key {
			return e, true
		}
	}
	return Entry{}, false
}

func (f *File) read() ([]Entry, error) {
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", f.path, len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// add appends a line in one write and waits until it is on the disk: a service that has answered must not forget.
func (f *File) add(e Entry) (err error) {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(append(line, '\n')); err != nil {
		return err
	}
	return file.Sync()
}
