package sagahttp

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

// ProblemType is the media type of a [Problem].
const ProblemType = "application/problem+json"

// Problem is a problem document (RFC 9457), the content of every answer that is an error.
type Problem struct {
	// Type is a URI that names the kind of problem.
	Type string `json:"type"`
	// Title is the kind in words.
	Title string `json:"title"`
	// Status is the HTTP status.
	Status int `json:"status"`
	// Detail says what to do. It tells nothing of the server's inside.
	Detail string `json:"detail,omitempty"`
	// Instance names the run, or, when none has started, this answer. It is a UUID, and stands in the server's log.
	Instance string `json:"instance,omitempty"`
	// Code of a permanent failure, as the failing step has given it.
	Code string `json:"code,omitempty"`
}

// answer is all that is sent back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func newAnswer(status int, contentType string, body []byte) *answer {
	return &answer{status, http.Header{"Content-Type": {contentType}}, body}
}

func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	to := w.Header()
	for name, values := range a.header {
		to[name] = values
	}
	to.Set("Cache-Control", "no-store")
	if a.status == http.StatusNoContent || a.status == http.StatusResetContent {
		to.Del("Content-Type")
		w.WriteHeader(a.status)
		return
	}
	to.Set("X-Content-Type-Options", "nosniff")
	to.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.body) // a client that is gone misses nothing: the same key gives the same answer
	}
}

// problem is the document for a problem of this kind.
func (c *config) problem(k kind, instance string) Problem {
	return Problem{Type: c.types + k.slug, Title: k.title, Status: k.status, Detail: k.detail, Instance: instance}
}

func (c *config) problemAnswer(p Problem) *answer {
	body, err := state.Encode(p)
	if err != nil { // strings and a number: it can't happen
		body = []byte("{}")
	}
	return newAnswer(p.Status, ProblemType, append(body, '\n'))
}

// refuse is the answer to a request whose run did not start.
func (c *config) refuse(err error) *answer {
	k, own := kindOf(err), (*Refusal)(nil)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &own) && own != nil:
		k = own.as()
	case errors.As(err, &tooLarge):
		k = kindTooLarge
	case k == kindInternal && !errors.Is(err, saga.ErrDefinitionChanged):
		k = kindRefused
	}
	p := c.problem(k, randomURN())
	var header http.Header
	if own != nil && k != kindInternal {
		if own.Detail != "" {
			p.Detail = own.Detail
		}
		if own.Type != "" && own.kind == nil {
			p.Type = own.Type
		}
		header = own.Header
	}
	a := c.problemAnswer(p)
	for name, values := range header {
		if name = http.CanonicalHeaderKey(name); name != "Content-Type" {
			a.header[name] = append(a.header[name], values...)
		}
	}
	if k.retry {
		a.header.Set("Retry-After", retryAfter(errorDelay(err)))
	}
	c.logAnswer(p, "", err)
	return a
}

// internal is the answer to a defect.
func (c *config) internal(err error, fields ...zap.Field) *answer {
	k := kindInternal
	if c.broken != nil { // the client is not told how, but whoever sets the handler up should not be left without a hint
		k.detail = "The handler is set up wrongly; what it logs says how (WithLogger)."
	}
	p := c.problem(k, randomURN())
	c.logAnswer(p, "", err, fields...)
	return c.problemAnswer(p)
}

// failedRun is the answer to a run that has not completed, from its error alone.
func (c *config) failedRun(key saga.Key, err error) *answer {
	k := kindOf(err)
	var e *saga.Error
	if !errors.As(err, &e) || e == nil {
		e = &saga.Error{Key: key}
		var own *Refusal
		if errors.As(err, &own) {
			return c.refuse(err)
		}
	}
	if e.Key.ID != "" {
		key = e.Key
	}
	p := c.problem(k, runURN(key.String()))
	if k == kindFailed {
		c.explain(&p, e.Code, e.Err)
	}
	a := c.problemAnswer(p)
	if k.retry {
		after := e.RetryAfter
		if k == kindInProgress && c.retryAfter > 0 {
			after = min(after, c.retryAfter)
		}
		a.header.Set("Retry-After", retryAfter(after))
	}
	c.logAnswer(p, key.String(), err)
	return a
}

// explain puts what the failure's code stands for into the problem. All of it is stored with the run, so that a replay
// reads the same.
func (c *config) explain(p *Problem, code string, cause error) {
	p.Code = code
	as := c.failures[code]
	if as.Status != 0 {
		p.Status = as.Status
	}
	if as.Type != "" {
		p.Type = as.Type
	}
	if as.Title != "" {
		p.Title = as.Title
	}
	if c.messages && cause != nil && cause.Error() != "" {
		p.Detail = cause.Error()
	}
}

func errorDelay(err error) time.Duration {
	var e *saga.Error
	if errors.As(err, &e) && e != nil {
		return e.RetryAfter
	}
	return 0
}

// retryAfter is a wait in whole seconds, up, and at least one: none at all would make clients spin.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}

// logAnswer tells the log what the client is not told.
func (c *config) logAnswer(p Problem, key string, err error, fields ...zap.Field) {
	level := zap.DebugLevel
	switch {
	case p.Status == http.StatusServiceUnavailable:
		level = zap.WarnLevel
	case p.Status >= http.StatusInternalServerError:
		level = zap.ErrorLevel
	}
	if ce := c.log.Check(level, "http_problem"); ce != nil {
		fields = append(fields, zap.Int("status", p.Status), zap.String("type", p.Type), zap.String("instance", p.Instance), zap.Error(err))
		if key != "" {
			fields = append(fields, zap.String("key", key))
		}
		ce.Write(fields...)
	}
}

const urnUUID = "urn:uuid:"

// runURN names a run, the same in every answer about it.
func runURN(runKey string) string { return urnUUID + steps.DerivedKey(runKey).UUID() }

// randomURN names an answer that belongs to no run.
func randomURN() string { return urnUUID + newUUID() }

// newUUID is a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
