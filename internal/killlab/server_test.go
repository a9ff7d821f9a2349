package killlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// beLedger serves the participant until its standard input ends, which it does with its parent.
func beLedger(to told) error {
	f, err := os.OpenFile(to.Ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler(newParticipant(to.Seed, appendTo(f))), ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	fmt.Println("http://" + l.Addr().String())
	_, err = io.Copy(io.Discard, os.Stdin)
	err = errors.Join(err, server.Shutdown(context.Background()), f.Close())
	if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

func handler(p *participant) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /call", func(w http.ResponseWriter, r *http.Request) {
		var c call
		if !read(w, r, &c) {
			return
		}
		// What has arrived is done, whether its caller lives to hear of it or not.
		there, back := p.pauses()
		time.Sleep(there)
		l, err := p.take(c)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		time.Sleep(back)
		write(w, l)
	})
	mux.HandleFunc("POST /job", func(w http.ResponseWriter, _ *http.Request) {
		no, ok := p.job()
		if !ok {
			no = -1
		}
		write(w, no)
	})
	mux.HandleFunc("POST /report", func(w http.ResponseWriter, r *http.Request) {
		var rep report
		if read(w, r, &rep) {
			p.reported(rep)
			write(w, true)
		}
	})
	mux.HandleFunc("POST /progress", func(w http.ResponseWriter, r *http.Request) {
		var closing bool
		if read(w, r, &closing) {
			write(w, p.progress(closing))
		}
	})
	return mux
}

func read(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func write(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
