package killlab

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is a child of the lab. It ends when its standard input does.
type process struct {
	cmd   *exec.Cmd
	in    io.Closer
	said  chan string // its first line
	ended chan error
}

// start makes this test binary a child.
func start(child string, to told) (*process, error) {
	text, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(exe), said: make(chan string, 1), ended: make(chan error, 1)} //nolint:noctx // it ends with its input, or is killed
	p.cmd.Env = append(os.Environ(), childVariable+"="+child, toldVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		first, err := bufio.NewReader(out).ReadString('\n')
		if err == nil {
			p.said <- strings.TrimSpace(first)
		}
		close(p.said)
		_, _ = io.Copy(io.Discard, out)
		p.ended <- p.cmd.Wait()
	}()
	return p, nil
}

// kill ends it with SIGKILL, and tells whether it was still alive.
func (p *process) kill() (alive bool, err error) {
	_ = p.cmd.Process.Kill()
	err = <-p.ended
	_ = p.in.Close()
	if !p.cmd.ProcessState.Exited() {
		return true, nil
	}
	return false, err
}

// finish lets it end by itself.
func (p *process) finish(t *testing.T) {
	t.Helper()
	require.NoError(t, p.in.Close())
	select {
	case err := <-p.ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		require.Fail(t, "a process does not end with its input")
	}
}
