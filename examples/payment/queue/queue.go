// Package queue is a queue in a file, a line of JSON per message, for a program that has no broker. Like one it takes what
// it is given: a message that is sent twice stands there twice, with the same ID.
package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/tsuzuki-go/tsuzuki/outbox"
)

// Entry is one line: a message that was sent.
type Entry struct {
	ID    string          `json:"id"`
	Topic string          `json:"topic"`
	Key   string          `json:"key"`
	Type  string          `json:"type,omitempty"`
	Body  json.RawMessage `json:"body"`
}

// File is a queue. Its methods may be called concurrently, and several processes may send to one file.
type File struct {
	path string
	mu   sync.Mutex
}

var _ outbox.Publisher = (*File)(nil)

// Open returns the queue in the file at path, which is made by its first message.
func Open(path string) *File { return &File{path: path} }

var errNotJSON = errors.New("queue: the body is not JSON")

// Publish appends the messages in one write, and waits until they are on the disk. A message whose body is no JSON is
// refused. An error is about the file, so about every message.
func (f *File) Publish(_ context.Context, msgs []outbox.Message) ([]outbox.Result, error) {
	results := make([]outbox.Result, len(msgs))
	var lines []byte
	refused := map[string]bool{} // ordering keys, behind whose refused message nothing may be sent
	for i, m := range msgs {
		results[i].ID = m.ID
		lane := m.Topic + "\x00" + m.Key
		line, err := json.Marshal(Entry{m.ID, m.Topic, m.Key, m.Type, m.Bytes()})
		switch {
		case refused[lane]:
			results[i].Err = outbox.ErrHeldBack
		case err != nil: // not wrapped: it quotes the body
			results[i].Err, results[i].Refused, refused[lane] = errNotJSON, true, true
		default:
			lines = append(append(lines, line...), '\n')
		}
	}
	return results, f.add(lines)
}

// Entries are all messages, the oldest first. A file that is not there has none.
func (f *File) Entries() ([]Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
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

func (f *File) add(lines []byte) (err error) {
	if len(lines) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(lines); err != nil {
		return err
	}
	return file.Sync()
}
