package sagalambda

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jmespath/go-jmespath"

	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/state"
)

// KeyPath makes runs' keys of fields of JSON documents. It may be used concurrently.
type KeyPath struct {
	tenant, operation *field
	id                []*field
}

// KeyOption adds to what a [KeyPath] takes. Only this package makes them.
type KeyOption interface{ applyKey(*KeyPath) error }

type keyOption func(*KeyPath) error

func (o keyOption) applyKey(k *KeyPath) error { return o(k) }

// KeyAt takes the business ID from the field at a JMESPath, such as "job_id" or "detail.order_id". The field must hold a
// string that is not blank, or a number (whose spelling does not count: 1 and 1.0 are one).
//
// Refused, here or when a key is made, is what names a delivery and not the business: a path that names a request ID, a
// trace ID or a receipt handle, and a value that has the form of a trace ID. Every delivery would be a run of its own.
func KeyAt(path string, opts ...KeyOption) (*KeyPath, error) {
	k := &KeyPath{}
	if err := AndAt(path).applyKey(k); err != nil {
		return nil, err
	}
	for _, o := range opts {
		if o == nil {
			continue
		}
		if err := o.applyKey(k); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// AndAt adds a field to the business ID, for an ID of several parts. They are joined with "/", which is escaped in each, so
// that different parts never make the same ID.
func AndAt(path string) KeyOption {
	return keyOption(func(k *KeyPath) error {
		f, err := newField(path)
		if err == nil {
			err = f.refuseName()
		}
		k.id = append(k.id, f)
		return err
	})
}

// TenantAt takes the tenant from the field at a JMESPath. Whoever can send an event can name any tenant in it, so this is
// for senders that are trusted with all of them.
func TenantAt(path string) KeyOption {
	return keyOption(func(k *KeyPath) (err error) {
		k.tenant, err = newField(path)
		return err
	})
}

// OperationAt takes the operation from the field at a JMESPath. A run is refused with saga.ErrInvalidKey when it is not the
// orchestrator's own, so that an event that went to the wrong function does nothing.
func OperationAt(path string) KeyOption {
	return keyOption(func(k *KeyPath) (err error) {
		k.operation, err = newField(path)
		return err
	})
}

// Key makes the key of a document. Errors are of class saga.ErrInvalidKey or saga.ErrInvalidInput, name the path, and don't
// quote the document.
func (k *KeyPath) Key(document []byte) (key saga.Key, err error) {
	doc, err := decode[any](document)
	if err != nil {
		return key, err
	}
	if key.Tenant, err = k.tenant.text(doc); err != nil {
		return saga.Key{}, err
	}
	if key.Operation, err = k.operation.text(doc); err != nil {
		return saga.Key{}, err
	}
	parts := make([]string, len(k.id))
	for i, f := range k.id {
		if parts[i], err = f.business(doc); err != nil {
			return saga.Key{}, err
		}
		if len(parts) > 1 {
			parts[i] = escaper.Replace(parts[i])
		}
	}
	key.ID = strings.Join(parts, "/")
	return key, nil
}

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")

// field is one field of a document; a nil one is empty.
type field struct {
	path string
	find *jmespath.JMESPath
}

func newField(path string) (*field, error) {
	find, err := jmespath.Compile(path)
	if err != nil {
		return nil, fmt.Errorf("sagalambda: %q is no JMESPath: %w", path, err)
	}
	return &field{path, find}, nil
}

func (f *field) refuses(why string) error {
	return &Refusal{Reason: fmt.Sprintf("the key's field %s %s", f.path, why), Err: saga.ErrInvalidKey}
}

// text is the field's value as a part of a key.
func (f *field) text(doc any) (string, error) {
	if f == nil {
		return "", nil
	}
	found, err := f.find.Search(doc)
	if err != nil {
		return "", &Refusal{Reason: fmt.Sprintf("the key's field %s can't be looked up", f.path), Err: errors.Join(saga.ErrInvalidKey, err)}
	}
	switch v := found.(type) {
	case nil:
		return "", f.refuses("is missing or null")
	case string:
		if strings.TrimSpace(v) == "" {
			return "", f.refuses("is blank")
		}
		return v, nil
	case json.Number:
		return v.String(), nil
	case float64: // made by a function of JMESPath
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case bool:
		return "", f.refuses("is a boolean, which tells no two requests apart")
	}
	return "", f.refuses("is neither a string nor a number")
}

// business is the field's value, which must not be the name of a delivery.
func (f *field) business(doc any) (string, error) {
	v, err := f.text(doc)
	if err == nil && traceID.MatchString(v) {
		return "", f.refuses("holds a trace ID, which is another one in every delivery; take a business key")
	}
	return v, err
}

// traceID matches the IDs of X-Ray and of the W3C's traceparent.
var traceID = regexp.MustCompile(`^(?:(?:Root=)?1-[0-9a-f]{8}-[0-9a-f]{24}\b.*|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})$`)

// identifier matches the names in a JMESPath, once its literals are gone.
var (
	literal    = regexp.MustCompile("'(?:\\\\.|[^'\\\\])*'|`(?:\\\\.|[^`\\\\])*`")
	identifier = regexp.MustCompile(`"(?:\\.|[^"\\])*"|[A-Za-z_][A-Za-z0-9_]*`)
	separators = strings.NewReplacer(`"`, "", "_", "", "-", "", " ", "", ".", "")
)

// ofDelivery are names of what is another one in every delivery.
var ofDelivery = map[string]string{
	"requestid": "a request ID", "awsrequestid": "a request ID", "xrequestid": "a request ID", "xamznrequestid": "a request ID",
	"xamzrequestid": "a request ID", "extendedrequestid": "a request ID", "lambdarequestid": "a request ID", "invocationid": "a request ID",
	"traceid": "a trace ID", "xraytraceid": "a trace ID", "xamzntraceid": "a trace ID", "awstraceheader": "a trace ID", "traceparent": "a trace ID",
	"spanid": "a trace ID", "receipthandle": "a receipt handle",
}

func (f *field) refuseName() error {
	for _, name := range identifier.FindAllString(literal.ReplaceAllString(f.path, ""), -1) {
		if what, ok := ofDelivery[strings.ToLower(separators.Replace(name))]; ok {
			return fmt.Errorf("sagalambda: %w: %s names %s, which is another one in every delivery; take a business key", saga.ErrInvalidKey, state.Cut(f.path), what)
		}
	}
	return nil
}
